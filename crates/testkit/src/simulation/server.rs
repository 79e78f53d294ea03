//! A simulated server: what it is, and what it believes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use valkey_model::{NodeId, Role, ShardIndex, SlotSet, Version};

use super::bus::{Envelope, Header, Rumour, Word};
use super::moves::Exporting;
use super::random::Random;
use super::{Millis, Write};

/// What `nodes.conf` keeps.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub id: NodeId,
    pub role: Role,
    pub primary: Option<NodeId>,
    pub slots: SlotSet,
    pub epoch: u64,
    pub current_epoch: u64,
    pub voted_epoch: u64,
    /// Slots that a classic move has opened, and where their keys go.
    pub open: BTreeMap<u16, NodeId>,
    pub table: BTreeMap<NodeId, Entry>,
}

impl Identity {
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            role: Role::Primary,
            primary: None,
            slots: SlotSet::EMPTY,
            epoch: 0,
            current_epoch: 0,
            voted_epoch: 0,
            open: BTreeMap::new(),
            table: BTreeMap::new(),
        }
    }
}

/// What a server believes about another one.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub address: Option<SocketAddr>,
    pub role: Role,
    pub primary: Option<NodeId>,
    pub slots: SlotSet,
    /// Those of them that it does not claim any more; who does instead is not known yet.
    pub disowned: SlotSet,
    pub epoch: u64,
    pub offset: u64,
    pub shard: Option<ShardIndex>,
    pub standing: Standing,
    pub heard: Millis,
    pub asked: Millis,
    /// The primaries that say that they do not reach it, and when they last said so.
    pub doubts: BTreeMap<NodeId, Millis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Greeting { until: Millis, first_word: FirstWord },
    Fine,
    Suspected,
    Failed { since: Millis },
}

/// Who is greeted by MEET has to introduce itself in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstWord {
    Meet,
    Ping,
}

impl Entry {
    pub fn at(address: SocketAddr, standing: Standing, now: Millis) -> Self {
        Self {
            address: Some(address),
            role: Role::Primary,
            primary: None,
            slots: SlotSet::EMPTY,
            disowned: SlotSet::EMPTY,
            epoch: 0,
            offset: 0,
            shard: None,
            standing,
            heard: now,
            asked: 0,
            doubts: BTreeMap::new(),
        }
    }

    pub fn is_met(&self) -> bool {
        !matches!(self.standing, Standing::Greeting { .. })
    }

    pub fn votes(&self) -> bool {
        self.is_met() && self.role == Role::Primary && !self.slots.is_empty()
    }

    pub fn is_failed(&self) -> bool {
        matches!(self.standing, Standing::Failed { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Since when, and `None` if it never stood: such a replica is not fit to lead (`cluster-replica-validity-factor`).
    Down {
        since: Option<Millis>,
    },
    Syncing {
        since: Option<Millis>,
        until: Millis,
    },
    Up,
}

#[derive(Clone, Debug)]
pub(super) struct Election {
    pub at: Millis,
    pub epoch: Option<u64>,
    pub votes: BTreeSet<NodeId>,
    pub over: Millis,
}

/// A running process.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub me: Identity,
    pub address: SocketAddr,
    /// The server's own shard id: the pods of a shard share it once they have followed each other.
    pub shard: ShardIndex,
    pub version: Version,
    /// When the process began.
    pub started: Millis,
    pub data: Arc<BTreeSet<Write>>,
    pub offset: u64,
    pub link: Link,
    pub node_timeout: Millis,
    pub loading_until: Millis,
    pub election: Option<Election>,
    pub votes_given: BTreeMap<NodeId, Millis>,
    pub bans: BTreeMap<NodeId, Millis>,
    /// When it last saw itself among the minority.
    pub outnumbered: Millis,
    pub serves: bool,
    /// A primary that hands its shard over takes no writes for so long.
    pub paused_until: Millis,
    pub exports: Exporting,
}

impl Server {
    pub fn is_loading(&self, now: Millis) -> bool {
        now < self.loading_until
    }

    pub fn votes(&self) -> bool {
        self.me.role == Role::Primary && !self.me.slots.is_empty()
    }

    /// How many votes decide.
    pub fn quorum(&self) -> usize {
        let others = self.me.table.values().filter(|entry| entry.votes()).count();
        usize::midpoint(others, self.votes().into()) + 1
    }

    pub fn header(&self, random: &mut Random) -> Header {
        let Identity { id, role, primary, slots, epoch, current_epoch, .. } = &self.me;
        let rumours = self.me.table.iter().filter(|(_, entry)| entry.is_met());
        let told = rumours.filter(|(_, entry)| entry.standing != Standing::Fine || random.chance(40));
        let gossip = told.filter_map(|(id, entry)| {
            Some(Rumour { id: *id, address: entry.address?, is_fine: entry.standing == Standing::Fine })
        });
        Header {
            id: *id,
            address: self.address,
            shard: self.shard,
            role: *role,
            primary: *primary,
            slots: slots.clone(),
            epoch: *epoch,
            current_epoch: *current_epoch,
            offset: self.offset,
            gossip: gossip.collect(),
        }
    }

    pub fn say(&self, to: SocketAddr, word: Word, random: &mut Random) -> Envelope {
        Envelope { to, from: self.header(random), word }
    }

    /// Says the same to everybody.
    pub fn announce(&self, word: &Word, random: &mut Random) -> Vec<Envelope> {
        let addresses: Vec<_> =
            self.me.table.values().filter(|entry| entry.is_met()).filter_map(|entry| entry.address).collect();
        addresses.into_iter().map(|to| self.say(to, word.clone(), random)).collect()
    }

    /// Leads its shard from now on, by a vote or without one.
    pub fn lead(&mut self, epoch: u64, random: &mut Random) -> Vec<Envelope> {
        let former = self.me.primary.take().and_then(|id| self.me.table.get_mut(&id));
        if let Some(former) = former {
            self.me.slots = std::mem::take(&mut former.slots);
        }
        self.me.role = Role::Primary;
        self.me.epoch = epoch;
        self.me.current_epoch = self.me.current_epoch.max(epoch);
        self.election = None;
        self.exports = Exporting::default();
        self.announce(&Word::Pong, random)
    }

    pub fn follow(&mut self, primary: NodeId, now: Millis) {
        // A replica that is sent to another primary of its shard is as good as before; a former primary has yet to copy.
        self.link = match (self.me.role, self.link) {
            (Role::Primary, _) => Link::Down { since: None },
            (Role::Replica, Link::Up) => Link::Down { since: Some(now) },
            (Role::Replica, Link::Down { since } | Link::Syncing { since, .. }) => Link::Down { since },
        };
        self.me.role = Role::Replica;
        self.me.primary = Some(primary);
        self.me.slots = SlotSet::EMPTY;
        self.election = None;
        self.exports = Exporting::default();
        self.paused_until = 0;
    }

    /// Forgets the keys of slots that it has lost.
    pub fn drop_keys_of(&mut self, slots: &SlotSet) {
        if self.data.iter().any(|write| slots.contains(write.slot)) {
            Arc::make_mut(&mut self.data).retain(|write| !slots.contains(write.slot));
        }
    }

    /// Whether it would answer queries.
    pub fn is_serving(&self, now: Millis) -> bool {
        self.serves && !self.is_loading(now)
    }

    /// It serves while every slot has an owner that is not gone, and it sees the majority. A primary that did not see it waits
    /// before it trusts its luck (engine.md 1.3).
    pub fn update_state(&mut self, now: Millis) {
        let delay = if self.me.role == Role::Primary { self.node_timeout.clamp(500, 5000) } else { 0 };
        if self.is_outnumbered() {
            self.outnumbered = now;
        }
        if self.is_troubled() {
            self.serves = false;
        } else if now >= self.outnumbered + delay {
            self.serves = true;
        }
    }

    pub fn is_troubled(&self) -> bool {
        let owned = self.sound().flat_map(|entry| entry.slots.ranges()).chain(self.me.slots.ranges());
        owned.collect::<SlotSet>() != SlotSet::all() || self.is_outnumbered()
    }

    fn is_outnumbered(&self) -> bool {
        let reached = self.sound().filter(|entry| entry.standing == Standing::Fine).count();
        reached + usize::from(self.votes()) < self.quorum()
    }

    /// Other owners of slots that are not known to be gone.
    fn sound(&self) -> impl Iterator<Item = &Entry> {
        self.me.table.values().filter(|entry| entry.votes() && !entry.is_failed())
    }
}
