//! What `CLUSTER GETSLOTMIGRATIONS` answers: the moves of slots by the servers themselves, since 9.0.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{FromRedisValue, Value, from_redis_value_ref};
use valkey_model::{Export, Exports, Failure, InvalidNodeId, InvalidSlots, NodeId, SlotRange, SlotSet};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrationsError {
    #[error("the list of slot migrations cannot be read: {0}")]
    Unreadable(String),
    #[error("the list of slot migrations does not tell {0}")]
    Missing(&'static str),
    #[error(transparent)]
    Id(#[from] InvalidNodeId),
    #[error(transparent)]
    Slots(#[from] InvalidSlots),
}

/// A move away from this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    pub slots: SlotSet,
    pub to: NodeId,
    pub state: MigrationState,
    /// When something last happened to it, since 1970 by the server's clock.
    pub updated: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationState {
    /// Any state that is not an end, also one that this version does not know.
    Running,
    Succeeded,
    Failed(String),
    Cancelled,
}

/// The moves away from this server, the newest first, as the server tells them.
pub fn migrations(answer: &Value) -> Result<Vec<Migration>, MigrationsError> {
    let entries: Vec<BTreeMap<String, Value>> = read(answer)?;
    let exports = entries.iter().filter_map(|entry| match field::<String>(entry, "operation") {
        Ok(operation) => (operation == "EXPORT").then(|| migration(entry)),
        Err(error) => Some(Err(error)),
    });
    exports.collect()
}

fn migration(entry: &BTreeMap<String, Value>) -> Result<Migration, MigrationsError> {
    let ranges: String = field(entry, "slot_ranges")?;
    let slots = ranges.split_ascii_whitespace().map(str::parse::<SlotRange>).collect::<Result<_, _>>()?;
    let state: String = field(entry, "state")?;
    Ok(Migration {
        slots,
        to: field::<String>(entry, "target_node")?.parse()?,
        state: match state.as_str() {
            "success" => MigrationState::Succeeded,
            // What it repeats of the target's words comes with the end of their line.
            "failed" => MigrationState::Failed(field::<String>(entry, "message")?.trim_end().to_owned()),
            "cancelled" => MigrationState::Cancelled,
            _ => MigrationState::Running,
        },
        updated: Duration::from_secs(field(entry, "last_update_time")?),
    })
}

fn field<T: FromRedisValue>(entry: &BTreeMap<String, Value>, name: &'static str) -> Result<T, MigrationsError> {
    read(entry.get(name).ok_or(MigrationsError::Missing(name))?)
}

fn read<T: FromRedisValue>(value: &Value) -> Result<T, MigrationsError> {
    from_redis_value_ref(value).map_err(|error| MigrationsError::Unreadable(error.to_string()))
}

/// What they come to. `now` is the server's own clock.
pub fn exports(migrations: &[Migration], now: Duration) -> Exports {
    let running = migrations.iter().filter(|migration| migration.state == MigrationState::Running);
    let running = running.map(|migration| Export { slots: migration.slots.clone(), to: migration.to }).collect();
    let recent = migrations.iter().take_while(|migration| migration.state != MigrationState::Succeeded);
    let failures: Vec<Failure> = recent.filter_map(|migration| failure(migration, now)).collect();
    Exports {
        running,
        open: Vec::new(),
        failures: u32::try_from(failures.len()).unwrap_or(u32::MAX),
        last_failure: failures.into_iter().next(),
    }
}

fn failure(migration: &Migration, now: Duration) -> Option<Failure> {
    match &migration.state {
        MigrationState::Failed(message) => {
            Some(Failure { message: message.clone(), ago: now.saturating_sub(migration.updated) })
        }
        MigrationState::Running | MigrationState::Succeeded | MigrationState::Cancelled => None,
    }
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn source() -> Value {
        parse_redis_value(include_bytes!("../samples/9.1.2/slot-migrations.resp")).unwrap()
    }

    #[test]
    fn moves_away_are_read_and_the_newest_comes_first() {
        let list = migrations(&source()).unwrap();
        let told: Vec<_> = list.iter().map(|migration| migration.slots.to_string()).collect();
        assert_eq!(told, ["4020-4029", "4010-4019", "4000-4009", "4000-4009", "30-3000", "0-9,20-29"]);
        let refused = "Unable to connect to target node: Connection refused".to_owned();
        assert_eq!(list[0].state, MigrationState::Running);
        assert_eq!(list[1].state, MigrationState::Failed(refused));
        assert_eq!((&list[3].state, &list[4].state), (&MigrationState::Cancelled, &MigrationState::Succeeded));
        assert_eq!(list[0].to.to_string(), "8222d87f74ce2be90b913e43769079ac6ded68d9");
    }

    #[test]
    fn moves_towards_a_server_are_not_its_exports() {
        let target = parse_redis_value(include_bytes!("../samples/9.1.2/slot-migrations-target.resp")).unwrap();
        assert!(matches!(&target, Value::Array(entries) if entries.len() == 3));
        assert_eq!(migrations(&target), Ok(Vec::new()));
    }

    #[test]
    fn failures_count_since_the_last_success_and_a_cancelled_move_is_none() {
        let list = migrations(&source()).unwrap();
        let exports = exports(&list, Duration::from_millis(1_794_790_177_500));
        assert_eq!(exports.running, [Export { slots: "4020-4029".parse().unwrap(), to: list[0].to }]);
        assert_eq!(exports.failures, 2);
        let newest = exports.last_failure.unwrap();
        assert_eq!(newest.message, "Unable to connect to target node: Connection refused");
        assert_eq!(newest.ago, Duration::from_millis(1500));
    }

    #[test]
    fn a_success_ends_the_count_of_failures() {
        let mut list = migrations(&source()).unwrap();
        list[0].state = MigrationState::Succeeded;
        assert_eq!(exports(&list, Duration::from_secs(2_000_000_000)), Exports::default());
    }

    #[test]
    fn a_server_that_moves_nothing_has_no_exports() {
        let none = migrations(&parse_redis_value(b"*0\r\n").unwrap()).unwrap();
        assert_eq!(exports(&none, Duration::ZERO), Exports::default());
    }

    #[test]
    fn a_list_that_lacks_something_is_an_error_and_a_state_that_is_new_is_no_end() {
        let text = String::from_utf8(include_bytes!("../samples/9.1.2/slot-migrations.resp").to_vec()).unwrap();
        let read = |text: &str| migrations(&parse_redis_value(text.as_bytes()).unwrap());
        assert_eq!(read(&text.replace("target_node", "target-node")), Err(MigrationsError::Missing("target_node")));
        assert!(matches!(read(&text.replace("4020-4029", "4029-4020")), Err(MigrationsError::Slots(_))));
        assert!(matches!(read(":1\r\n"), Err(MigrationsError::Unreadable(_))));
        let cited = "Received error during handshake to target: -ERR Slots are being manually imported";
        let told = format!("$83\r\n{cited}\r\n\r\n");
        let list =
            read(&text.replace("$52\r\nUnable to connect to target node: Connection refused\r\n", &told)).unwrap();
        assert_eq!(list[1].state, MigrationState::Failed(cited.into()));
        let list = read(&text.replace("success", "pending")).unwrap();
        assert_eq!(list[4].state, MigrationState::Running);
    }
}
