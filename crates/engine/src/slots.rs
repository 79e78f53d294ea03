//! Commands that move slots.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use redis::{Value, cmd, from_redis_value_ref};
use secrecy::ExposeSecret;
use valkey_model::{NodeId, SlotKeys, SlotSet};

use crate::connect::Login;
use crate::error::Error;
use crate::node::Node;

/// For how long a server waits for another one in the midst of `MIGRATE`. It answers nobody else meanwhile, so this is less
/// than the time after which its peers would call it dead.
const MIGRATE: Duration = Duration::from_secs(3);
/// Each of many keys may take nearly that long.
const MIGRATE_DEADLINE: Duration = Duration::from_mins(1);

/// What a server may be told about a slot.
///
/// `STABLE` is left out: it hides the keys that are already on the other side, and the next restart there deletes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotMark {
    /// Its keys come from this node.
    Importing(NodeId),
    /// Its keys go to this node.
    Migrating(NodeId),
    /// It belongs to this node.
    Owned(NodeId),
}

impl Node {
    /// Has the servers move slots by themselves (9.0 and newer). `Ok` means that it was accepted; what became of it is told by
    /// [`observe`](Self::observe).
    pub async fn migrate_slots(&mut self, slots: &SlotSet, to: NodeId) -> Result<(), Error> {
        let mut command = cmd("CLUSTER");
        command.arg("MIGRATESLOTS").arg("SLOTSRANGE");
        for range in slots.ranges() {
            command.arg(range.first()).arg(range.last());
        }
        self.order(command.arg("NODE").arg(to.to_string())).await
    }

    /// Since 8.0 the server passes it on to its replicas first, which may take two seconds.
    pub async fn set_slot(&mut self, slot: u16, mark: SlotMark) -> Result<(), Error> {
        let (word, id) = match mark {
            SlotMark::Importing(id) => ("IMPORTING", id),
            SlotMark::Migrating(id) => ("MIGRATING", id),
            SlotMark::Owned(id) => ("NODE", id),
        };
        self.order(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(word).arg(id.to_string())).await
    }

    /// Some of the keys of a slot, of database 0 only.
    pub async fn keys_in_slot(&mut self, slot: u16, most: u16) -> Result<Vec<Vec<u8>>, Error> {
        self.ask(cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(most)).await
    }

    /// Moves keys to the server at `address`, which knows this server by `login`. A key that is on both sides, since an earlier
    /// attempt broke off in the midst of it, is written anew there. Keys that are gone meanwhile are no error.
    pub async fn migrate_keys(&mut self, address: SocketAddr, keys: &[Vec<u8>], login: &Login) -> Result<(), Error> {
        let mut command = cmd("MIGRATE");
        command.arg(address.ip().to_string()).arg(address.port()).arg("").arg(0).arg(MIGRATE.as_millis().to_string());
        command.arg("REPLACE").arg("AUTH2").arg(&login.user).arg(login.password.expose_secret());
        self.order_within(MIGRATE_DEADLINE, command.arg("KEYS").arg(keys)).await
    }

    /// How many keys are in each of these slots, in all databases. Since 8.0.
    pub async fn slot_keys(&mut self, slots: &SlotSet) -> Result<SlotKeys, Error> {
        let mut all = Vec::new();
        for range in slots.ranges() {
            let question =
                cmd("CLUSTER").arg(&["SLOT-STATS", "SLOTSRANGE"]).arg(range.first()).arg(range.last()).to_owned();
            let answer: Vec<(u16, BTreeMap<String, Value>)> = self.ask(&question).await?;
            let count = |stats: BTreeMap<String, Value>| from_redis_value_ref(stats.get("key-count")?).ok();
            all.extend(answer.into_iter().filter_map(|(slot, stats)| Some((slot, count(stats)?))));
        }
        Ok(all.into_iter().collect())
    }

    /// How many databases a server of a cluster has; servers before 9.0 have one.
    pub async fn databases(&mut self) -> Result<u64, Error> {
        let answer: Vec<String> = self.ask(cmd("CONFIG").arg("GET").arg("cluster-databases")).await?;
        match answer.last() {
            None => Ok(1),
            Some(value) => value.parse().map_err(|_| Error::Broken(format!("cluster-databases is {value:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::Parrot;

    fn id() -> NodeId {
        NodeId::from_bytes([0xab; 20])
    }

    #[tokio::test]
    async fn slots_are_moved_with_the_words_that_valkey_knows() {
        let parrot = Parrot::saying("+OK\r\n");
        let mut node = parrot.node().await;
        node.migrate_slots(&"0-9,20-29,40".parse().unwrap(), id()).await.unwrap();
        assert_eq!(parrot.heard(), format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 9 20 29 40 40 NODE {}", id()));
        node.set_slot(7, SlotMark::Importing(id())).await.unwrap();
        assert_eq!(parrot.heard(), format!("CLUSTER SETSLOT 7 IMPORTING {}", id()));
        node.set_slot(7, SlotMark::Migrating(id())).await.unwrap();
        assert_eq!(parrot.heard(), format!("CLUSTER SETSLOT 7 MIGRATING {}", id()));
        node.set_slot(7, SlotMark::Owned(id())).await.unwrap();
        assert_eq!(parrot.heard(), format!("CLUSTER SETSLOT 7 NODE {}", id()));
    }

    #[tokio::test]
    async fn keys_are_moved_as_bytes_and_with_a_login() {
        let parrot = Parrot::saying(b"*2\r\n$2\r\nk\xfe\r\n$1\r\nl\r\n");
        let keys = parrot.node().await.keys_in_slot(7, 100).await.unwrap();
        assert_eq!(parrot.heard(), "CLUSTER GETKEYSINSLOT 7 100");
        assert_eq!(keys, [b"k\xfe".to_vec(), b"l".to_vec()]);
        let parrot = Parrot::saying("+NOKEY\r\n");
        let login = Login { user: "replicator".into(), password: "secret".to_owned().into() };
        let keys = [b"k".to_vec(), b"l".to_vec()];
        parrot.node().await.migrate_keys("10.0.0.2:6379".parse().unwrap(), &keys, &login).await.unwrap();
        assert_eq!(parrot.heard(), "MIGRATE 10.0.0.2 6379  0 3000 REPLACE AUTH2 replicator secret KEYS k l");
    }

    #[tokio::test]
    async fn keys_are_counted_slot_by_slot() {
        let parrot = Parrot::saying(
            "*2\r\n*2\r\n:7\r\n*2\r\n$9\r\nkey-count\r\n:30\r\n*2\r\n:8\r\n*2\r\n$9\r\nkey-count\r\n:0\r\n",
        );
        let keys = parrot.node().await.slot_keys(&"7-8".parse().unwrap()).await.unwrap();
        assert_eq!(parrot.heard(), "CLUSTER SLOT-STATS SLOTSRANGE 7 8");
        assert_eq!(keys.iter().collect::<Vec<_>>(), [(7, 30)]);
    }

    #[tokio::test]
    async fn a_server_that_does_not_know_the_setting_has_one_database() {
        let older = Parrot::saying("*0\r\n");
        assert_eq!(older.node().await.databases().await.unwrap(), 1);
        let many = Parrot::saying("*2\r\n$17\r\ncluster-databases\r\n$2\r\n16\r\n");
        assert_eq!(many.node().await.databases().await.unwrap(), 16);
    }
}
