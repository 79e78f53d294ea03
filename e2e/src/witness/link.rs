//! A cluster client with the patience of a normal application.
//!
//! The library follows redirections and retries on its own for a moment. What it does not do is look at the slot map
//! again when a node falls silent without closing its connections; an application would time out and reconnect, so
//! this does too, until its patience ends.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value, cmd};
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::slots::{Owner, owners};
use crate::endpoint::{Endpoint, Host};

/// How long one attempt may take. Longer than any pause that we want to measure to the millisecond.
const ATTEMPT: Duration = Duration::from_secs(1);
/// How long to wait between two attempts of ours.
const BREATH: Duration = Duration::from_millis(20);
/// How long a new connection to the whole cluster may take, dead nodes included.
const RENEWAL: Duration = Duration::from_secs(3);
/// A write that took longer than this may have been sent more than once, whatever the reason was.
const SUSPICIOUS: Duration = Duration::from_millis(250);

/// Every address at which a node of the cluster has been seen last. Pods change theirs; whoever reconnects must not
/// depend on the ones from the start.
#[derive(Debug, Default)]
pub struct Atlas(Mutex<Vec<Host>>);

impl Atlas {
    fn known(&self, first: &[Host]) -> Vec<Host> {
        let learned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: BTreeSet<_> = first.iter().chain(learned.iter()).cloned().collect();
        all.into_iter().collect()
    }

    fn learn(&self, owners: &[Owner]) {
        let seen: Vec<_> = owners.iter().filter_map(|owner| owner.address.parse().ok()).collect();
        if !seen.is_empty() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
    }
}

/// One client of the cluster. A shard's writers share one and other shards have their own, because the library holds
/// everything back while it looks at the slot map: a pause of one shard must not show in another.
#[derive(Debug)]
pub struct Link {
    endpoint: Arc<Endpoint>,
    atlas: Arc<Atlas>,
    patience: Duration,
    current: RwLock<Current>,
}

struct Current {
    /// Counts the renewals, so that of several writers who fail together only one reconnects.
    edition: u64,
    connection: ClusterConnection,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("edition", &self.edition).finish_non_exhaustive()
    }
}

/// An answer, and what it took to get it.
#[derive(Debug)]
pub struct Answer {
    pub value: Value,
    pub took: Duration,
    pub attempts: u32,
}

impl Answer {
    /// Whether the command may have been sent more than once, by us or by the library.
    pub fn perhaps_sent_again(&self) -> bool {
        self.attempts > 1 || self.took > SUSPICIOUS
    }
}

/// No answer within the patience.
#[derive(Debug)]
pub struct Failure {
    pub last_error: String,
    pub took: Duration,
    pub attempts: u32,
}

impl Link {
    pub async fn open(endpoint: Arc<Endpoint>, atlas: Arc<Atlas>, patience: Duration) -> Result<Self> {
        let seeds = atlas.known(&endpoint.seeds);
        // An application that starts tries for as long as it would later on.
        let end = Instant::now() + patience;
        let connection = loop {
            match connect(&endpoint, &seeds).await {
                Ok(connection) => break connection,
                Err(error) if Instant::now() > end || error.kind() == ErrorKind::AuthenticationFailed => {
                    return Err(error).with_context(|| format!("no cluster client can be made for {seeds:?}"));
                }
                Err(_) => sleep(BREATH).await,
            }
        };
        Ok(Self { endpoint, atlas, patience, current: RwLock::new(Current { edition: 0, connection }) })
    }

    /// Sends a command until it is answered or patience ends.
    pub async fn call(&self, command: &Cmd) -> Result<Answer, Failure> {
        let begun = Instant::now();
        let mut attempts = 0;
        let mut last_error = String::from("no answer");
        let trying = async {
            loop {
                attempts += 1;
                let (edition, mut connection) = self.current().await;
                match timeout(ATTEMPT, connection.req_packed_command(command)).await {
                    Ok(Ok(value)) => match value.extract_error() {
                        Ok(value) => return value,
                        Err(error) => last_error = describe(&error),
                    },
                    Ok(Err(error)) => last_error = describe(&error),
                    Err(_) => last_error = format!("no answer within {ATTEMPT:?}"),
                }
                sleep(BREATH).await;
                self.renew(edition).await;
            }
        };
        match timeout_at(begun + self.patience, trying).await {
            Ok(value) => Ok(Answer { value, took: begun.elapsed(), attempts }),
            Err(_) => Err(Failure { last_error, took: begun.elapsed(), attempts }),
        }
    }

    /// Who owns which slot, asked from any node.
    pub async fn owners(&self) -> Result<Vec<Owner>> {
        let answer = self.call(cmd("CLUSTER").arg("SLOTS")).await;
        let answer = answer.map_err(|failure| anyhow::anyhow!("CLUSTER SLOTS: {}", failure.last_error))?;
        let owners = owners(&answer.value)?;
        self.atlas.learn(&owners);
        Ok(owners)
    }

    async fn current(&self) -> (u64, ClusterConnection) {
        let current = self.current.read().await;
        (current.edition, current.connection.clone())
    }

    async fn renew(&self, seen: u64) {
        let mut current = self.current.write().await;
        if current.edition != seen {
            return;
        }
        let seeds = self.atlas.known(&self.endpoint.seeds);
        if let Ok(Ok(connection)) = timeout(RENEWAL, connect(&self.endpoint, &seeds)).await {
            *current = Current { edition: seen + 1, connection };
        }
    }
}

async fn connect(endpoint: &Endpoint, seeds: &[Host]) -> RedisResult<ClusterConnection> {
    let builder = endpoint.cluster(seeds).response_timeout(ATTEMPT);
    // The library's own waits start at 1.3 s, which no application that cares would keep.
    let builder = builder.retries(16).min_retry_wait(5).max_retry_wait(50).retry_wait_formula(5, 2);
    builder.build()?.get_async_connection().await
}

fn describe(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
