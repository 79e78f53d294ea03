//! Where the launcher asks: lines of text, one request per connection.
//!
//! | it says | we answer |
//! |---|---|
//! | `start` or `start <version>` | any number of `hold <reason>`, then `go` |
//! | `stop` | `done` when mastership is handed over or nobody can take it |
//! | `exited <code>` or `exited signal <number>` | nothing |

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;
use tracing::{info, warn};
use valkey_model::Version;
use valkey_rpc::Event;

use crate::context::Context;
use crate::files::named;
use crate::guard::Guard;
use crate::handover::hand_over;
use crate::view::Phase;

const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Added to the number of a signal, as a shell does.
const BY_SIGNAL: i32 = 128;

pub fn bind(context: &Context) -> io::Result<UnixListener> {
    let path = context.run.launcher_socket();
    let _ = std::fs::remove_file(&path); // left behind by one of us that was killed
    UnixListener::bind(&path).map_err(|error| named(&path, &error))
}

pub async fn listen(listener: UnixListener, context: Arc<Context>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let context = context.clone();
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, &context).await {
                        info!(%error, "the launcher went away");
                    }
                });
            }
            Err(error) => {
                warn!(%error, "the launcher cannot be heard");
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Start(Option<Version>),
    Stop,
    Exited(i32),
}

impl Request {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["start"] => Some(Self::Start(None)),
            ["start", version] => Some(Self::Start(version.parse().ok())),
            ["stop"] => Some(Self::Stop),
            ["exited", code] => Some(Self::Exited(code.parse().ok()?)),
            ["exited", "signal", number] => Some(Self::Exited(number.parse::<i32>().ok()?.checked_add(BY_SIGNAL)?)),
            _ => None,
        }
    }
}

async fn converse(stream: UnixStream, context: &Context) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    match Request::parse(&line) {
        Some(Request::Start(version)) => {
            context.now_of_version(version);
            let started = start(&mut stream, context).await;
            if started.is_err() {
                context.board.set(Phase::Unknown); // whoever was held is gone
            }
            started
        }
        Some(Request::Stop) => {
            context.outbox.send(Event::Stopping);
            hand_over(context).await;
            say(&mut stream, "done").await
        }
        Some(Request::Exited(code)) => {
            info!(code, "the server ended");
            context.board.set(Phase::Unknown);
            context.outbox.send(Event::ServerExited { code });
            hold_in_advance(context).await;
            Ok(())
        }
        None => {
            warn!(line, "the launcher said something unknown: is it of another version?");
            Ok(())
        }
    }
}

/// Kubernetes may start the container again only after minutes. If the server would be held then, it is held from now on: it
/// cannot start without our word, so its shard need not wait for it.
async fn hold_in_advance(context: &Context) {
    if let Err(error) = Guard::new(context).ask().await {
        info!(%error, "whether the server will be held cannot be said yet");
    }
}

/// Answers when the server may start, and everything that it will read is in place.
async fn start(stream: &mut BufReader<UnixStream>, context: &Context) -> io::Result<()> {
    let mut guard = Guard::new(context);
    loop {
        let obstacle = match guard.ask().await {
            Ok(None) => match context.run.prepare(&context.mounts, &context.pod, &context.data) {
                Ok(prepared) => {
                    context.now_in_use(prepared);
                    context.settings.read(&context.run);
                    context.board.set(Phase::Starting);
                    say(stream, "go").await?;
                    context.outbox.send(Event::ServerStarted);
                    return Ok(());
                }
                Err(error) => error.to_string(),
            },
            Ok(Some(reason)) => reason.to_string(),
            Err(error) => error.to_string(),
        };
        say(stream, &format!("hold {obstacle}")).await?;
        guard.pause().await;
    }
}

async fn say(stream: &mut BufReader<UnixStream>, line: &str) -> io::Result<()> {
    stream.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes()).await
}

#[cfg(test)]
#[path = "launcher_socket_tests.rs"]
mod tests;
