//! An observation, prepared for the questions that every decision asks.

use std::collections::{BTreeMap, BTreeSet};

use valkey_model::{
    Desired, Export, Held, Member, NodeId, NodeReport, Observation, PeerHealth, Role, ShardIndex, Sighting, SlotSet,
    Wish,
};

/// What one pass saw, next to what is wanted.
///
/// A member counts if it is wanted, and also if it is not any more for as long as it is there: it may have data. Those who are
/// *leaving* are all of the latter; a shard is leaving if none of its members is wanted.
#[derive(Clone, Debug)]
pub(crate) struct ClusterView<'a> {
    pub desired: Desired,
    seen: &'a Observation,
    members: Vec<(Member, &'a Sighting)>,
    homes: BTreeMap<NodeId, Member>,
    claims: BTreeSet<Claim<'a>>,
}

/// Somebody's word that a node owns slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim<'a> {
    pub owner: NodeId,
    pub epoch: u64,
    pub slots: &'a SlotSet,
}

impl<'a> ClusterView<'a> {
    pub fn new(desired: Desired, seen: &'a Observation) -> Self {
        let homes = seen.members.iter().filter_map(|(member, sighting)| Some((id_of(sighting)?, *member))).collect();
        let members: BTreeSet<Member> = desired.members().chain(seen.leaving(desired)).collect();
        let members = members.into_iter().map(|member| (member, seen.sighting(member))).collect();
        let mut view = Self { desired, seen, members, homes, claims: BTreeSet::new() };
        view.claims = view.gather_claims();
        view
    }

    pub fn seen(&self) -> &'a Observation {
        self.seen
    }

    /// What a member is called where people read of it.
    pub fn pod(&self, member: Member) -> String {
        self.seen.pod(member)
    }

    /// The wanted shards.
    pub fn shards(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        (0..self.desired.shards).map(ShardIndex)
    }

    /// The wanted shards and those that are leaving.
    pub fn all_shards(&self) -> BTreeSet<ShardIndex> {
        self.shards().chain(self.leaving_shards()).collect()
    }

    pub fn leaving_shards(&self) -> BTreeSet<ShardIndex> {
        self.leaving().map(|(member, _)| member.shard).filter(|shard| self.is_leaving(*shard)).collect()
    }

    pub fn is_leaving(&self, shard: ShardIndex) -> bool {
        shard.0 >= self.desired.shards
    }

    /// A member that its shard can do without. The members of a shard that is leaving are not: they leave together.
    pub fn is_surplus(&self, member: Member) -> bool {
        !self.desired.wants(member) && !self.is_leaving(member.shard)
    }

    /// Every member that counts, in order.
    pub fn members(&self) -> impl Iterator<Item = (Member, &'a Sighting)> {
        self.members.iter().copied()
    }

    pub fn wanted(&self) -> impl Iterator<Item = (Member, &'a Sighting)> {
        self.members().filter(|(member, _)| self.desired.wants(*member))
    }

    pub fn leaving(&self) -> impl Iterator<Item = (Member, &'a Sighting)> {
        self.members().filter(|(member, _)| !self.desired.wants(*member))
    }

    pub fn shard(&self, shard: ShardIndex) -> impl Iterator<Item = (Member, &'a Sighting)> {
        self.members().filter(move |(member, _)| member.shard == shard)
    }

    /// Every server that answered, in order.
    pub fn live(&self) -> impl Iterator<Item = (Member, &'a NodeReport)> {
        self.members().filter_map(|(member, sighting)| match sighting {
            Sighting::Known(report) => Some((member, &**report)),
            _ => None,
        })
    }

    /// Every server that takes commands: one that loads its data refuses most of them.
    pub fn ready(&self) -> impl Iterator<Item = (Member, &'a NodeReport)> {
        self.live().filter(|(_, report)| !report.loading)
    }

    pub fn live_in(&self, shard: ShardIndex) -> impl Iterator<Item = (Member, &'a NodeReport)> {
        self.live().filter(move |(member, _)| member.shard == shard)
    }

    pub fn held(&self) -> impl Iterator<Item = (Member, &'a Held)> {
        self.members().filter_map(|(member, sighting)| match sighting {
            Sighting::Held(held) => Some((member, held)),
            _ => None,
        })
    }

    /// Nothing is unknown: of every member we know what it is, even of those that may not start yet.
    pub fn everyone_known(&self) -> bool {
        self.members().all(|(_, sighting)| is_known(sighting))
    }

    /// Somebody does not answer, and may be doing anything.
    pub fn anyone_unreachable(&self) -> Option<Member> {
        self.members().find(|(_, sighting)| matches!(sighting, Sighting::Unreachable)).map(|(member, _)| member)
    }

    /// Where the node with this id runs or is held back, among all pods that were seen.
    pub fn home_of(&self, id: NodeId) -> Option<Member> {
        self.homes.get(&id).copied()
    }

    /// The report of the node with this id, if it answered.
    pub fn report_of(&self, id: NodeId) -> Option<&'a NodeReport> {
        self.seen.report(self.home_of(id)?)
    }

    /// Everybody's word about the owners of slots: the servers' own, their tables', and the files of held servers.
    pub fn claims(&self) -> impl Iterator<Item = Claim<'a>> {
        self.claims.iter().copied()
    }

    /// In a large cluster almost all words are the same, so each is kept once.
    fn gather_claims(&self) -> BTreeSet<Claim<'a>> {
        let itself = self.live().filter_map(|(_, report)| own_claim(report));
        let tables = self.live().flat_map(|(_, report)| table_claims(report));
        // How old the file of a held server is nobody knows, so it outranks nobody.
        let files = self.held().map(|(_, held)| Claim { owner: held.id, epoch: 0, slots: &held.slots });
        itself.chain(tables).chain(files).filter(|claim| !claim.slots.is_empty()).collect()
    }

    /// The slots that have an owner in anybody's view.
    pub fn owned(&self) -> SlotSet {
        self.claims().flat_map(|claim| claim.slots.ranges()).collect()
    }

    /// The live primaries of a shard that have slots. More than one is a passing state, or one that needs a human.
    pub fn leaders(&self, shard: ShardIndex) -> Vec<(Member, &'a NodeReport)> {
        self.live_in(shard).filter(|(_, report)| report.role == Role::Primary && !report.slots.is_empty()).collect()
    }

    /// The one that leads a shard: alone, or the newest of several that claim the same slots.
    ///
    /// Nobody leads by a claim that is outdated in any view: such a node will hear of its successor soon.
    pub fn leader(&self, shard: ShardIndex) -> Option<(Member, &'a NodeReport)> {
        let leaders = self.leaders(shard);
        let newest = *leaders.iter().max_by_key(|(_, report)| report.config_epoch)?;
        let (_, report) = newest;
        let rivals_share_its_slots = leaders.iter().all(|(_, rival)| rival.slots.intersects(&report.slots));
        let outdated = self.claims().any(|claim| {
            claim.owner != report.id && claim.epoch > report.config_epoch && claim.slots.intersects(&report.slots)
        });
        (rivals_share_its_slots && !outdated).then_some(newest)
    }

    /// Every move of slots that is under way or has been left open, with the member that the slots are moved away from.
    pub fn moves(&self) -> impl Iterator<Item = (Member, &'a Export)> {
        let running = self.live().flat_map(|(member, r)| r.exports.running.iter().map(move |export| (member, export)));
        running.chain(self.open())
    }

    /// Slots that a move has opened on their owner, who alone can send their keys on. Its replicas know of them, too.
    pub fn open(&self) -> impl Iterator<Item = (Member, &'a Export)> {
        let owners = self.live().filter(|(_, report)| report.role == Role::Primary);
        let open = owners.flat_map(|(m, r)| r.exports.open.iter().map(move |export| (m, r, export)));
        let owned = open.filter(|(_, report, export)| export.slots.minus(&report.slots).is_empty());
        owned.map(|(member, _, export)| (member, export))
    }

    /// Whether slots are on their way to a node, or have been left open on their way there.
    pub fn is_awaited(&self, id: NodeId) -> bool {
        self.moves().any(|(_, export)| export.to == id)
    }

    /// Whether slots are on their way from a shard.
    pub fn gives_slots(&self, shard: ShardIndex) -> bool {
        self.moves().any(|(from, _)| from.shard == shard)
    }

    /// The shards from which slots are on their way to this one.
    pub fn sources(&self, shard: ShardIndex) -> BTreeSet<ShardIndex> {
        let goes_here = |export: &Export| self.home_of(export.to).is_some_and(|home| home.shard == shard);
        self.moves().filter(|(_, export)| goes_here(export)).map(|(from, _)| from.shard).collect()
    }

    /// Whether slots are on their way from or to a shard.
    pub fn is_moving(&self, shard: ShardIndex) -> bool {
        self.gives_slots(shard) || !self.sources(shard).is_empty()
    }

    /// Whether somebody wishes that this member does not lead.
    pub fn shall_resign(&self, member: Member) -> bool {
        self.seen.wishes.contains(&Wish::Resign(member))
    }

    pub fn is_outdated(&self, member: Member) -> bool {
        self.seen.outdated.contains(&member)
    }

    /// Whether its pod may be evicted at this moment.
    pub fn is_evictable(&self, member: Member) -> bool {
        self.seen.evictable.contains(&member)
    }

    pub fn is_going(&self, member: Member) -> bool {
        self.seen.going.contains(&member)
    }

    /// Proof that a primary which members of this shard follow does not run.
    ///
    /// Either its own pod says so (the launch guard holds it), or every member of its shard is accounted for and none of
    /// them is it. Without proof nothing may be taken from it: it may be alive where we cannot look.
    pub fn is_proven_gone(&self, id: NodeId, shard: ShardIndex) -> bool {
        let held = self.held().any(|(_, held)| held.id == id);
        let shard_accounted_for = self.shard(shard).all(|(_, sighting)| is_known(sighting));
        let followed_elsewhere =
            self.live().any(|(member, report)| member.shard != shard && report.primary == Some(id));
        self.report_of(id).is_none() && (held || (shard_accounted_for && !followed_elsewhere))
    }
}

fn is_known(sighting: &Sighting) -> bool {
    matches!(sighting, Sighting::Known(_) | Sighting::Held(_))
}

fn id_of(sighting: &Sighting) -> Option<NodeId> {
    match sighting {
        Sighting::Known(report) => Some(report.id),
        Sighting::Held(held) => Some(held.id),
        Sighting::Missing | Sighting::Starting | Sighting::Unreachable => None,
    }
}

/// What a server says that it owns.
pub(crate) fn own_claim(report: &NodeReport) -> Option<Claim<'_>> {
    let claim = Claim { owner: report.id, epoch: report.config_epoch, slots: &report.slots };
    (report.role == Role::Primary).then_some(claim)
}

/// What a server's table says that others own.
pub(crate) fn table_claims(report: &NodeReport) -> impl Iterator<Item = Claim<'_>> {
    let peers = report.peers.iter().filter(|peer| peer.health != PeerHealth::Handshake);
    peers.map(|peer| Claim { owner: peer.id, epoch: peer.config_epoch, slots: &peer.slots })
}
