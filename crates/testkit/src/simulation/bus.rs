//! The cluster bus: what servers tell each other, and what they make of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use valkey_model::{NodeId, Role, ShardIndex, SlotSet};

use super::Millis;
use super::random::Random;
use super::server::{Election, Entry, FirstWord, Link, Server, Standing};

#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub to: SocketAddr,
    pub from: Header,
    pub word: Word,
}

/// What every message says about its sender.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub id: NodeId,
    pub address: SocketAddr,
    pub shard: ShardIndex,
    pub role: Role,
    pub primary: Option<NodeId>,
    pub slots: SlotSet,
    pub epoch: u64,
    pub current_epoch: u64,
    pub offset: u64,
    pub gossip: Vec<Rumour>,
}

#[derive(Clone, Debug)]
pub(super) struct Rumour {
    pub id: NodeId,
    pub address: SocketAddr,
    pub is_fine: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Word {
    Meet,
    Ping,
    Pong,
    Failed(NodeId),
    /// "The slots that you claim belong to this one, by a newer epoch."
    Owner {
        id: NodeId,
        epoch: u64,
        slots: SlotSet,
        shard: Option<ShardIndex>,
    },
    AskVote {
        epoch: u64,
        primary: NodeId,
    },
    Vote {
        epoch: u64,
    },
}

/// How long a struck id may not come back by gossip.
const BAN: Millis = 60_000;
const GREETING_AGAIN: Millis = 200;

/// A claim to slots, from its owner or by hearsay.
struct Claimed<'a> {
    id: NodeId,
    epoch: u64,
    slots: &'a SlotSet,
    shard: Option<ShardIndex>,
}

impl Server {
    pub fn ban(&mut self, id: NodeId, now: Millis) {
        self.bans.insert(id, now + BAN);
    }

    /// What it makes of a message, and what it answers.
    pub fn hear(&mut self, now: Millis, heard: &Envelope, random: &mut Random) -> Vec<Envelope> {
        let Envelope { from, word, .. } = heard;
        if from.id == self.me.id {
            self.me.table.retain(|_, entry| entry.is_met() || entry.address != Some(from.address));
            return Vec::new();
        }
        let mut answers = Vec::new();
        match word {
            Word::Meet => {
                self.be_greeted(now, from, random);
                answers.push(self.say(from.address, Word::Pong, random));
            }
            Word::Ping => answers.push(self.say(from.address, Word::Pong, random)),
            Word::Pong => self.finish_greeting(now, from),
            _ => {}
        }
        if !self.me.table.contains_key(&from.id) {
            return answers;
        }
        self.note_sender(now, from, word);
        answers.extend(self.note_slots(
            now,
            &Claimed { id: from.id, epoch: from.epoch, slots: &from.slots, shard: Some(from.shard) },
            Some(from.address),
            random,
        ));
        self.note_gossip(now, from);
        self.fix_chain(now);
        self.follow_targets(from);
        match word {
            Word::Failed(id) => {
                if let Some(entry) = self.me.table.get_mut(id).filter(|entry| entry.is_met() && !entry.is_failed()) {
                    entry.standing = Standing::Failed { since: now };
                }
            }
            // Hearsay counts only if it is newer than what is known.
            Word::Owner { id, epoch, slots, shard } if self.me.table.get(id).is_some_and(|e| e.epoch < *epoch) => {
                let claimed = Claimed { id: *id, epoch: *epoch, slots, shard: *shard };
                answers.extend(self.note_slots(now, &claimed, None, random));
            }
            Word::AskVote { epoch, primary } => answers.extend(self.be_asked(now, from, *epoch, *primary, random)),
            Word::Vote { epoch } => answers.extend(self.count_vote(from, *epoch, random)),
            _ => {}
        }
        answers
    }

    fn be_greeted(&mut self, now: Millis, from: &Header, random: &mut Random) {
        let known = self.me.table.contains_key(&from.id);
        let greeting = self.me.table.values().any(|entry| !entry.is_met() && entry.address == Some(from.address));
        if !known && !greeting {
            self.greet(from.address, FirstWord::Ping, now, random);
        }
    }

    /// Begins a handshake, under a made-up id.
    pub fn greet(&mut self, address: SocketAddr, first_word: FirstWord, now: Millis, random: &mut Random) {
        let standing = Standing::Greeting { until: now + self.node_timeout.max(1000), first_word };
        self.me.table.insert(super::make_id(random), Entry::at(address, standing, now));
    }

    fn finish_greeting(&mut self, now: Millis, from: &Header) {
        let greeted = self.me.table.iter().find(|(_, e)| !e.is_met() && e.address == Some(from.address));
        if let Some(made_up) = greeted.map(|(id, _)| *id) {
            self.me.table.remove(&made_up);
            let entry = self.me.table.entry(from.id).or_insert_with(|| Entry::at(from.address, Standing::Fine, now));
            entry.address = Some(from.address);
        }
        // Somebody else answers where we expected this one: the one that we knew has no address any more.
        for (id, entry) in &mut self.me.table {
            if *id != from.id && entry.is_met() && entry.address == Some(from.address) {
                entry.address = None;
            }
        }
    }

    fn note_sender(&mut self, now: Millis, from: &Header, word: &Word) {
        self.me.current_epoch = self.me.current_epoch.max(from.current_epoch).max(from.epoch);
        let timeout = self.node_timeout;
        let Some(entry) = self.me.table.get_mut(&from.id) else { return };
        if matches!(word, Word::Ping | Word::Meet) {
            entry.address = Some(from.address);
        }
        if matches!(word, Word::Pong) {
            entry.heard = now;
            entry.standing = match entry.standing {
                // A primary that nobody replaced is trusted again only after a while.
                Standing::Failed { since } if entry.votes() && now < since + 2 * timeout => entry.standing,
                _ => Standing::Fine,
            };
        }
        if entry.role == Role::Primary && from.role == Role::Replica {
            (entry.slots, entry.disowned) = (SlotSet::EMPTY, SlotSet::EMPTY);
        }
        (entry.role, entry.primary, entry.offset, entry.shard) =
            (from.role, from.primary, from.offset, Some(from.shard));
        entry.epoch = entry.epoch.max(from.epoch);
        let collides = self.votes() && from.role == Role::Primary && from.epoch == self.me.epoch;
        if collides && self.me.id < from.id {
            self.me.current_epoch += 1;
            self.me.epoch = self.me.current_epoch;
        }
    }

    /// Believes a claim where it is newer than what is known, and tells the claimant where it is not.
    fn note_slots(
        &mut self,
        now: Millis,
        claimed: &Claimed,
        tell: Option<SocketAddr>,
        random: &mut Random,
    ) -> Vec<Envelope> {
        if let Some(entry) = self.me.table.get_mut(&claimed.id).filter(|e| claimed.epoch >= e.epoch) {
            entry.disowned = entry.slots.minus(claimed.slots);
        }
        let unchanged = self.me.table.get(&claimed.id).is_some_and(|entry| entry.slots == *claimed.slots);
        if unchanged || claimed.slots.is_empty() || claimed.id == self.me.id {
            return Vec::new();
        }
        let mut accepted = claimed.slots.clone();
        let mut corrections = Vec::new();
        let (was_primary, had) = (self.me.role == Role::Primary, self.me.slots.clone());
        if self.me.slots.intersects(claimed.slots) {
            if self.me.epoch < claimed.epoch {
                self.me.slots = self.me.slots.minus(claimed.slots);
            } else {
                accepted = accepted.minus(&self.me.slots);
                corrections.push((self.me.id, self.me.epoch, self.me.slots.clone(), Some(self.shard)));
            }
        }
        for (id, entry) in self.me.table.iter_mut().filter(|(id, _)| **id != claimed.id) {
            let both = entry.slots.intersection(claimed.slots);
            let given = if entry.epoch < claimed.epoch { both.clone() } else { both.intersection(&entry.disowned) };
            entry.slots = entry.slots.minus(&given);
            let kept = both.minus(&given);
            if !kept.is_empty() {
                accepted = accepted.minus(&kept);
                corrections.push((*id, entry.epoch, entry.slots.minus(&entry.disowned), entry.shard));
            }
        }
        if let Some(entry) = self.me.table.get_mut(&claimed.id) {
            entry.epoch = entry.epoch.max(claimed.epoch);
            if !accepted.is_empty() {
                (entry.role, entry.primary) = (Role::Primary, None);
                entry.slots = entry.slots.union(&accepted);
            }
        }
        let lost = if was_primary { had.minus(&self.me.slots) } else { SlotSet::EMPTY };
        self.heed_new_owner(now, claimed, &lost);
        let word = |(id, epoch, slots, shard)| Word::Owner { id, epoch, slots, shard };
        let told = tell.map(|to| corrections.into_iter().map(|c| self.say(to, word(c), random)).collect());
        told.unwrap_or_default()
    }

    /// One that lost all of its slots follows the new owner if that is of its own shard. Else it has to drop their keys.
    fn heed_new_owner(&mut self, now: Millis, claimed: &Claimed, lost: &SlotSet) {
        let of_our_shard = claimed.shard.is_none_or(|shard| shard == self.shard);
        if !lost.is_empty() && self.me.slots.is_empty() && of_our_shard {
            self.follow(claimed.id, now);
        } else {
            self.drop_keys_of(lost);
        }
        let dethroned = self.me.primary.and_then(|id| self.me.table.get(&id)).is_some_and(|e| e.slots.is_empty());
        if self.me.role == Role::Replica && dethroned && claimed.shard == Some(self.shard) {
            let owner = self.me.table.get(&claimed.id).is_some_and(Entry::votes);
            if owner && self.me.primary != Some(claimed.id) {
                self.follow(claimed.id, now);
            }
        }
    }

    fn note_gossip(&mut self, now: Millis, from: &Header) {
        let trusted = from.role == Role::Primary && !from.slots.is_empty();
        for rumour in from.gossip.iter().filter(|rumour| rumour.id != self.me.id) {
            let banned = self.bans.get(&rumour.id).is_some_and(|until| now < *until);
            match self.me.table.get_mut(&rumour.id) {
                Some(entry) => {
                    if trusted && !rumour.is_fine {
                        entry.doubts.insert(from.id, now);
                    } else if trusted {
                        entry.doubts.remove(&from.id);
                    }
                    if rumour.is_fine && entry.standing != Standing::Fine && entry.is_met() {
                        entry.address = Some(rumour.address);
                    }
                }
                None if !banned && rumour.is_fine => {
                    self.me.table.insert(rumour.id, Entry::at(rumour.address, Standing::Fine, now));
                }
                None => {}
            }
        }
    }

    /// Nobody follows a replica for long.
    fn fix_chain(&mut self, now: Millis) {
        let followed = self.me.primary.and_then(|id| self.me.table.get(&id));
        let next = followed.filter(|entry| entry.role == Role::Replica).and_then(|entry| entry.primary);
        if let Some(next) = next.filter(|next| *next != self.me.id && self.me.table.contains_key(next)) {
            self.follow(next, now);
        }
    }

    /// The keys of an open slot go to whoever leads the shard that they were going to.
    fn follow_targets(&mut self, from: &Header) {
        if from.role == Role::Primary {
            let table = &self.me.table;
            let succeeded = |id: &NodeId| {
                let target = table.get(id).filter(|target| target.shard == Some(from.shard));
                target.is_some_and(|target| target.role == Role::Replica || target.is_failed())
            };
            self.me.open.values_mut().filter(|id| succeeded(id)).for_each(|id| *id = from.id);
        }
    }

    /// What it does by itself, many times a second.
    pub fn beat(&mut self, now: Millis, random: &mut Random) -> Vec<Envelope> {
        self.me.table.retain(|_, entry| !matches!(entry.standing, Standing::Greeting { until, .. } if now >= until));
        let mut said = self.ask_around(now, random);
        said.extend(self.judge_peers(now, random));
        said.extend(self.stand_for_election(now, random));
        self.update_state(now);
        said
    }

    fn ask_around(&mut self, now: Millis, random: &mut Random) -> Vec<Envelope> {
        let timeout = self.node_timeout;
        let mut asked = Vec::new();
        for entry in self.me.table.values_mut() {
            let (word, pause) = match entry.standing {
                Standing::Greeting { first_word: FirstWord::Meet, .. } => (Word::Meet, GREETING_AGAIN),
                Standing::Fine if entry.heard >= entry.asked && !random.chance(5) => (Word::Ping, timeout / 2),
                _ => (Word::Ping, GREETING_AGAIN),
            };
            if let Some(address) = entry.address.filter(|_| now >= entry.asked + pause) {
                entry.asked = now;
                asked.push((address, word));
            }
        }
        asked.into_iter().map(|(to, word)| self.say(to, word, random)).collect()
    }

    /// Suspects who is silent, and calls failed whom the majority suspects.
    fn judge_peers(&mut self, now: Millis, random: &mut Random) -> Vec<Envelope> {
        let (timeout, quorum, own) = (self.node_timeout, self.quorum(), usize::from(self.votes()));
        let mut failed = Vec::new();
        for (id, entry) in self.me.table.iter_mut().filter(|(_, entry)| entry.is_met()) {
            if entry.standing == Standing::Fine && now > entry.heard + timeout {
                entry.standing = Standing::Suspected;
            }
            entry.doubts.retain(|_, said| now < *said + 2 * timeout);
            if entry.standing == Standing::Suspected && entry.doubts.len() + own >= quorum {
                entry.standing = Standing::Failed { since: now };
                failed.push(*id);
            }
        }
        failed.into_iter().flat_map(|id| self.announce(&Word::Failed(id), random)).collect()
    }

    fn stand_for_election(&mut self, now: Millis, random: &mut Random) -> Vec<Envelope> {
        let Some(primary) = self.me.primary.filter(|_| self.me.role == Role::Replica) else { return Vec::new() };
        let vacant = self.me.table.get(&primary).is_some_and(|entry| entry.is_failed() && !entry.slots.is_empty());
        let too_old = |since: Option<Millis>| since.is_none_or(|since| now > since + 10 * self.node_timeout + 10_000);
        let too_old = matches!(self.link, Link::Down { since } if too_old(since));
        let never_in_sync = self.offset == 0;
        if !vacant || too_old || never_in_sync || matches!(self.link, Link::Syncing { .. }) {
            self.election = None;
            return Vec::new();
        }
        let rivals = self.me.table.values().filter(|e| e.primary == Some(primary) && e.offset > self.offset).count();
        let rank = u64::try_from(rivals).unwrap_or(0);
        let election = self.election.get_or_insert_with(|| Election {
            at: now + 500 + random.between(0, 500) + 1000 * rank,
            epoch: None,
            votes: BTreeSet::new(),
            over: now + 2 * self.node_timeout.max(1000),
        });
        if now >= election.over.max(election.at + 2000) {
            self.election = None; // not elected in time: tries again
            return Vec::new();
        }
        if now < election.at || election.epoch.is_some() {
            return Vec::new();
        }
        self.me.current_epoch += 1;
        let epoch = self.me.current_epoch;
        election.epoch = Some(epoch);
        self.announce(&Word::AskVote { epoch, primary }, random)
    }

    fn be_asked(
        &mut self,
        now: Millis,
        from: &Header,
        epoch: u64,
        primary: NodeId,
        random: &mut Random,
    ) -> Vec<Envelope> {
        let gone = self.me.table.get(&primary).is_some_and(Entry::is_failed);
        let recently = self.votes_given.get(&primary).is_some_and(|at| now < at + 2 * self.node_timeout);
        if !self.votes() || !gone || recently || epoch < self.me.current_epoch || epoch <= self.me.voted_epoch {
            return Vec::new();
        }
        self.me.voted_epoch = epoch;
        self.votes_given.insert(primary, now);
        vec![self.say(from.address, Word::Vote { epoch }, random)]
    }

    fn count_vote(&mut self, from: &Header, epoch: u64, random: &mut Random) -> Vec<Envelope> {
        let quorum = self.quorum();
        let Some(election) = self.election.as_mut().filter(|election| election.epoch == Some(epoch)) else {
            return Vec::new();
        };
        election.votes.insert(from.id);
        if election.votes.len() >= quorum { self.lead(epoch, random) } else { Vec::new() }
    }
}
