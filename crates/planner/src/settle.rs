//! The last touch.

use valkey_model::{Action, Blemish, Member, PeerHealth, Step};

use crate::view::ClusterView;

/// Gives the nodes their final time-out once nothing else is left to do.
///
/// New nodes start with a short one, because a cluster forms in about the time that it takes a node to believe in it. On
/// a busy machine the short one makes nodes doubt each other without end: such doubts do not stop this, it ends them.
pub(crate) fn steps(view: &ClusterView, blemishes: &[Blemish]) -> Vec<Step> {
    if !blemishes.iter().all(|blemish| is_detail(view, blemish)) {
        return Vec::new();
    }
    let timeout = view.desired.node_timeout;
    let settle = |blemish: &Blemish| match blemish {
        Blemish::Unsettled(on) => {
            Some(Step { action: Action::SetNodeTimeout { on: *on, timeout }, reason: "the cluster is complete" })
        }
        _ => None,
    };
    blemishes.iter().filter_map(settle).collect()
}

fn is_detail(view: &ClusterView, blemish: &Blemish) -> bool {
    match blemish {
        Blemish::Unsettled(_) => true,
        Blemish::Disagrees { by, about } => is_mere_doubt(view, *by, *about).unwrap_or(false),
        _ => false,
    }
}

/// Whether a node is well connected to another one, and merely has not heard the latest about it: slots that moved, a new role.
pub(crate) fn is_news(view: &ClusterView, blemish: &Blemish) -> bool {
    let Blemish::Disagrees { by, about } = blemish else { return false };
    let about = view.seen().report(*about).map(|report| report.id);
    let peer = view.seen().report(*by).and_then(|report| report.peer(about?));
    peer.is_some_and(|peer| peer.health == PeerHealth::Fine && peer.connected)
}

/// Whether a node knows all there is to know about another one, and only doubts that it is well: it has lost the connection,
/// or even called it dead. That one has answered us a moment ago.
fn is_mere_doubt(view: &ClusterView, by: Member, about: Member) -> Option<bool> {
    let (by, about) = (view.seen().report(by)?, view.seen().report(about)?);
    let peer = by.peer(about.id)?;
    let agrees = peer.role == about.role && peer.primary == about.primary && peer.slots == about.slots;
    let doubts = !peer.connected || matches!(peer.health, PeerHealth::Suspected | PeerHealth::Failed);
    Some(agrees && doubts && peer.health != PeerHealth::Handshake)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Fixture, id};

    #[test]
    fn doubts_do_not_keep_the_time_out_short() {
        let mut cluster = Fixture::formed(1, 1);
        let (by, about) = (Member::new(0, 0), Member::new(0, 1));
        let blemishes = [Blemish::Disagrees { by, about }, Blemish::Unsettled(by)];
        assert_eq!(steps(&cluster.view(), &blemishes), []);
        for health in [PeerHealth::Suspected, PeerHealth::Failed] {
            cluster.peer("0-0", id("0-1")).health = health;
            assert_eq!(steps(&cluster.view(), &blemishes).len(), 1);
        }
        cluster.peer("0-0", id("0-1")).health = PeerHealth::Fine;
        cluster.peer("0-0", id("0-1")).connected = false;
        assert_eq!(steps(&cluster.view(), &blemishes).len(), 1);
    }

    #[test]
    fn the_time_out_is_settled_only_when_nothing_else_is_left() {
        let cluster = Fixture::formed(1, 1);
        let view = cluster.view();
        let unsettled = Blemish::Unsettled(Member::new(0, 1));
        let on = Member::new(0, 1);
        let timeout = cluster.desired.node_timeout;
        let steps: Vec<_> =
            steps(&view, std::slice::from_ref(&unsettled)).into_iter().map(|step| step.action).collect();
        assert_eq!(steps, [Action::SetNodeTimeout { on, timeout }]);
        assert_eq!(super::steps(&view, &[Blemish::Syncing(on), unsettled]), []);
    }
}
