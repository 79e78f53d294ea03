//! How far a cluster has got, in words.

use std::collections::BTreeSet;

use valkey_model::{
    Blemish, Member, NodeReport, PeerHealth, ReplicaLink, Role, SLOTS, ShardIndex, Sighting, SlotSet, Wish,
};

use crate::balance::Imbalance;
use crate::change::Deed;
use crate::formation::Heads;
use crate::memory;
use crate::scaling::{ALARMING, left_to_do};
use crate::view::ClusterView;
use crate::{Load, Operation, Progress};

/// What a cluster with these blemishes is busy with.
///
/// A planned change is only named if everything that is wrong comes from it, and no client feels it: so a cluster that is merely
/// being changed is never called ill, nor an ill one well.
pub(crate) fn operation(view: &ClusterView, heads: &Heads, blemishes: &[Blemish], deed: Option<&Deed>) -> Operation {
    // A cluster is being formed until its nodes got their final time-out for the first time.
    let settled = view.live().any(|(_, report)| report.node_timeout == view.desired.node_timeout);
    if !settled || view.owned().is_empty() {
        return Operation::Forming;
    }
    if blemishes.iter().any(|blemish| blemish.is_felt(view.seen())) {
        return Operation::Healing;
    }
    let ill: BTreeSet<Member> =
        view.members().map(|(m, _)| m).filter(|m| blemishes.iter().any(|b| is_illness(b) && concerns(b, *m))).collect();
    let emptying = view.members().any(|(member, _)| view.seen().unwelcome.contains(&member));
    let rolling = view.wanted().any(|(member, _)| view.is_outdated(member));
    let scaling =
        view.leaving().next().is_some() || left_to_do(view, heads).misplaced() > 0 || view.moves().next().is_some();
    if ill.is_empty() {
        return match deed {
            Some(deed) => deed.operation,
            None if scaling => Operation::Scaling,
            None if emptying => Operation::Draining,
            None if rolling => Operation::Rolling,
            // Everybody is well, but some still know one that has left.
            None if blemishes.iter().any(|b| matches!(b, Blemish::KnowsOthers { .. })) => Operation::Scaling,
            None => Operation::Healing,
        };
    }
    let here = ill.iter().filter(|member| !view.seen().stranded.contains(member));
    let shards: BTreeSet<ShardIndex> = here.map(|member| member.shard).collect();
    // One that has just handed its shard over copies what its heir has.
    let copies = |member: Member| view.seen().report(member).is_some();
    let rolled = |member: &Member| rolling && (!view.is_outdated(*member) || copies(*member));
    let resigned = |member: &Member| is_wished_about(view, member.shard) && copies(*member);
    let as_planned = |member: &Member| is_made_anew(view, *member) || rolled(member) || resigned(member);
    let as_planned = shards.len() <= 1 && ill.iter().all(as_planned);
    let newcomers = ill.iter().all(|member| is_newcomer(view, *member));
    match (as_planned, newcomers) {
        (true, _) if emptying => Operation::Draining,
        (true, _) if rolling => Operation::Rolling,
        (_, true) => Operation::Scaling,
        (true, false) if ill.iter().all(resigned) => Operation::Switching,
        (true, false) => Operation::Rolling,
        (false, false) => Operation::Healing,
    }
}

/// Its pod goes or has gone in good order, or comes up for the first time. One whose server failed in it does not count.
fn is_made_anew(view: &ClusterView, member: Member) -> bool {
    let seen = view.seen();
    let absent = matches!(seen.sighting(member), Sighting::Missing);
    absent || view.is_going(member) || seen.unused.contains(&member) || seen.fresh.contains(&member)
}

fn is_wished_about(view: &ClusterView, shard: ShardIndex) -> bool {
    view.seen()
        .wishes
        .iter()
        .any(|wish| matches!(wish, Wish::Lead(member) | Wish::Resign(member) if member.shard == shard))
}

/// Whether a member is not well, as opposed to what others have not heard yet.
pub(crate) fn is_illness(blemish: &Blemish) -> bool {
    !matches!(blemish, Blemish::Disagrees { .. } | Blemish::KnowsOthers { .. } | Blemish::Headless(_))
}

/// Somebody who is on the way in or out: nobody has ever heard of it, or nothing depends on it.
fn is_newcomer(view: &ClusterView, member: Member) -> bool {
    let is_ghost = |id| view.home_of(id).is_none();
    let met = |report: &'_ NodeReport| report.peers.iter().any(|p| p.health != PeerHealth::Handshake && is_ghost(p.id));
    let someone_is_gone = || view.live().any(|(_, report)| met(report));
    let unsettled = |report: &NodeReport| report.node_timeout != view.desired.node_timeout;
    let is_new = match view.seen().sighting(member) {
        Sighting::Missing | Sighting::Starting => !someone_is_gone(),
        Sighting::Known(report) => unsettled(report) && !someone_is_gone(),
        Sighting::Held(_) | Sighting::Unreachable => false,
    };
    let without_slots = view.leaders(member.shard).is_empty();
    !view.desired.wants(member) || without_slots || is_new
}

pub(crate) fn measure(view: &ClusterView, heads: &Heads, operation: Operation, blemishes: &[Blemish]) -> Progress {
    match operation {
        Operation::Forming => forming(view),
        Operation::Healing => healing(view, blemishes),
        Operation::Scaling => scaling(view, heads, &left_to_do(view, heads)),
        Operation::Rolling => rolling(view),
        Operation::Switching => say(operation, 0, 1, "a shard gets another primary".to_owned()),
        Operation::Draining => draining(view),
        Operation::Configuring => say(operation, 0, 1, "nodes get other settings".to_owned()),
        Operation::Growing => say(operation, 0, 1, "volumes become larger".to_owned()),
    }
}

fn say(operation: Operation, done: usize, of: usize, message: String) -> Progress {
    Progress { operation, done, of, message, waiting_for: None, load: None }
}

fn healing(view: &ClusterView, blemishes: &[Blemish]) -> Progress {
    let size = view.desired.size();
    let ill = view.wanted().filter(|(member, _)| blemishes.iter().any(|b| concerns(b, *member))).count();
    say(Operation::Healing, size - ill, size, format!("{} of {size} nodes are well", size - ill))
}

fn scaling(view: &ClusterView, heads: &Heads, left: &Imbalance) -> Progress {
    let misplaced = left.misplaced();
    if misplaced > 0 {
        let leaving: Vec<ShardIndex> = left.surplus.keys().copied().filter(|shard| view.is_leaving(*shard)).collect();
        let whither = if leaving.is_empty() { "to" } else { "away from" };
        let shards = if leaving.is_empty() { left.deficit.keys().copied().collect() } else { leaving };
        let load = load(heads, left);
        let inside = match load {
            Load { keys: 0, .. } => String::new(),
            Load { keys, bytes, .. } => format!(" with about {keys} keys, {},", memory::in_words(bytes)),
        };
        let message = format!(
            "{misplaced} slots{inside} are still to be moved {whither} {}{}",
            list("shard", "shards", &shards),
            failures(view).map(|(_, told)| format!("; {told}")).unwrap_or_default(),
        );
        let progress = say(Operation::Scaling, (SLOTS - misplaced).into(), SLOTS.into(), message);
        return Progress { load: Some(load), ..progress };
    }
    let leaving: Vec<String> = view.leaving().map(|(member, _)| view.pod(member)).collect();
    let size = view.desired.size();
    if !leaving.is_empty() {
        let message =
            format!("the slots are where they should be, {} to leave", list("pod has", "pods have", &leaving));
        return say(Operation::Scaling, size, size + leaving.len(), message);
    }
    let joined = view.live().filter(|(member, _)| view.desired.wants(*member) && has_joined(view, *member)).count();
    let message = if joined < size {
        format!("{joined} of {size} nodes joined")
    } else {
        "the nodes that have left are being forgotten".to_owned()
    };
    say(Operation::Scaling, joined, size, message)
}

fn load(heads: &Heads, left: &Imbalance) -> Load {
    left.surplus.iter().fold(Load::default(), |sum, (shard, slots)| {
        let head = heads.get(shard).map(|(_, head)| *head);
        let part = |amount: u64, of: u16| {
            let part = u128::from(amount) * u128::from(*slots) / u128::from(of.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        Load {
            slots: sum.slots + slots,
            keys: sum.keys + head.map_or(0, |head| part(head.keys, head.slots.len())),
            bytes: sum.bytes + head.map_or(0, |head| part(head.memory, head.slots.len())),
        }
    })
}

/// The source of slots that fails most often, and what is told about it.
pub(crate) fn failures(view: &ClusterView) -> Option<(u32, String)> {
    let (member, report) = view.live().max_by_key(|(_, report)| report.exports.failures)?;
    let exports = &report.exports;
    let why = exports.last_failure.as_ref().map_or("no reason given", |failure| failure.message.as_str());
    let again = if exports.failures < ALARMING { "" } else { ". It is tried again, but somebody should look at it" };
    let told = format!(
        "moving slots away from {} failed {} times, the last time with: {why}{again}",
        view.pod(member),
        exports.failures
    );
    (exports.failures > 0).then_some((exports.failures, told))
}

fn rolling(view: &ClusterView) -> Progress {
    let size = view.desired.size();
    let outdated = view.wanted().filter(|(member, _)| view.is_outdated(*member)).count();
    let renewed = view.wanted().map(|(member, _)| member).filter(|member| is_made_anew(view, *member));
    let renewed: Vec<String> = renewed.map(|member| view.pod(member)).collect();
    if outdated == 0 && !renewed.is_empty() {
        let message =
            format!("{} made anew", list("pod", "pods", &renewed) + if renewed.len() == 1 { " is" } else { " are" });
        return say(Operation::Rolling, size - renewed.len(), size, message);
    }
    say(Operation::Rolling, size - outdated, size, format!("{} of {size} pods are up to date", size - outdated))
}

fn draining(view: &ClusterView) -> Progress {
    let unwelcome = view.members().filter(|(member, _)| view.seen().unwelcome.contains(member)).count();
    let of = view.members().count();
    let message = match unwelcome {
        1 => "1 pod is on a machine that is being emptied".to_owned(),
        several => format!("{several} pods are on machines that are being emptied"),
    };
    say(Operation::Draining, of - unwelcome, of, message)
}

fn forming(view: &ClusterView) -> Progress {
    let operation = Operation::Forming;
    let size = view.desired.size();
    let up = view.live().count();
    if up < size {
        return say(operation, up, size, format!("{up} of {size} nodes are up"));
    }
    let primaries = view.live().filter(|(_, report)| report.role == Role::Primary);
    let assigned = primaries.fold(SlotSet::EMPTY, |all, (_, report)| all.union(&report.slots)).len();
    if assigned < SLOTS {
        return say(operation, assigned.into(), SLOTS.into(), format!("{assigned} of {SLOTS} slots assigned"));
    }
    let joined = view.live().filter(|(member, _)| has_joined(view, *member)).count();
    if joined < size {
        return say(operation, joined, size, format!("{joined} of {size} nodes joined"));
    }
    let replicas = size - usize::from(view.desired.shards);
    let following = view.live().filter(|(_, r)| r.role == Role::Replica && r.link == ReplicaLink::Up).count();
    match view.live().find(|(_, report)| report.role == Role::Replica && report.link != ReplicaLink::Up) {
        Some((member, _)) => say(operation, following, replicas, format!("copying data to {}", view.pod(member))),
        None if following < replicas => {
            say(operation, following, replicas, format!("{following} of {replicas} replicas follow their primary"))
        }
        None => say(operation, size, size, "all nodes joined, the last details follow".to_owned()),
    }
}

fn has_joined(view: &ClusterView, member: Member) -> bool {
    let Some(report) = view.seen().report(member) else { return false };
    let met = |id| report.peer(id).is_some_and(|peer| peer.health != PeerHealth::Handshake);
    view.live().all(|(other, about)| other == member || met(about.id))
}

/// `shard 3`, `shards 3, 4`.
fn list(one: &str, several: &str, items: &[impl ToString]) -> String {
    let names: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("{} {}", if items.len() == 1 { one } else { several }, names.join(", "))
}

pub(crate) fn concerns(blemish: &Blemish, member: Member) -> bool {
    match blemish {
        Blemish::Missing(m)
        | Blemish::Starting(m)
        | Blemish::Held(m)
        | Blemish::Unreachable(m)
        | Blemish::Loading(m)
        | Blemish::Astray(m)
        | Blemish::LinkDown(m)
        | Blemish::Syncing(m)
        | Blemish::NotServing(m)
        | Blemish::Unsettled(m)
        | Blemish::Disagrees { about: m, .. } => *m == member,
        Blemish::Headless(shard) | Blemish::TwoPrimaries(shard) => *shard == member.shard,
        // One missing node is news for all others, but only one node is not well.
        Blemish::KnowsOthers { .. } | Blemish::SlotsMissing(_) => false,
    }
}
