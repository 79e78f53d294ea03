//! Who has to be introduced to whom.

use valkey_model::{Action, Member, NodeId, NodeReport, PeerHealth, Step};

use crate::newcomers::is_early;
use crate::view::ClusterView;

/// Up to this many nodes everybody is introduced to everybody, which is the fastest way by far. Beyond it the number of
/// introductions would explode, so everybody meets a few, and gossip does the rest.
const SMALL: usize = 50;
const SEEDS: usize = 3;

/// Introduces every two nodes of which one does not know the other, or knows it at an address of the past (F01, F03).
///
/// One introduction mends both directions.
pub(crate) fn steps(view: &ClusterView) -> Vec<Step> {
    if is_unborn(view) {
        return Vec::new();
    }
    let strangers = strangers(view);
    let is_guest = |member| !strangers.iter().any(|(stranger, _)| *stranger == member);
    let guests = view.ready().filter(|(member, _)| is_guest(*member));
    let guests: Vec<_> = guests.filter(|(member, report)| !is_early(view, *member, report)).collect();
    let hosts = if guests.len() > SMALL { SEEDS } else { guests.len() };
    let pairs = guests.iter().take(hosts).enumerate().flat_map(|(index, host)| {
        let others = guests.iter().skip(index + 1);
        others.map(move |guest| (*host, *guest))
    });
    pairs.filter_map(|((host, a), (_, b))| introduce(host, a, b)).collect()
}

/// A cluster of which nothing exists yet. Epochs can only be given to a node that knows nobody, so introductions wait until
/// all are there and the slots can be given in the same go.
fn is_unborn(view: &ClusterView) -> bool {
    view.owned().is_empty() && !view.everyone_known()
}

fn introduce(on: Member, host: &NodeReport, guest: &NodeReport) -> Option<Step> {
    let under_way =
        host.peers.iter().any(|peer| peer.health == PeerHealth::Handshake && peer.address == Some(guest.address));
    if under_way {
        return None;
    }
    let reason = match (knows(host, guest), knows(guest, host)) {
        (Knows::AtItsAddress, Knows::AtItsAddress) => return None,
        (Knows::Elsewhere, _) | (_, Knows::Elsewhere) => "an address has changed",
        (Knows::Not, _) | (_, Knows::Not) => "they do not know each other",
    };
    Some(Step { action: Action::Meet { on, address: guest.address }, reason })
}

enum Knows {
    AtItsAddress,
    Elsewhere,
    Not,
}

fn knows(by: &NodeReport, about: &NodeReport) -> Knows {
    match by.peer(about.id) {
        Some(peer) if peer.address == Some(about.address) => Knows::AtItsAddress,
        Some(_) => Knows::Elsewhere,
        None => Knows::Not,
    }
}

/// How sure it is that a server belongs to another cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// All of ours are accounted for, and they are a cluster without it.
    Surely,
    /// The ones that it knows may be ours and away. Or they seem to be alive: but so they do, for some seconds, to the last
    /// server of our cluster after all others were replaced.
    Perhaps,
}

/// Members whose servers belong to another cluster: they know others, but nobody of whom one of ours has ever heard, and
/// none of ours knows them. To introduce one would join the two clusters, and one of them would lose its data (F04).
pub(crate) fn strangers(view: &ClusterView) -> Vec<(Member, Stranger)> {
    view.live().filter_map(|(member, report)| Some((member, judge(view, member, report)?))).collect()
}

fn judge(view: &ClusterView, member: Member, report: &NodeReport) -> Option<Stranger> {
    let others = || view.live().filter(move |(other, _)| *other != member);
    let known_to_ours = |id| view.home_of(id).is_some() || others().any(|(_, other)| has_met(other, id));
    let mut peers = report.peers.iter().filter(|peer| peer.health != PeerHealth::Handshake).peekable();
    let only_knows_others = peers.peek().is_some() && !peers.any(|peer| known_to_ours(peer.id));
    if !only_knows_others || others().any(|(_, other)| has_met(other, report.id)) {
        return None;
    }
    let leads_ours = |a: &NodeReport| !a.slots.is_empty() && others().any(|(_, b)| has_met(a, b.id));
    let company_is_alive = report.peers.iter().any(|peer| peer.health == PeerHealth::Fine && peer.connected);
    match (others().any(|(_, other)| leads_ours(other)), view.everyone_known()) {
        (true, true) => Some(Stranger::Surely),
        (true, false) => Some(Stranger::Perhaps),
        (false, true) if company_is_alive => Some(Stranger::Perhaps),
        (false, _) => None,
    }
}

fn has_met(report: &NodeReport, id: NodeId) -> bool {
    report.peer(id).is_some_and(|peer| peer.health != PeerHealth::Handshake)
}

#[cfg(test)]
#[path = "introductions_tests.rs"]
mod tests;
