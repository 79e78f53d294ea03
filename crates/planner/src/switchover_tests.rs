use valkey_model::{Action, ReplicaLink};

use super::*;
use crate::fixtures::{Damage, Fixture, member};

fn wishing(cluster: &mut Fixture, wishes: &[Wish]) -> Intent {
    cluster.seen.wishes = wishes.to_vec();
    next(&cluster.view())
}

fn lead(text: &str) -> Wish {
    Wish::Lead(member(text))
}

fn resign(text: &str) -> Wish {
    Wish::Resign(member(text))
}

fn handed_to(intent: &Intent) -> Option<Member> {
    match intent.steps()? {
        [step] => match step.action {
            Action::HandOver { on } => Some(on),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn who_is_wished_to_lead_does() {
    let mut cluster = Fixture::formed(3, 2);
    assert_eq!(handed_to(&wishing(&mut cluster, &[lead("1-2")])), Some(member("1-2")));
    cluster.lead("1-2");
    assert_eq!(wishing(&mut cluster, &[lead("1-2")]), Intent::Nothing);
}

#[test]
fn who_is_to_resign_hands_over_to_the_best_who_is_not() {
    let mut cluster = Fixture::formed(3, 2);
    cluster.report("1-2").offset = 1001;
    assert_eq!(handed_to(&wishing(&mut cluster, &[resign("1-0")])), Some(member("1-2")));
    assert_eq!(handed_to(&wishing(&mut cluster, &[resign("1-0"), resign("1-2")])), Some(member("1-1")));
    assert_eq!(wishing(&mut cluster, &[resign("1-1")]), Intent::Nothing);
    let nobody = wishing(&mut cluster, &[resign("1-0"), resign("1-1"), resign("1-2")]);
    assert!(matches!(nobody, Intent::Wait(_)), "{nobody:?}");
}

#[test]
fn one_wish_at_a_time() {
    let intent = wishing(&mut Fixture::formed(3, 1), &[lead("0-1"), resign("1-0")]);
    assert_eq!(handed_to(&intent), Some(member("0-1")));
}

#[test]
fn nobody_leads_who_would_lose_a_write() {
    let damages: [Damage; 6] = [
        ("no link", &|c| c.report("1-1").link = ReplicaLink::Down),
        ("still copying", &|c| c.report("1-1").link = ReplicaLink::Syncing),
        ("still loading", &|c| c.report("1-1").loading = true),
        ("far behind", &|c| c.report("1-0").offset = 2_000_000),
        ("of another shard", &|c| c.report("1-1").primary = Some(crate::fixtures::id("0-0"))),
        ("about to go", &|c| {
            c.seen.going.insert(member("1-1"));
        }),
    ];
    for (what, damage) in damages {
        for wish in [lead("1-1"), resign("1-0")] {
            let mut cluster = Fixture::formed(3, 1);
            damage(&mut cluster);
            let intent = wishing(&mut cluster, &[wish]);
            assert!(matches!(intent, Intent::Wait(_)), "{what}: {intent:?}");
        }
    }
}

#[test]
fn nobody_changes_in_the_middle_of_a_move() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.moving("0-0", "7", "1-0");
    for wish in [lead("0-1"), lead("1-1"), resign("0-0"), resign("1-0")] {
        assert!(matches!(wishing(&mut cluster, &[wish]), Intent::Wait(_)));
        assert_eq!(reserved(&cluster.view()).len(), 1, "no new move may begin there");
    }
    assert_eq!(handed_to(&wishing(&mut cluster, &[lead("2-1")])), Some(member("2-1")));
}

/// Slots that were moved to two of them at the same time give both the same epoch, for a moment.
#[test]
fn nobody_changes_while_two_primaries_have_the_same_epoch() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.report("2-0").config_epoch = cluster.report("1-0").config_epoch;
    let intent = wishing(&mut cluster, &[lead("1-1")]);
    assert_eq!(intent, Intent::Wait("shard 1 to have an epoch of its own".into()));
    assert_eq!(handed_to(&wishing(&mut cluster, &[lead("0-1")])), Some(member("0-1")));
}

#[test]
fn nobody_changes_while_somebody_may_be_moving_slots_unseen() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.see("2-0", Sighting::Unreachable);
    assert_eq!(wishing(&mut cluster, &[lead("1-1")]), Intent::Wait("orders-2-0 to answer".into()));
}

#[test]
fn wishes_that_cannot_be_fulfilled_are_refused_with_a_reason() {
    for (wishes, word) in [
        (vec![lead("1-1"), resign("1-1")], "emptied"),
        (vec![lead("7-0")], "not wanted"),
        (vec![lead("1-0"), lead("1-1")], "wishes"),
    ] {
        let intent = wishing(&mut Fixture::formed(3, 1), &wishes);
        assert!(matches!(&intent, Intent::Refuse(why) if why.contains(word)), "{intent:?}");
    }
    let intent = wishing(&mut Fixture::formed(3, 0), &[resign("1-0")]);
    assert!(matches!(&intent, Intent::Refuse(why) if why.contains("no replica")), "{intent:?}");
}

#[test]
fn a_wish_for_somebody_who_is_about_to_be_replaced_waits() {
    let mut cluster = Fixture::formed(3, 1);
    cluster.outdate(&["1-1"]);
    let intent = wishing(&mut cluster, &[lead("1-1")]);
    assert!(matches!(&intent, Intent::Wait(on) if on.contains("outdated")), "{intent:?}");
    assert_eq!(
        handed_to(&wishing(&mut cluster, &[resign("1-0")])),
        Some(member("1-1")),
        "better than to die as a primary"
    );
}
