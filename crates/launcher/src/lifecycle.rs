//! The life of a launcher, as one total function. No process, no socket, no clock.

use crate::exit::Exit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Asking the sidecar whether the server may start. Nothing runs.
    Asking,
    Running,
    /// The pod must go: the sidecar hands mastership over while the server goes on serving.
    HandingOver,
    /// The server was told to stop. It is never killed from here: it may be writing its data to disk.
    Stopping,
    Over(Exit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Allowed,
    StopAsked,
    HandedOver,
    SidecarLost,
    PatienceOver,
    ServerGone(Exit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    StartServer,
    AskForHandover,
    TerminateServer,
    ReportExit(Exit),
}

impl Phase {
    pub fn after(self, event: Event) -> (Self, Option<Action>) {
        use Event::{Allowed, HandedOver, PatienceOver, ServerGone, SidecarLost, StopAsked};
        match (self, event) {
            (Self::Asking, Allowed) => (Self::Running, Some(Action::StartServer)),
            (Self::Asking, StopAsked) => (Self::Over(Exit::CLEAN), None), // nothing was started
            (Self::Running, StopAsked) => (Self::HandingOver, Some(Action::AskForHandover)),
            // Whoever asks a second time does not want to wait.
            (Self::HandingOver, HandedOver | SidecarLost | PatienceOver | StopAsked) => {
                (Self::Stopping, Some(Action::TerminateServer))
            }
            (Self::Running | Self::HandingOver | Self::Stopping, ServerGone(exit)) => {
                (Self::Over(exit), Some(Action::ReportExit(exit)))
            }
            // An answer that comes too late changes nothing.
            (phase, _) => (phase, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 6] = [
        Event::Allowed,
        Event::StopAsked,
        Event::HandedOver,
        Event::SidecarLost,
        Event::PatienceOver,
        Event::ServerGone(Exit::Signal(9)),
    ];

    /// Every sequence of six events, from the start.
    fn every_life(mut check: impl FnMut(&[(Phase, Event, Option<Action>)])) {
        let count = EVENTS.len();
        for number in 0..count.pow(6) {
            let mut phase = Phase::Asking;
            let life: Vec<_> = (0..6_u32)
                .map(|place| {
                    let event = EVENTS[number / count.pow(place) % count];
                    let (next, action) = phase.after(event);
                    let step = (phase, event, action);
                    phase = next;
                    step
                })
                .collect();
            check(&life);
        }
    }

    #[test]
    fn the_server_starts_at_most_once_and_only_when_allowed() {
        every_life(|life| {
            let starts: Vec<_> = life.iter().filter(|(_, _, action)| *action == Some(Action::StartServer)).collect();
            assert!(starts.len() <= 1, "{life:?}");
            assert!(starts.iter().all(|(_, event, _)| *event == Event::Allowed), "{life:?}");
        });
    }

    #[test]
    fn the_server_is_stopped_only_after_a_handover_was_asked_for() {
        every_life(|life| {
            let at = |wanted| life.iter().position(|(_, _, action)| *action == Some(wanted));
            if let Some(stop) = at(Action::TerminateServer) {
                assert!(at(Action::AskForHandover).is_some_and(|asked| asked < stop), "{life:?}");
            }
        });
    }

    #[test]
    fn nothing_happens_after_the_end() {
        for event in EVENTS {
            let over = Phase::Over(Exit::Code(3));
            assert_eq!(over.after(event), (over, None));
        }
    }

    #[test]
    fn the_servers_end_is_the_end_whenever_it_comes() {
        for phase in [Phase::Running, Phase::HandingOver, Phase::Stopping] {
            let exit = Exit::Signal(11);
            assert_eq!(phase.after(Event::ServerGone(exit)), (Phase::Over(exit), Some(Action::ReportExit(exit))));
        }
    }

    #[test]
    fn a_second_wish_to_stop_skips_the_wait_and_a_third_changes_nothing() {
        assert_eq!(Phase::HandingOver.after(Event::StopAsked), (Phase::Stopping, Some(Action::TerminateServer)));
        assert_eq!(Phase::Stopping.after(Event::StopAsked), (Phase::Stopping, None));
    }
}
