//! Settings that running servers take: one tries new ones, then all get them.
//!
//! They are in nobody's way, so they are given whatever planned change goes on. If a server refuses the new ones, everybody who
//! has them gets the former ones back, and they are not tried again: only another spec brings others.

use valkey_model::{Action, Member, NodeReport, Release, Role, Settings, Step, TakenSettings, WantedSettings};

use crate::view::ClusterView;
use crate::{Operation, Progress};

/// A server that can be given settings.
#[derive(Clone, Copy, Debug)]
struct Node<'a> {
    member: Member,
    report: &'a NodeReport,
    taken: &'a TakenSettings,
}

impl Node<'_> {
    fn has(&self, settings: &Settings) -> bool {
        self.taken.mark == settings.mark
    }

    fn refused(&self, settings: &Settings) -> bool {
        self.taken.refused.as_ref().is_some_and(|refused| refused.mark == settings.mark)
    }
}

pub(crate) fn steps(view: &ClusterView) -> Vec<Step> {
    let Some(settings) = &view.seen().settings else { return Vec::new() };
    let nodes = nodes(view, settings.release);
    let Target { settings: target, reason } = target(settings, &nodes);
    let behind = nodes.iter().filter(|node| !node.has(target) && !node.refused(target));
    let step = |node: &Node| {
        let action = Action::Configure { on: node.member, settings: target.clone() };
        Step { action, reason }
    };
    let is_untried = target.mark != settings.good.mark && !nodes.iter().any(|node| node.has(target));
    if is_untried {
        // A replica that something goes wrong with is missed by nobody.
        let first =
            behind.min_by_key(|node| (node.report.role == Role::Primary, view.is_outdated(node.member), node.member));
        return first
            .map(|node| Step { reason: "one node tries the new settings first", ..step(node) })
            .into_iter()
            .collect();
    }
    behind.map(step).collect()
}

/// How many servers have what they should; `None` if nobody is to be given anything.
pub(crate) fn progress(view: &ClusterView) -> Option<Progress> {
    if steps(view).is_empty() {
        return None;
    }
    let settings = view.seen().settings.as_ref()?;
    let nodes = nodes(view, settings.release);
    let Target { settings: target, reason: _ } = target(settings, &nodes);
    let (done, of) = (nodes.iter().filter(|node| node.has(target)).count(), nodes.len());
    let which =
        if target.mark == settings.wanted.mark { "the settings of the spec" } else { "the former settings again" };
    let message = format!("{done} of {of} nodes have {which}");
    Some(Progress { operation: Operation::Configuring, done, of, message, waiting_for: None, load: None })
}

struct Target<'a> {
    settings: &'a Settings,
    reason: &'static str,
}

fn target<'a>(settings: &'a WantedSettings, nodes: &[Node]) -> Target<'a> {
    let WantedSettings { wanted, good, refused, release: _ } = settings;
    let is_refused = refused.is_some() || nodes.iter().any(|node| node.refused(wanted));
    if is_refused {
        Target { settings: good, reason: "a node refused the new settings, so all keep the former ones" }
    } else {
        Target { settings: wanted, reason: "it has other settings than the spec asks for" }
    }
}

/// Not those that run another release and are about to be made anew: they may not know all of the settings. Nor those whose
/// sidecar is too old to be asked; they get theirs at their next start.
fn nodes<'a>(view: &ClusterView<'a>, release: Option<Release>) -> Vec<Node<'a>> {
    let fits = |report: &NodeReport| release.is_none_or(|release| release == Release::from(report.version));
    let staying = view.ready().filter(|(member, report)| !view.is_going(*member) && fits(report));
    staying.filter_map(|(member, report)| Some(Node { member, report, taken: report.settings.as_ref()? })).collect()
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
