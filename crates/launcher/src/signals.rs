use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::supervisor::Notice;

/// Keeps the signals that matter from acting on this process, and forwards them as notices.
///
/// To be called before any other thread exists: a thread takes its mask from the one that starts it, and one thread
/// without the mask would be enough for a SIGTERM to end the launcher and orphan the server.
pub fn forward(notices: Sender<Notice>) -> io::Result<()> {
    let ours: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().collect();
    ours.thread_block()?;
    let forward = move || {
        loop {
            let notice = match ours.wait() {
                Ok(Signal::SIGCHLD) => Notice::ChildChanged,
                Ok(_) => Notice::StopAsked,
                Err(_) => continue, // interrupted: nothing has come
            };
            if notices.send(notice).is_err() {
                return; // nobody listens any more: the process is about to end
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(forward).map(drop)
}
