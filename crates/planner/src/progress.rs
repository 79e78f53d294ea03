//! What a human is told about the way from here to a healthy cluster, and when to look again.

use std::time::Duration;

use valkey_model::{Action, Blemish, Member, NodeReport, Role, Sighting};

use crate::change::{Deed, Intents};
use crate::formation::Heads;
use crate::introductions::{Stranger, strangers};
use crate::measure::{failures, measure, operation};
use crate::scaling::{ALARMING, left_to_do};
use crate::settle::is_news;
use crate::takeover::Succession;
use crate::view::ClusterView;
use crate::{Operation, Progress, State};

/// Gossip answers within this time when nodes meet.
const FORMING: Duration = Duration::from_millis(100);
const HEALING: Duration = Duration::from_millis(500);
/// The sources of slots tell when they are through; this is for what people are told meanwhile.
const MOVING: Duration = Duration::from_millis(500);
/// Pods come and go with events; this is for what has none.
pub(crate) const CHANGING: Duration = Duration::from_millis(500);
/// Whoever evicts pods comes again after some seconds, and may never come.
const EVICTING: Duration = Duration::from_secs(5);
/// Votes, loading and copying take seconds.
const PATIENT: Duration = Duration::from_secs(1);
/// A server that does not answer costs a time-out with every look.
const UNANSWERED: Duration = Duration::from_secs(2);
/// Only a human can help, but he need not tell us that he did.
const STUCK: Duration = Duration::from_secs(10);

/// Whether this plan does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Acting,
    Idle,
}

/// What a plan is made of, as far as it is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story<'a> {
    pub view: &'a ClusterView<'a>,
    pub heads: &'a Heads<'a>,
    pub blemishes: &'a [Blemish],
    pub successions: &'a [Succession],
    pub repairs: Activity,
    pub intents: &'a Intents,
    pub deed: Option<&'a Deed>,
}

/// Where a cluster stands, and when to look again.
pub(crate) fn report(story: Story) -> (State, Option<Duration>) {
    let Story { view, heads, blemishes, successions: _, repairs, intents, deed } = story;
    let operation = operation(view, heads, blemishes, deed);
    let progress = with_details(story, measure(view, heads, operation, blemishes));
    let gossip = gossip(operation);
    let ill = blemishes.iter().any(|blemish| !is_news(view, blemish));
    let moving = view.live().any(|(_, report)| !report.exports.running.is_empty());
    if repairs == Activity::Acting {
        return (State::Working(progress), Some(gossip));
    }
    if let Some(deed) = deed {
        let begins_moves = deed.steps.iter().any(|step| matches!(step.action, Action::Migrate { .. }));
        return (alarmed(view, State::Working(progress)), Some(if begins_moves { MOVING } else { CHANGING }));
    }
    if ill && !moving {
        return waiting(story, progress);
    }
    if moving {
        return (alarmed(view, State::Working(progress)), Some(MOVING));
    }
    if let Some((operation, why)) = intents.refusal() {
        return (State::Stuck(Progress { operation, message: why.to_owned(), ..progress }), Some(STUCK));
    }
    if let Some((operation, on)) = intents.wait() {
        let told = with_details(story, measure(view, heads, operation, blemishes));
        let waiting = State::Waiting(Progress { waiting_for: Some(on.to_owned()), ..told });
        let opened = operation == Operation::Draining && !intents.drain.let_go.is_empty();
        let again = if opened { EVICTING } else { CHANGING };
        return (alarmed(view, waiting), Some(again));
    }
    // A pod that has ended is still an object for a moment.
    let ending = view.seen().going.iter().copied().find(|member| !view.desired.wants(*member));
    if let Some(member) = view.leaving().next().map(|(member, _)| member).or(ending) {
        let told = measure(view, heads, Operation::Scaling, blemishes);
        let on = format!("pod {} to end", view.pod(member));
        return (State::Waiting(Progress { waiting_for: Some(on), ..told }), Some(CHANGING));
    }
    if let Some(why) = intents.held() {
        let told = measure(view, heads, Operation::Rolling, blemishes);
        return (State::Waiting(Progress { waiting_for: Some(why.to_owned()), ..told }), None);
    }
    // It may answer until its last moment, as if nothing were.
    if let Some(member) = view.seen().going.iter().copied().find(|member| view.desired.wants(*member)) {
        let told = measure(view, heads, Operation::Rolling, blemishes);
        let on = format!("pod {} to be made anew", view.pod(member));
        return (State::Waiting(Progress { waiting_for: Some(on), ..told }), Some(CHANGING));
    }
    if blemishes.is_empty() {
        return (State::Healthy, None);
    }
    (State::Waiting(Progress { waiting_for: Some(NEWS.to_owned()), ..progress }), Some(gossip))
}

/// Moves of slots that fail again and again are tried on, but a human should look at them (F21).
fn alarmed(view: &ClusterView, state: State) -> State {
    let alarming = failures(view).is_some_and(|(count, _)| count >= ALARMING);
    match state {
        State::Working(progress) | State::Waiting(progress) if alarming && progress.operation == Operation::Scaling => {
            State::Stuck(progress)
        }
        state => state,
    }
}

/// Adds what is done at this moment, and what has to wait for it.
fn with_details(story: Story, progress: Progress) -> Progress {
    let Story { view, heads, intents, deed, .. } = story;
    let goes = view.wanted().find(|(member, _)| view.is_going(*member)).map(|(member, _)| member);
    let replaced = deed.and_then(|deed| deed.replaced).map(|replaced| replaced.member).or(goes);
    let handed_over = deed.into_iter().flat_map(|deed| &deed.steps).find_map(|step| match step.action {
        Action::HandOver { on } => Some(on),
        _ => None,
    });
    let outdated = view.wanted().filter(|(member, _)| view.is_outdated(*member)).count();
    let misplaced = left_to_do(view, heads).misplaced();
    let doing = match (progress.operation, replaced, handed_over) {
        (Operation::Rolling, Some(member), _) if outdated > 0 => Some(format!(", replacing {}", view.pod(member))),
        (Operation::Rolling | Operation::Switching | Operation::Scaling, _, Some(member)) => {
            Some(format!(", shard {} is handed over to {}", member.shard, view.pod(member)))
        }
        _ => None,
    };
    let waiting = match progress.operation {
        Operation::Scaling | Operation::Draining if outdated > 0 => {
            Some(format!("; {outdated} outdated pods wait for it"))
        }
        Operation::Rolling | Operation::Switching if misplaced > 0 => {
            Some(format!("; {misplaced} slots wait to be moved"))
        }
        _ => None,
    };
    let open = intents.drain.let_go.iter().next().map(|member| format!("; pod {} may be evicted", view.pod(*member)));
    let details = [doing, waiting, open].into_iter().flatten();
    Progress { message: std::iter::once(progress.message).chain(details).collect(), ..progress }
}

/// How soon news that are on their way to other nodes can be there.
fn gossip(operation: Operation) -> Duration {
    if matches!(operation, Operation::Forming | Operation::Scaling) { FORMING } else { HEALING }
}

const NEWS: &str = "the news to reach every node";

/// Nothing can be done but to wait until somebody is well again, or until a human helps.
fn waiting(story: Story, mut progress: Progress) -> (State, Option<Duration>) {
    let Story { view, blemishes, successions, .. } = story;
    let gossip = gossip(progress.operation);
    let succession = successions.iter().find_map(|succession| match succession {
        Succession::Wait { on } => Some(on.clone()),
        Succession::Act { .. } => None,
    });
    let absent = view.members().find_map(|(member, sighting)| absence(&view.pod(member), sighting));
    if let Some(advice) = advice(view).filter(|_| succession.is_none()) {
        progress.message = advice;
        return (State::Stuck(progress), Some(STUCK));
    }
    let copying = blemishes.iter().any(|b| matches!(b, Blemish::Loading(_) | Blemish::Syncing(_)));
    // A new shard has no primary yet; it gets one as soon as its members have met.
    let ill = progress.operation == Operation::Healing;
    let headless = ill && blemishes.iter().any(|b| matches!(b, Blemish::Headless(_)));
    let again = match &absent {
        _ if succession.is_some() || copying || headless => Some(PATIENT),
        Some((_, Absence::Silent)) => Some(UNANSWERED),
        Some((_, Absence::Pod)) => None, // the pod's next event wakes us
        None => Some(gossip),
    };
    let first = blemishes.iter().find(|blemish| !is_news(view, blemish));
    progress.waiting_for =
        succession.or(absent.map(|(what, _)| what)).or_else(|| first.map(|blemish| on_its_way(view, blemish)));
    (State::Waiting(progress), again)
}

enum Absence {
    Pod,
    Silent,
}

fn absence(pod: &str, sighting: &Sighting) -> Option<(String, Absence)> {
    match sighting {
        Sighting::Missing => Some((format!("pod {pod} to be created"), Absence::Pod)),
        Sighting::Starting => Some((format!("pod {pod} to start"), Absence::Pod)),
        Sighting::Unreachable => Some((format!("{pod} to answer"), Absence::Silent)),
        Sighting::Held(_) | Sighting::Known(_) => None,
    }
}

pub(crate) fn on_its_way(view: &ClusterView, blemish: &Blemish) -> String {
    let pod = |member: &Member| view.pod(*member);
    match blemish {
        Blemish::Loading(member) => format!("{} to load its data", pod(member)),
        Blemish::Syncing(member) => format!("{} to copy its primary's data", pod(member)),
        Blemish::LinkDown(member) => format!("{} to reach its primary", pod(member)),
        Blemish::Missing(member) | Blemish::Starting(member) => format!("pod {} to start", pod(member)),
        Blemish::Unreachable(member) => format!("{} to answer", pod(member)),
        _ => NEWS.to_owned(),
    }
}

/// What a human has to do where nothing will change by itself.
fn advice(view: &ClusterView) -> Option<String> {
    if let Some((member, _)) = strangers(view).iter().find(|(_, stranger)| *stranger == Stranger::Surely) {
        return Some(format!(
            "the server of pod {} belongs to another cluster: it knows other nodes, but none of this one. Find out \
             whose data it has, then delete the pod together with its volume",
            view.pod(*member)
        ));
    }
    let keeps = |r: &NodeReport| r.role == Role::Primary && r.slots.is_empty() && r.keys > 0 && !view.is_awaited(r.id);
    let keeper = view.ready().find(|(_, report)| keeps(report));
    if let Some((member, report)) = keeper {
        return Some(format!(
            "the server of pod {} has {} keys, but no slots, so it cannot become a replica without losing them. Save \
             what you need from it, then delete the pod together with its volume",
            view.pod(member),
            report.keys
        ));
    }
    view.shards().find_map(|shard| shard_advice(view, shard))
}

fn shard_advice(view: &ClusterView, shard: valkey_model::ShardIndex) -> Option<String> {
    let leaders = view.leaders(shard);
    let newest = leaders.iter().max_by_key(|(_, report)| report.config_epoch);
    if newest.is_some_and(|(_, n)| leaders.iter().any(|(_, rival)| !rival.slots.intersects(&n.slots))) {
        let names: Vec<_> = leaders.iter().map(|(member, _)| view.pod(*member)).collect();
        return Some(format!(
            "shard {shard} has slots at more than one primary: {}. Move the slots of all but one to that one",
            names.join(", ")
        ));
    }
    None
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
