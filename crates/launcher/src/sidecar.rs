//! The sidecar's ear: a unix socket, lines of text, one request per connection.
//!
//! | we say | the sidecar answers |
//! |---|---|
//! | `start` or `start <version>` | any number of `hold <reason>`, then `go` |
//! | `stop` | any number of `wait <reason>`, then `done` |
//! | `exited <code>` or `exited signal <number>` | nothing |

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::Exit;
use crate::log::{self, Level};
use crate::supervisor::Notice;
use crate::version;

const RETRY: Duration = Duration::from_millis(50);
const REMIND: Duration = Duration::from_secs(10);
/// How long a sidecar that cannot be reached may delay the end of a server.
const REACH: Duration = Duration::from_secs(1);
/// How long the news of a server's end may delay our own.
const TELL: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub struct Sidecar {
    socket: PathBuf,
}

impl Sidecar {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Asks until the answer is `go`, for ever: a server that starts without it may be a second primary.
    pub fn ask_to_start(&self, program: OsString, notices: Sender<Notice>) -> io::Result<()> {
        let sidecar = self.clone();
        in_background("start", move || {
            let version = version::of(&program);
            let request = version.map_or_else(|| "start".to_owned(), |version| format!("start {version}"));
            let mut reminder = Reminder::default();
            loop {
                match sidecar.converse(Question::Start, &request, &notices) {
                    Ok(()) => return,
                    Err(error) => reminder.unreachable(&sidecar.socket, &error),
                }
                thread::sleep(RETRY);
            }
        })
    }

    /// Asks for a handover. Gives up, and says so, when the sidecar could not be reached for a while.
    pub fn ask_to_stop(&self, notices: Sender<Notice>) -> io::Result<()> {
        let sidecar = self.clone();
        in_background("stop", move || {
            let mut tried_since = Instant::now();
            loop {
                match sidecar.converse(Question::Stop, "stop", &notices) {
                    Ok(()) => return,
                    Err(Broken::Answering(_)) => tried_since = Instant::now(),
                    Err(Broken::Connecting(error)) if tried_since.elapsed() >= REACH => {
                        let fields = [("socket", &*sidecar.socket.to_string_lossy()), ("error", &error.to_string())];
                        log::line(Level::Warn, "the sidecar cannot be reached: no handover", &fields);
                        let _ = notices.send(Notice::SidecarLost); // no listener means that we are ending already
                        return;
                    }
                    Err(Broken::Connecting(_)) => {}
                }
                thread::sleep(RETRY);
            }
        })
    }

    /// Tells how the server ended, if the sidecar listens right now.
    pub fn tell_exit(&self, exit: Exit) {
        let socket = self.socket.clone();
        let (told, wait) = mpsc::channel();
        let tell = move || {
            let _ = UnixStream::connect(socket).and_then(|mut stream| writeln!(stream, "exited {exit}"));
            let _ = told.send(());
        };
        if in_background("exited", tell).is_ok() {
            let _ = wait.recv_timeout(TELL); // best effort: the sidecar sees the server's end by itself as well
        }
    }

    /// One connection, up to the final answer.
    fn converse(&self, question: Question, request: &str, notices: &Sender<Notice>) -> Result<(), Broken> {
        let mut stream = UnixStream::connect(&self.socket).map_err(Broken::Connecting)?;
        writeln!(stream, "{request}").map_err(Broken::Answering)?;
        for line in BufReader::new(stream).lines() {
            let line = line.map_err(Broken::Answering)?;
            match question.understand(&line) {
                Some(Answer::Final(notice)) => {
                    let _ = notices.send(notice); // no listener means that we are ending already
                    return Ok(());
                }
                Some(Answer::NotYet(reason)) => {
                    let _ = notices.send(Notice::NotYet(reason.into()));
                }
                None => log::line(Level::Warn, "the sidecar said something unknown: ignored", &[("line", &line)]),
            }
        }
        Err(Broken::Answering(io::ErrorKind::UnexpectedEof.into()))
    }
}

#[derive(Clone, Copy, Debug)]
enum Question {
    Start,
    Stop,
}

#[derive(Debug, PartialEq)]
enum Answer<'a> {
    NotYet(&'a str),
    Final(Notice),
}

impl Question {
    fn understand(self, line: &str) -> Option<Answer<'_>> {
        let (word, reason) = line.split_once(' ').unwrap_or((line, ""));
        match (self, word, reason) {
            (Self::Start, "go", "") => Some(Answer::Final(Notice::Allowed)),
            (Self::Stop, "done", "") => Some(Answer::Final(Notice::HandedOver)),
            (Self::Start, "hold", reason) | (Self::Stop, "wait", reason) => Some(Answer::NotYet(reason)),
            _ => None,
        }
    }
}

/// Where a conversation broke: only a sidecar that cannot be reached at all is given up on.
#[derive(Debug)]
enum Broken {
    Connecting(io::Error),
    Answering(io::Error),
}

/// Says that the sidecar is away at once, and then from time to time.
#[derive(Debug, Default)]
struct Reminder {
    last: Option<Instant>,
}

impl Reminder {
    fn unreachable(&mut self, socket: &Path, broken: &Broken) {
        if self.last.is_some_and(|last| last.elapsed() < REMIND) {
            return;
        }
        self.last = Some(Instant::now());
        let (message, error) = match broken {
            Broken::Connecting(error) => ("waiting for the sidecar to listen", error),
            Broken::Answering(error) => ("the sidecar went away before it let the server start: asking again", error),
        };
        log::line(Level::Info, message, &[("socket", &socket.to_string_lossy()), ("error", &error.to_string())]);
    }
}

/// Whoever talks to the sidecar may block for as long as it likes: signals and the server are looked after elsewhere.
fn in_background(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_word_lets_the_server_start() {
        assert_eq!(Question::Start.understand("go"), Some(Answer::Final(Notice::Allowed)));
        for line in ["", "GO", "go ahead", " go", "gone", "done", "wait for it", "hold"] {
            let understood = Question::Start.understand(line);
            assert!(!matches!(understood, Some(Answer::Final(_))), "{line:?}: {understood:?}");
        }
    }

    #[test]
    fn a_reason_may_have_many_words() {
        assert_eq!(
            Question::Start.understand("hold primary is still alive"),
            Some(Answer::NotYet("primary is still alive"))
        );
        assert_eq!(Question::Stop.understand("wait offset 12"), Some(Answer::NotYet("offset 12")));
        assert_eq!(Question::Stop.understand("hold x"), None);
    }
}
