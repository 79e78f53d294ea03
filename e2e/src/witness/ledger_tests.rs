//! Small stories told to the ledger, one line each, and what it must make of them; then a server that misbehaves at
//! random.

use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(1);

fn slot() -> Slot {
    Slot::new(7).unwrap()
}

/// What happens to the next write of the slot.
#[derive(Clone, Debug)]
enum Event {
    /// Acknowledged, with this value before it.
    Ok(Found),
    /// The same, but the client had to try more than once.
    Again(Found),
    /// The outcome is unknown.
    Unknown,
}
use Event::{Again, Ok as Acked, Unknown};
use Found::{Foreign, Nothing};

fn wrote(sequence: u64) -> Found {
    Found::Written(Sequence(sequence))
}

fn after(events: &[Event]) -> Ledger {
    let mut ledger = Ledger::default();
    for event in events {
        let write = ledger.begin(slot());
        match event.clone() {
            Acked(previous) => ledger.acknowledge(write, previous, NOW, Delivery::Once),
            Again(previous) => ledger.acknowledge(write, previous, NOW, Delivery::PerhapsAgain),
            Unknown => ledger.give_up(write),
        }
    }
    ledger
}

#[test]
fn the_value_before_a_write_tells_whether_the_last_one_was_lost() {
    for (story, events, lost) in [
        ("the first write finds nothing", vec![Acked(Nothing)], 0),
        ("each write finds the last one", vec![Acked(Nothing), Acked(wrote(1)), Acked(wrote(2))], 0),
        ("lost to nothing", vec![Acked(Nothing), Acked(Nothing)], 1),
        ("lost to an older one", vec![Acked(Nothing), Acked(wrote(1)), Acked(wrote(1))], 1),
        ("its own value, after the client tried again", vec![Acked(Nothing), Again(wrote(2))], 0),
        ("its own value on the very first write", vec![Again(wrote(1))], 0),
        ("a value from the future is nobody's", vec![Acked(Nothing), Acked(wrote(9))], 1),
        ("a foreign value", vec![Acked(Nothing), Acked(Foreign("x".into()))], 1),
        ("never acknowledged, so nothing to lose", vec![Unknown, Acked(Nothing)], 0),
        (
            "a loss is told once, and later writes do not hide it",
            vec![Acked(Nothing), Acked(Nothing), Acked(wrote(2))],
            1,
        ),
        ("a new generation starts from nothing", vec![Acked(Nothing), Unknown, Acked(Nothing)], 0),
        ("also after a write that may have been sent twice", vec![Again(Nothing), Acked(Nothing)], 0),
    ] {
        assert_eq!(after(&events).lost_in_all(), lost, "{story}");
    }
}

#[test]
fn the_value_at_the_end_tells_whether_the_last_write_was_lost() {
    let twice = vec![Acked(Nothing), Acked(wrote(1))];
    let unsure = vec![Acked(Nothing), Acked(wrote(1)), Unknown];
    let resent = vec![Acked(Nothing), Again(wrote(1))];
    for (story, events, found, lost) in [
        ("the last one is there", &twice, wrote(2), 0),
        ("lost to nothing", &twice, Nothing, 1),
        ("lost to an older one", &twice, wrote(1), 1),
        ("an unknown write that did not happen", &unsure, wrote(2), 0),
        ("an unknown write that did happen", &unsure, wrote(3), 0),
        ("an unknown write does not excuse a lost one", &unsure, wrote(1), 1),
        ("nor nothing", &unsure, Nothing, 1),
        ("a write that may have been sent twice", &resent, wrote(2), 0),
        ("and was lost", &resent, wrote(1), 1),
    ] {
        let mut ledger = after(events);
        let keys = ledger.to_read_back();
        let [key] = keys[..] else { panic!("{story}: {keys:?}") };
        ledger.read_back(key, found, NOW);
        assert_eq!(ledger.lost_in_all(), lost, "{story}");
    }
}

#[test]
fn only_keys_that_were_acknowledged_are_read_back() {
    let generations =
        |events: &[Event]| -> Vec<u32> { after(events).to_read_back().iter().map(|key| key.generation).collect() };
    assert_eq!(generations(&[]), [0; 0]);
    assert_eq!(generations(&[Unknown, Unknown]), [0; 0]);
    assert_eq!(generations(&[Acked(Nothing), Unknown, Unknown, Acked(Nothing)]), [0, 2]);
    assert_eq!(generations(&[Again(Nothing), Again(Nothing), Acked(Nothing)]), [0, 1, 2]);
}

#[test]
fn a_lost_write_says_what_was_acknowledged_and_what_was_found() {
    let lost = after(&[Acked(Nothing), Acked(wrote(1)), Acked(wrote(1))]).into_lost();
    let key = Key { slot: slot(), generation: 0 };
    let acknowledged = Acknowledged { sequence: Sequence(2), at: NOW };
    assert_eq!(lost, [LostWrite { key, acknowledged, found: wrote(1), noticed: NOW }]);
}

/// What the server does with one write.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Applied,
    /// Applied, but the answer was lost and the client sent it again.
    AppliedTwice,
    /// No answer, and applied or not.
    Silent(bool),
    /// The server forgets the key just before the write.
    Forgets,
    /// The server goes back to an older state of the key just before the write.
    GoesBack,
}

fn fates(dishonest: bool) -> impl Strategy<Value = Vec<Fate>> {
    let honest = prop_oneof![Just(Fate::Applied), Just(Fate::AppliedTwice), any::<bool>().prop_map(Fate::Silent)];
    let any = prop_oneof![3 => honest.clone(), 1 => Just(Fate::Forgets), 1 => Just(Fate::GoesBack)];
    proptest::collection::vec(if dishonest { any.boxed() } else { honest.boxed() }, 0..40)
}

/// Plays a server with these fates; returns how many acknowledged writes it really lost, and the ledger's count.
fn play(fates: &[Fate]) -> (u64, u64) {
    let mut ledger = Ledger::default();
    let mut store: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
    let mut acknowledged: BTreeMap<Key, u64> = BTreeMap::new();
    let found = |history: &Vec<u64>| history.last().map_or(Nothing, |sequence| wrote(*sequence));
    let mut really_lost = 0;
    for fate in fates {
        let write = ledger.begin(slot());
        let history = store.entry(write.key).or_default();
        let forgotten = match fate {
            Fate::Forgets => std::mem::take(history).pop(),
            Fate::GoesBack => history.pop(),
            _ => None,
        };
        really_lost += u64::from(forgotten.is_some() && forgotten == acknowledged.get(&write.key).copied());
        let mut previous = found(history);
        if !matches!(fate, Fate::Silent(false)) {
            history.push(write.sequence.0);
        }
        let delivery = match fate {
            Fate::Silent(_) => {
                ledger.give_up(write);
                continue;
            }
            Fate::AppliedTwice => {
                previous = found(history);
                Delivery::PerhapsAgain
            }
            _ => Delivery::Once,
        };
        acknowledged.insert(write.key, write.sequence.0);
        ledger.acknowledge(write, previous, NOW, delivery);
    }
    for key in ledger.to_read_back() {
        let found = found(&store[&key]);
        ledger.read_back(key, found, NOW);
    }
    (really_lost, ledger.lost_in_all())
}

proptest! {
    #[test]
    fn an_honest_server_is_never_accused(fates in fates(false)) {
        prop_assert_eq!(play(&fates), (0, 0));
    }

    #[test]
    fn every_lost_write_is_noticed_and_none_is_invented(fates in fates(true)) {
        let (really, noticed) = play(&fates);
        prop_assert_eq!(really, noticed);
    }

    #[test]
    fn the_books_grow_with_mishaps_not_with_writes(writes in 1_usize..500) {
        let ledger = after(&vec![Acked(wrote(1)); writes]);
        prop_assert_eq!(ledger.to_read_back().len(), 1);
    }
}
