use valkey_model::{Export, Exports, LocalData, NodeId, SlotSet, Version};

use super::*;

pub fn report() -> NodeReport {
    NodeReport {
        id: NodeId::from_bytes([1; 20]),
        address: "10.0.0.7:6379".parse().unwrap(),
        role: Role::Primary,
        primary: None,
        slots: SlotSet::all(),
        config_epoch: 1,
        current_epoch: 1,
        serving: true,
        loading: false,
        link: ReplicaLink::Down,
        offset: 0,
        keys: 0,
        memory: 0,
        max_memory: 0,
        version: Version::new(9, 1, 2),
        node_timeout: Duration::from_secs(5),
        peers: Vec::new(),
        exports: Exports::default(),
        settings: None,
    }
}

fn replica(link: ReplicaLink) -> NodeReport {
    NodeReport { role: Role::Replica, primary: Some(NodeId::from_bytes([2; 20])), link, ..report() }
}

fn up(report: NodeReport, last_reply: Instant) -> View {
    View { phase: Phase::Up { last_reply }, report: Some(Arc::new(report)), ..View::default() }
}

#[test]
fn only_a_server_that_fell_silent_is_not_alive() {
    let now = Instant::now();
    let held = Held { id: NodeId::from_bytes([1; 20]), slots: SlotSet::all(), data: LocalData::Gone };
    let held = Phase::Held { held, reason: HoldReason::ReplicaHasMore };
    for phase in [Phase::Unknown, held, Phase::Starting, Phase::Up { last_reply: now }] {
        assert_eq!(View { phase, ..View::default() }.live(now + SILENCE), Ok(()));
    }
    let later = now + SILENCE + Duration::from_millis(1);
    up(report(), now).live(later).unwrap_err();
    assert_eq!(View { phase: Phase::Starting, ..View::default() }.live(later), Ok(()));
}

#[test]
fn a_server_is_ready_when_it_can_serve_itself() {
    let now = Instant::now();
    assert_eq!(up(report(), now).ready(now), Ok(()));
    assert_eq!(up(replica(ReplicaLink::Up), now).ready(now), Ok(()));
    assert_eq!(up(NodeReport { serving: false, ..replica(ReplicaLink::Up) }, now).ready(now), Ok(()));
    for view in [
        View::default(),
        View { phase: Phase::Starting, ..View::default() },
        View { phase: Phase::Up { last_reply: now }, ..View::default() },
        up(NodeReport { serving: false, ..report() }, now),
        up(NodeReport { loading: true, ..report() }, now),
        up(replica(ReplicaLink::Down), now),
        up(replica(ReplicaLink::Syncing), now),
    ] {
        view.ready(now).unwrap_err();
    }
    up(report(), now).ready(now + SILENCE * 2).unwrap_err();
}

#[test]
fn news_are_what_changed_and_nothing_else() {
    let now = Instant::now();
    let news = |before: View, after: NodeReport| before.after_reply(Some(after), now).1;
    assert_eq!(news(View::default(), report()), [Event::ServerUp]);
    assert_eq!(news(View { phase: Phase::Starting, ..View::default() }, report()), [Event::ServerUp]);
    assert_eq!(news(up(report(), now), report()), []);
    assert_eq!(news(up(report(), now), NodeReport { offset: 9, keys: 3, ..report() }), []);
    assert_eq!(news(up(report(), now), NodeReport { serving: false, ..report() }), [Event::StateChanged]);
    let export = Export { slots: SlotSet::all(), to: NodeId::from_bytes([2; 20]) };
    let moving = NodeReport { exports: Exports { running: vec![export], ..Exports::default() }, ..report() };
    assert_eq!(news(up(report(), now), moving.clone()), []);
    assert_eq!(news(up(moving, now), report()), [Event::StateChanged]);
    // A move that nobody saw run.
    assert_eq!(news(up(report(), now), NodeReport { slots: SlotSet::EMPTY, ..report() }), [Event::StateChanged]);
    assert_eq!(news(up(replica(ReplicaLink::Up), now), report()), [Event::RoleChanged]);
    assert_eq!(news(up(replica(ReplicaLink::Up), now), replica(ReplicaLink::Down)), [Event::LinkChanged]);
}

#[test]
fn a_reply_without_a_report_is_a_sign_of_life() {
    let now = Instant::now();
    let (view, news) = View::default().after_reply(None, now);
    assert_eq!((view.live(now), news.as_slice()), (Ok(()), [Event::ServerUp].as_slice()));
    view.ready(now).unwrap_err();
}

#[test]
fn a_reply_that_comes_after_the_end_is_none() {
    let board = Board::default();
    let life = board.view().life;
    assert_eq!(board.replied(life, Some(report())), [Event::ServerUp]);
    board.set(Phase::Unknown);
    assert_eq!(board.replied(life, Some(report())), []);
    assert_eq!(board.view().phase, Phase::Unknown);
}

#[test]
fn one_that_has_led_stays_a_moment_for_those_who_have_not_heard_it() {
    let start = Instant::now();
    let second = |n| start + Duration::from_secs(n);
    let follows = || Some(replica(ReplicaLink::Up));
    let (leading, _) = View::default().after_reply(Some(report()), start);
    assert_eq!(leading.farewell(second(9)), FAREWELL, "it led when it was last looked at");
    let (resigned, _) = leading.after_reply(follows(), second(9));
    assert_eq!(resigned.farewell(second(9)), FAREWELL);
    let (resigned, _) = resigned.after_reply(follows(), second(10));
    assert_eq!(resigned.farewell(second(10)), Duration::ZERO, "it told them for long enough");
    let (following, _) = View::default().after_reply(follows(), start);
    assert_eq!(following.farewell(start), Duration::ZERO, "it never led");
}
