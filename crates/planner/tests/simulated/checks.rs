//! What no step may do, in view of what was seen.

use valkey_model::{
    Action, Desired, Member, NodeId, Observation, ReplicaLink, Role, ShardIndex, Sighting, SlotSet, Step,
};

/// What a step must not do in view of what was seen.
pub fn check(desired: Desired, seen: &Observation, step: &Step) {
    let known = |member: Member| seen.report(member).unwrap_or_else(|| panic!("{} is not there", step.action));
    match &step.action {
        Action::Replicate { on, primary } => {
            let report = known(*on);
            assert!(report.slots.is_empty(), "{} has slots", step.action);
            assert!(report.role == Role::Replica || report.keys == 0, "{} has keys", step.action);
            let home = seen.reports().find(|(_, leader)| leader.id == *primary).map(|(member, _)| member.shard);
            assert_eq!(home, Some(on.shard), "{} leaves its shard", step.action);
        }
        Action::Forget { id, .. } => {
            let held = |s: &Sighting| matches!(s, Sighting::Held(held) if held.id == *id);
            assert!(!seen.reports().any(|(_, report)| report.id == *id), "{} is alive", step.action);
            assert!(!seen.members.values().any(held), "{} is held", step.action);
            assert!(desired.members().all(|member| is_known(seen.sighting(member))), "{}: unknown", step.action);
        }
        Action::AddSlots { slots, .. } => {
            let owned = owned_anywhere(seen);
            assert!(!owned.intersects(slots), "{}: somebody owns them", step.action);
        }
        Action::TakeOver { on } => {
            let primary = known(*on).primary.expect("a replica");
            assert!(is_proven_gone(desired, seen, *on, primary), "{}: no proof", step.action);
        }
        Action::SetEpoch { on, .. } => assert!(known(*on).is_blank(), "{}: not blank", step.action),
        Action::Meet { on, address } => {
            known(*on);
            assert!(seen.reports().any(|(_, report)| report.address == *address), "{}: a stranger", step.action);
        }
        Action::Release { on } => {
            assert!(matches!(seen.sighting(*on), Sighting::Held(_)), "{}: not held", step.action);
        }
        Action::HandOver { on } => {
            let heir = known(*on);
            assert_eq!((heir.role, heir.link), (Role::Replica, ReplicaLink::Up), "{}: not in sync", step.action);
            let primary = seen.reports().find(|(_, report)| Some(report.id) == heir.primary);
            assert!(primary.is_some_and(|(_, report)| report.role == Role::Primary), "{}: no primary", step.action);
        }
        Action::Migrate { on, slots, to, way: _ } => {
            let source = known(*on);
            assert!(slots.minus(&source.slots).is_empty(), "{}: not its slots", step.action);
            let target = seen.reports().find(|(_, report)| report.id == *to);
            let (home, _) = target.filter(|(_, r)| r.role == Role::Primary).expect("a target that can take slots");
            let whole = is_whole(desired, seen, on.shard) && is_whole(desired, seen, home.shard);
            assert!(whole, "{}: not in sync", step.action);
        }
        Action::SetNodeTimeout { .. } | Action::Configure { .. } => {}
    }
}

/// Everybody of a shard is a primary or in sync with it. Surplus members of a shard that stays do not count.
fn is_whole(desired: Desired, seen: &Observation, shard: ShardIndex) -> bool {
    let counts = |member: &Member| desired.wants(*member) || member.shard.0 >= desired.shards;
    let mut members = seen.members.iter().filter(|(member, _)| member.shard == shard && counts(member));
    members.all(|(_, sighting)| match sighting {
        Sighting::Known(report) => report.role == Role::Primary || report.link == ReplicaLink::Up,
        _ => false,
    })
}

fn is_known(sighting: &Sighting) -> bool {
    matches!(sighting, Sighting::Known(_) | Sighting::Held(_))
}

fn owned_anywhere(seen: &Observation) -> SlotSet {
    let own = seen.reports().map(|(_, report)| &report.slots);
    let told = seen.reports().flat_map(|(_, report)| report.peers.iter().map(|peer| &peer.slots));
    let held = seen.members.values().filter_map(|sighting| match sighting {
        Sighting::Held(held) => Some(&held.slots),
        _ => None,
    });
    own.chain(told).chain(held).fold(SlotSet::EMPTY, |all, slots| all.union(slots))
}

fn is_proven_gone(desired: Desired, seen: &Observation, heir: Member, primary: NodeId) -> bool {
    let held = seen.members.values().any(|s| matches!(s, Sighting::Held(held) if held.id == primary));
    let mut shard = desired.members().chain(seen.leaving(desired)).filter(|member| member.shard == heir.shard);
    let all_known = shard.all(|member| is_known(seen.sighting(member)));
    let alive = seen.reports().any(|(_, report)| report.id == primary);
    !alive && (held || all_known)
}
