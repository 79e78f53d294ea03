//! Commands that one server carries out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, Value, cmd, pipe};
use tokio::time::timeout;
use valkey_model::{NodeId, NodeReport, Role, SlotSet, Version};

use crate::connect::{Login, Route, connect};
use crate::error::Error;
use crate::info::{Info, InfoError};
use crate::migrations::{Migration, migrations};
use crate::nodes_table::Table;
use crate::observe::{Answers, ObserveError, report, version};

/// Longer than any of these commands takes on a server that is not stuck.
pub const DEADLINE: Duration = Duration::from_secs(1);
/// The first that moves slots by itself. Older ones must not be asked about it: they would count an error each time.
const MOVES_SLOTS: Version = Version::new(9, 0, 0);

/// A connection to one server. Cheap to clone; clones share the connection. A broken one stays broken: connect again.
#[derive(Clone, Debug)]
pub struct Node {
    connection: MultiplexedConnection,
    deadline: Duration,
}

impl Node {
    pub async fn connect(route: Route<'_>, login: &Login) -> Result<Self, Error> {
        Self::connect_within(DEADLINE, route, login).await
    }

    /// `deadline` is for connecting, and later for each command.
    pub async fn connect_within(deadline: Duration, route: Route<'_>, login: &Login) -> Result<Self, Error> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = timeout(deadline, connect(route, login, config)).await;
        Ok(Self { connection: connection.map_err(|_| Error::Deadline(deadline))??, deadline })
    }

    /// All about this server, in one round trip, and a second one if it knows how to move slots by itself. `address` is where
    /// peers reach it.
    pub async fn observe(&mut self, address: SocketAddr) -> Result<NodeReport, Error> {
        let mut questions = pipe();
        questions.cmd("INFO").arg(&["server", "memory", "persistence", "replication", "keyspace"]);
        questions.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("NODES");
        questions.cmd("CONFIG").arg("GET").arg("cluster-node-timeout");
        let answers: (String, String, String, Vec<String>) = self.ask_all(&questions).await?;
        let (info, cluster, nodes, node_timeout) = answers;
        let missing = Error::Unreadable(InfoError::Missing("cluster-node-timeout").into());
        let node_timeout = node_timeout.last().and_then(|value| value.parse().ok()).ok_or(missing)?;
        let node_timeout = Duration::from_millis(node_timeout);
        let mut answers = Answers { info, cluster, nodes, node_timeout, migrations: Vec::new() };
        if answers.version()? >= MOVES_SLOTS {
            answers.migrations = self.migrations().await?;
        }
        Ok(report(address, &answers)?)
    }

    /// A refusal is no reason to know nothing else about the server: one that loads its data refuses too.
    async fn migrations(&mut self) -> Result<Vec<Migration>, Error> {
        match self.ask::<Value>(cmd("CLUSTER").arg("GETSLOTMIGRATIONS")).await {
            Ok(answer) => Ok(migrations(&answer).map_err(ObserveError::from)?),
            Err(Error::Refused(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Whether a server process answers. An error reply is an answer too: a server that is loading, whose disk is full or
    /// that does not know us must not be restarted for it.
    pub async fn ping(&mut self) -> Result<(), Error> {
        match self.order(&cmd("PING")).await {
            Err(error) if !error.is_a_reply() => Err(error),
            _ => Ok(()),
        }
    }

    pub async fn role(&mut self) -> Result<Role, Error> {
        let answer: Vec<Value> = self.ask(&cmd("ROLE")).await?;
        let first = answer.into_iter().next().unwrap_or(Value::Nil);
        match String::from_redis_value(first).as_deref() {
            Ok("master") => Ok(Role::Primary),
            Ok("slave") => Ok(Role::Replica),
            other => Err(Error::Broken(format!("ROLE answers {other:?}"))),
        }
    }

    /// The table of nodes as this server sees it.
    pub async fn table(&mut self) -> Result<Table, Error> {
        let text: String = self.ask(cmd("CLUSTER").arg("NODES")).await?;
        Table::parse(&text).map_err(|error| Error::Unreadable(error.into()))
    }

    /// Only a node that never met anybody takes an epoch. One that has an epoch already is left as it is.
    pub async fn set_epoch(&mut self, epoch: u64) -> Result<(), Error> {
        done_if(self.order(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(epoch)).await, "already non-zero")
    }

    pub async fn add_slots(&mut self, slots: &SlotSet) -> Result<(), Error> {
        let mut command = cmd("CLUSTER");
        command.arg("ADDSLOTSRANGE");
        for range in slots.ranges() {
            command.arg(range.first()).arg(range.last());
        }
        self.order(&command).await
    }

    pub async fn meet(&mut self, address: SocketAddr) -> Result<(), Error> {
        self.order(cmd("CLUSTER").arg("MEET").arg(address.ip().to_string()).arg(address.port())).await
    }

    pub async fn replicate(&mut self, primary: NodeId) -> Result<(), Error> {
        self.order(cmd("CLUSTER").arg("REPLICATE").arg(primary.to_string())).await
    }

    /// Makes this replica the primary in agreement with the present one: no write is lost. `Ok` means that it was accepted;
    /// whether it worked is told by [`role`](Self::role).
    pub async fn failover(&mut self) -> Result<(), Error> {
        self.order(cmd("CLUSTER").arg("FAILOVER")).await
    }

    /// Makes this replica the primary without asking anybody. Not for a shard whose primary may be running.
    pub async fn take_over(&mut self) -> Result<(), Error> {
        self.order(cmd("CLUSTER").arg("FAILOVER").arg("TAKEOVER")).await
    }

    /// Strikes a node from this server's table; fine if it is not there.
    pub async fn forget(&mut self, id: NodeId) -> Result<(), Error> {
        done_if(self.order(cmd("CLUSTER").arg("FORGET").arg(id.to_string())).await, "Unknown node")
    }

    pub async fn set_node_timeout(&mut self, timeout: Duration) -> Result<(), Error> {
        self.config_set(&[("cluster-node-timeout", &timeout.as_millis().to_string())]).await
    }

    /// All or none of the settings.
    pub async fn config_set(&mut self, settings: &[(&str, &str)]) -> Result<(), Error> {
        self.order(cmd("CONFIG").arg("SET").arg(settings)).await
    }

    /// What the server has for each of these settings, in its own spelling. One that it does not know is missing.
    pub async fn config_get<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, String>, Error> {
        let names: Vec<&str> = names.into_iter().collect();
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.ask(cmd("CONFIG").arg("GET").arg(names)).await
    }

    pub async fn version(&mut self) -> Result<Version, Error> {
        let info: String = self.ask(cmd("INFO").arg("server")).await?;
        Ok(version(&Info::parse(&info))?)
    }

    /// Whether the log of writes begins with all the data that there was when it was switched on. Until then it is of no use
    /// to a server that starts with it.
    pub async fn log_is_whole(&mut self) -> Result<bool, Error> {
        let info: String = self.ask(cmd("INFO").arg("persistence")).await?;
        let info = Info::parse(&info);
        let flag = |field| info.flag(field).map_err(|error| Error::Unreadable(error.into()));
        let being_written = flag("aof_rewrite_in_progress")? || flag("aof_rewrite_scheduled")?;
        let succeeded = info.text("aof_last_bgrewrite_status").is_ok_and(|status| status == "ok");
        Ok(!being_written && succeeded)
    }

    /// Reads the users' file again. Not on a replica of 8.0: it would crash.
    pub async fn reload_users(&mut self) -> Result<(), Error> {
        self.order(cmd("ACL").arg("LOAD")).await
    }

    pub(crate) async fn order(&mut self, command: &Cmd) -> Result<(), Error> {
        self.order_within(self.deadline, command).await
    }

    pub(crate) async fn order_within(&mut self, deadline: Duration, command: &Cmd) -> Result<(), Error> {
        self.ask_within::<Value>(deadline, command).await.map(drop)
    }

    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Error> {
        self.ask_within(self.deadline, command).await
    }

    async fn ask_within<T: FromRedisValue>(&mut self, deadline: Duration, command: &Cmd) -> Result<T, Error> {
        let answer = timeout(deadline, command.query_async(&mut self.connection)).await;
        Ok(answer.map_err(|_| Error::Deadline(deadline))??)
    }

    async fn ask_all<T: FromRedisValue>(&mut self, commands: &Pipeline) -> Result<T, Error> {
        let answer = timeout(self.deadline, commands.query_async(&mut self.connection)).await;
        Ok(answer.map_err(|_| Error::Deadline(self.deadline))??)
    }
}

/// A refusal with these words means that there was nothing to do.
fn done_if(result: Result<(), Error>, words: &str) -> Result<(), Error> {
    match result {
        Err(Error::Refused(refusal)) if refusal.contains(words) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
pub(crate) mod tests;
