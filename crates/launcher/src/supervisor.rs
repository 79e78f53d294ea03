//! Carries out what the lifecycle decides.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use nix::sys::prctl;

use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::lifecycle::{Action, Event, Phase};
use crate::log::{self, Level};
use crate::server::Server;
use crate::sidecar::Sidecar;
use crate::signals;

/// What the threads that wait for signals and for the sidecar have to say.
#[derive(Debug, PartialEq)]
pub enum Notice {
    StopAsked,
    ChildChanged,
    Allowed,
    /// The sidecar needs more time, for this reason.
    NotYet(String),
    HandedOver,
    SidecarLost,
}

#[derive(Debug)]
pub struct Supervisor {
    arguments: Arguments,
    sidecar: Sidecar,
    notices: Sender<Notice>,
    inbox: Receiver<Notice>,
    phase: Phase,
    server: Option<Server>,
    patience_ends: Option<Instant>,
    last_reason: Option<String>,
}

impl Supervisor {
    pub fn new(arguments: Arguments) -> io::Result<Self> {
        let (notices, inbox) = mpsc::channel();
        signals::forward(notices.clone())?;
        // Orphans come to us even where we are not the first process, as in a pod that shares its process table.
        prctl::set_child_subreaper(true)?;
        let sidecar = Sidecar::new(arguments.socket.clone());
        Ok(Self {
            arguments,
            sidecar,
            notices,
            inbox,
            phase: Phase::Asking,
            server: None,
            patience_ends: None,
            last_reason: None,
        })
    }

    pub fn run(mut self) -> io::Result<Exit> {
        self.sidecar.ask_to_start(self.arguments.program.clone(), self.notices.clone())?;
        loop {
            if let Phase::Over(exit) = self.phase {
                return Ok(exit);
            }
            let mut event = self.next_event();
            while let Some(happened) = event.take() {
                let (phase, action) = self.phase.after(happened);
                self.phase = phase;
                event = action.and_then(|action| self.carry_out(action, happened));
            }
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        match self.next_notice() {
            None => Some(Event::PatienceOver),
            Some(Notice::StopAsked) => Some(Event::StopAsked),
            Some(Notice::Allowed) => Some(Event::Allowed),
            Some(Notice::HandedOver) => Some(Event::HandedOver),
            Some(Notice::SidecarLost) => Some(Event::SidecarLost),
            Some(Notice::ChildChanged) => self.server.as_ref().and_then(Server::reap).map(Event::ServerGone),
            Some(Notice::NotYet(reason)) => {
                self.log_new_reason(reason);
                None
            }
        }
    }

    /// `None` when the time for a handover is up.
    fn next_notice(&mut self) -> Option<Notice> {
        let Some(end) = self.patience_ends else {
            return self.inbox.recv().ok(); // cannot end: we hold a sender ourselves
        };
        match self.inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(notice) => Some(notice),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.patience_ends = None;
                None
            }
        }
    }

    /// What came of it, if that is an event by itself.
    fn carry_out(&mut self, action: Action, because: Event) -> Option<Event> {
        match action {
            Action::StartServer => self.start_server(),
            Action::AskForHandover => {
                log::line(Level::Info, "asked to stop: asking the sidecar to hand over", &[]);
                self.patience_ends = Instant::now().checked_add(self.arguments.patience);
                let asked = self.sidecar.ask_to_stop(self.notices.clone());
                asked.is_err().then_some(Event::SidecarLost)
            }
            Action::TerminateServer => {
                self.patience_ends = None;
                log::line(Level::Info, "stopping the server", &[("because", &format!("{because:?}"))]);
                if let Some(Err(error)) = self.server.as_ref().map(Server::terminate) {
                    log::line(Level::Error, "the server cannot be told to stop", &[("error", &error.to_string())]);
                }
                None
            }
            Action::ReportExit(exit) => {
                log::line(Level::Info, "the server has ended", &[("exit", &exit.to_string())]);
                self.sidecar.tell_exit(exit);
                None
            }
        }
    }

    fn start_server(&mut self) -> Option<Event> {
        let program = self.arguments.program.display().to_string();
        match Server::start(&self.arguments.program, &self.arguments.parameters) {
            Ok(server) => {
                log::line(Level::Info, "starting the server", &[("program", &program)]);
                self.server = Some(server);
                None
            }
            Err(error) => {
                let fields = [("program", &*program), ("error", &error.to_string())];
                log::line(Level::Error, "cannot start the server: does the image have this program?", &fields);
                let missing = error.kind() == io::ErrorKind::NotFound;
                Some(Event::ServerGone(if missing { Exit::NOT_FOUND } else { Exit::NOT_RUNNABLE }))
            }
        }
    }

    fn log_new_reason(&mut self, reason: String) {
        if self.last_reason.as_ref() != Some(&reason) {
            let message =
                if self.server.is_some() { "the sidecar needs time" } else { "the sidecar holds the start back" };
            log::line(Level::Info, message, &[("reason", &reason)]);
            self.last_reason = Some(reason);
        }
    }
}
