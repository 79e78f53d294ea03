//! From a server's answers to a report about it.

use std::net::SocketAddr;
use std::time::Duration;

use valkey_model::{Export, Exports, InvalidVersion, NodeReport, ReplicaLink, Role, Version};

use crate::info::{Info, InfoError};
use crate::migrations::{Migration, MigrationsError, exports};
use crate::nodes_table::{Table, TableError};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    #[error(transparent)]
    Info(#[from] InfoError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Version(#[from] InvalidVersion),
    #[error(transparent)]
    Migrations(#[from] MigrationsError),
}

/// All that a server is asked for one report.
#[derive(Clone, Debug)]
pub struct Answers {
    /// `INFO` with the sections server, memory, persistence, replication and keyspace.
    pub info: String,
    /// `CLUSTER INFO`
    pub cluster: String,
    /// `CLUSTER NODES`
    pub nodes: String,
    pub node_timeout: Duration,
    /// `CLUSTER GETSLOTMIGRATIONS`; none if the server does not know it.
    pub migrations: Vec<Migration>,
}

impl Answers {
    pub fn version(&self) -> Result<Version, ObserveError> {
        version(&Info::parse(&self.info))
    }
}

/// `address` is where peers reach this server: it does not know that itself if it has not met anybody.
pub fn report(address: SocketAddr, answers: &Answers) -> Result<NodeReport, ObserveError> {
    let (info, cluster) = (Info::parse(&answers.info), Info::parse(&answers.cluster));
    let Table { myself, others, .. } = Table::parse(&answers.nodes)?;
    let (link, offset) = match myself.role {
        Role::Primary => (ReplicaLink::Down, info.read("master_repl_offset")?),
        Role::Replica => (link(&info), info.read("slave_repl_offset").or_else(|_| info.read("master_repl_offset"))?),
    };
    Ok(NodeReport {
        id: myself.id,
        address,
        role: myself.role,
        primary: myself.primary,
        slots: myself.slots,
        config_epoch: myself.config_epoch,
        current_epoch: cluster.read("cluster_current_epoch")?,
        serving: cluster.text("cluster_state")? == "ok",
        loading: info.flag("loading")? || info.flag("async_loading")?,
        link,
        offset,
        keys: info.keys(),
        memory: info.read("used_memory")?,
        max_memory: info.read("maxmemory")?,
        version: version(&info)?,
        node_timeout: answers.node_timeout,
        peers: others.iter().map(|other| other.peer(address.port())).collect(),
        exports: exported(&info, &answers.migrations, myself.open)?,
        settings: None, // only its sidecar knows
    })
}

pub(crate) fn version(info: &Info) -> Result<Version, ObserveError> {
    Ok(info.text("valkey_version").or_else(|_| info.text("redis_version"))?.parse()?)
}

fn exported(info: &Info, migrations: &[Migration], open: Vec<Export>) -> Result<Exports, InfoError> {
    if migrations.is_empty() {
        return Ok(Exports { open, ..Exports::default() });
    }
    let now = Duration::from_micros(info.read("server_time_usec")?);
    Ok(Exports { open, ..exports(migrations, now) })
}

/// In the moment after a change of role the table is ahead of the replication: no link is told yet, so there is none.
fn link(info: &Info) -> ReplicaLink {
    match (info.text("master_link_status"), info.flag("master_sync_in_progress")) {
        (_, Ok(true)) => ReplicaLink::Syncing,
        (Ok("up"), _) => ReplicaLink::Up,
        _ => ReplicaLink::Down,
    }
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;
    use crate::migrations::migrations;

    macro_rules! answers {
        ($version:literal, $who:literal) => {
            Answers {
                info: include_str!(concat!("../samples/", $version, "/info-", $who, ".txt")).into(),
                cluster: include_str!(concat!("../samples/", $version, "/cluster-info.txt")).into(),
                nodes: include_str!(concat!("../samples/", $version, "/nodes-", $who, ".txt")).into(),
                node_timeout: Duration::from_secs(1),
                migrations: Vec::new(),
            }
        };
    }

    fn address() -> SocketAddr {
        "10.0.0.1:6379".parse().unwrap()
    }

    #[test]
    fn a_primary_is_reported_alike_by_every_version() {
        for (version, answers) in [
            (Version::new(9, 1, 2), answers!("9.1.2", "primary")),
            (Version::new(8, 1, 1), answers!("8.1.1", "primary")),
            (Version::new(8, 0, 1), answers!("8.0.1", "primary")),
        ] {
            let report = report(address(), &answers).unwrap();
            assert_eq!((report.version, report.role, report.primary), (version, Role::Primary, None));
            assert_eq!((report.address, report.slots.len(), report.keys), (address(), 5461, 1));
            assert_eq!((report.config_epoch, report.current_epoch), (1, 3));
            assert!(report.serving && !report.loading && report.memory > 1 << 20 && report.offset > 100);
            let open = report.exports.open.first().unwrap();
            assert_eq!((open.slots.to_string().as_str(), report.peer(open.to).unwrap().role), ("7", Role::Primary));
            assert_eq!((report.max_memory, report.exports.running.len(), report.exports.failures), (0, 0, 0));
            assert_eq!(report.peers.len(), 3);
        }
    }

    #[test]
    fn a_replica_is_reported_alike_by_every_version() {
        for answers in [answers!("9.1.2", "replica"), answers!("8.1.1", "replica"), answers!("8.0.1", "replica")] {
            let report = report(address(), &answers).unwrap();
            assert_eq!((report.role, report.link), (Role::Replica, ReplicaLink::Up));
            let primary = report.peer(report.primary.unwrap()).unwrap();
            assert_eq!(primary.slots.len(), 5461);
            assert!(report.slots.is_empty() && report.keys == 1 && report.offset > 100);
        }
    }

    #[test]
    fn a_link_is_up_only_if_the_server_says_so() {
        for (text, expected) in [
            ("master_link_status:up\nmaster_sync_in_progress:0\n", ReplicaLink::Up),
            ("master_link_status:down\nmaster_sync_in_progress:0\n", ReplicaLink::Down),
            ("master_link_status:down\nmaster_sync_in_progress:1\n", ReplicaLink::Syncing),
            ("role:master\n", ReplicaLink::Down),
        ] {
            assert_eq!(link(&Info::parse(text)), expected, "{text}");
        }
    }

    #[test]
    fn a_server_that_is_loading_is_reported_as_such() {
        let mut answers = answers!("9.1.2", "primary");
        answers.info = answers.info.replace("\nloading:0", "\nloading:1");
        assert!(report(address(), &answers).unwrap().loading);
    }
    #[test]
    fn what_the_data_may_take_is_told() {
        let mut answers = answers!("8.0.1", "primary");
        answers.info = answers.info.replace("\nmaxmemory:0", "\nmaxmemory:1073741824");
        assert_eq!(report(address(), &answers).unwrap().max_memory, 1 << 30);
    }

    #[test]
    fn moves_and_open_slots_are_told_together() {
        let mut answers = answers!("9.1.2", "primary");
        answers.nodes = include_str!("../samples/9.1.2/nodes-open.txt").into();
        let list = parse_redis_value(include_bytes!("../samples/9.1.2/slot-migrations.resp")).unwrap();
        answers.migrations = migrations(&list).unwrap();
        answers.info = answers.info.replace("server_time_usec:1794775721895613", "server_time_usec:1794790178000000");
        let exports = report(address(), &answers).unwrap().exports;
        assert_eq!((exports.running.len(), exports.open.len(), exports.failures), (1, 2, 2));
        // By the server's clock, which need not be ours.
        assert_eq!(exports.last_failure.unwrap().ago, Duration::from_secs(2));
    }
}
