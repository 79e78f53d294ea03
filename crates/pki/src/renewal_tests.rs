use proptest::prelude::*;

use super::*;
use crate::verification_tests::{intermediate, now, request, root};
use crate::{Intermediate, Leaf, SpiffeId, Validity, facts};

fn after(percent: u8) -> RotateAfter {
    percent.try_into().unwrap()
}

fn orders() -> (Intermediate, Leaf) {
    let orders = intermediate(&root(), "orders.shop tls");
    let leaf = orders.authority().issue(&request(), now()).unwrap();
    (orders, leaf)
}

fn judge(leaf: &Leaf, wanted: &LeafRequest, authority: &Authority, now: Timestamp) -> Renewal {
    let existing = Existing { chain_pem: leaf.chain_pem.as_bytes(), key: &leaf.key };
    judge_leaf(Some(existing), wanted, authority, after(66), now)
}

#[test]
fn only_66_to_80_percent_can_be_asked_for() {
    for percent in 0..=u8::MAX {
        assert_eq!(RotateAfter::try_from(percent).is_ok(), (66..=80).contains(&percent), "{percent}");
    }
    assert!(RotateAfter::try_from(90).unwrap_err().to_string().starts_with("90 percent"));
}

#[test]
fn a_leaf_is_kept_until_its_share_is_over() {
    let (orders, leaf) = orders();
    let until: Timestamp = "2026-04-29T21:36:00Z".parse().unwrap(); // 59.4 of 90 days
    let judged = |now| judge(&leaf, &request(), orders.authority(), now);
    let second = SignedDuration::from_secs(1);
    assert_eq!(judged(now()), Renewal::Keep { until });
    assert_eq!(judged(until - second), Renewal::Keep { until });
    assert_eq!(judged(until), Renewal::Renew(Reason::PastShare));
    assert_eq!(judged(leaf.facts.not_after - second), Renewal::Renew(Reason::PastShare));
    assert_eq!(judged(leaf.facts.not_after), Renewal::Renew(Reason::Expired));
}

#[test]
fn a_very_short_leaf_is_not_replaced_as_soon_as_it_is_made() {
    let (orders, _) = orders();
    let short = LeafRequest { validity: "1m".parse().unwrap(), ..request() };
    let leaf = orders.authority().issue(&short, now()).unwrap();
    assert!(matches!(judge(&leaf, &short, orders.authority(), now()), Renewal::Keep { .. }));
}

#[test]
fn the_order_and_case_of_names_do_not_matter() {
    let (orders, leaf) = orders();
    let mut wanted = request();
    wanted.dns_names.reverse();
    wanted.dns_names.push("LOCALHOST".into());
    wanted.ip_addresses.reverse();
    assert!(matches!(judge(&leaf, &wanted, orders.authority(), now()), Renewal::Keep { .. }));
}

#[test]
fn any_other_name_needs_a_new_leaf() {
    let (orders, leaf) = orders();
    let other_pod = SpiffeId::pod(&"valkey.local".parse().unwrap(), "shop", "orders", "orders-0-1").unwrap();
    for wanted in [
        LeafRequest { dns_names: vec!["localhost".into()], ..request() },
        LeafRequest { ip_addresses: vec!["10.1.2.4".parse().unwrap()], ..request() },
        LeafRequest { uri: None, ..request() },
        LeafRequest { uri: Some(other_pod), ..request() },
    ] {
        let judged = judge(&leaf, &wanted, orders.authority(), now());
        assert_eq!(judged, Renewal::Renew(Reason::NamesChanged), "{wanted:?}");
    }
}

#[test]
fn a_shorter_validity_takes_effect_at_once_and_a_longer_one_in_its_time() {
    let (orders, leaf) = orders();
    let asked = |validity: &str| LeafRequest { validity: validity.parse().unwrap(), ..request() };
    let judged = |wanted| judge(&leaf, &wanted, orders.authority(), now());
    assert_eq!(judged(asked("89d")), Renewal::Renew(Reason::LivesTooLong));
    assert!(matches!(judged(asked("91d")), Renewal::Keep { .. }));
}

#[test]
fn a_leaf_of_another_authority_is_replaced_even_if_the_names_are_equal() {
    let root = root();
    let (old, new) = (intermediate(&root, "orders.shop tls"), intermediate(&root, "orders.shop tls"));
    let leaf = old.authority().issue(&request(), now()).unwrap();
    assert_eq!(judge(&leaf, &request(), new.authority(), now()), Renewal::Renew(Reason::WrongIssuer));
}

#[test]
fn a_chain_that_lost_its_intermediate_is_replaced() {
    let (orders, mut leaf) = orders();
    let end = "-----END CERTIFICATE-----\n";
    leaf.chain_pem.truncate(leaf.chain_pem.find(end).unwrap() + end.len());
    assert_eq!(judge(&leaf, &request(), orders.authority(), now()), Renewal::Renew(Reason::WrongIssuer));
}

#[test]
fn what_is_missing_broken_or_has_the_wrong_key_is_replaced() {
    let (orders, leaf) = orders();
    let authority = orders.authority();
    let other = authority.issue(&request(), now()).unwrap();
    assert_eq!(judge_leaf(None, &request(), authority, after(66), now()), Renewal::Renew(Reason::Missing));
    for chain_pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let broken = Leaf { chain_pem: chain_pem.into(), ..leaf.clone() };
        assert_eq!(judge(&broken, &request(), authority, now()), Renewal::Renew(Reason::Unreadable));
    }
    for key in [other.key, String::new().into()] {
        let mixed = Leaf { key, ..leaf.clone() };
        assert_eq!(judge(&mixed, &request(), authority, now()), Renewal::Renew(Reason::WrongKey));
    }
}

#[test]
fn an_authority_is_due_like_a_leaf() {
    let root = root();
    let at = |years: i64| due(root.facts(), after(80), now() + SignedDuration::from_hours(years * 365 * 24));
    assert!(matches!(at(7), Renewal::Keep { .. }));
    assert_eq!(at(8), Renewal::Renew(Reason::PastShare));
    assert_eq!(at(10), Renewal::Renew(Reason::Expired));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// What was just issued is kept by the very next pass, or the operator would issue for ever.
    #[test]
    fn a_new_leaf_is_always_kept(count in 1..60_u32, unit in "(m|h|d|mo|y)", percent in 66..=80_u8) {
        let (orders, _) = orders();
        let validity: Validity = format!("{count}{unit}").parse().unwrap();
        let wanted = LeafRequest { validity, ..request() };
        let leaf = orders.authority().issue(&wanted, now()).unwrap();
        let existing = Existing { chain_pem: leaf.chain_pem.as_bytes(), key: &leaf.key };
        let judged = judge_leaf(Some(existing), &wanted, orders.authority(), after(percent), now());
        let Renewal::Keep { until } = judged else { panic!("{judged:?}") };
        prop_assert!(until < facts(leaf.chain_pem.as_bytes()).unwrap().not_after);
    }
}
