//! The planner at work in a simulated world, and the promises that it must keep at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use valkey_model::{Action, Desired, Exports, Member, Observation, SLOTS, ShardIndex, Step, Wish, blemishes};
use valkey_planner::guard::{self, Launch, PeerWord, Released, Verdict, judge};
use valkey_planner::{Loss, Operation, Plan, State, plan};
use valkey_testkit::simulation::{Applicant, Guard, Image, Network, Persistence, Random, Simulation, Weather, Write};

use crate::checks::check;

/// The same cases on every run, unless `SIMULATION_SEED` asks for others.
pub fn config(cases: u32) -> ProptestConfig {
    let seed = std::env::var("SIMULATION_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    // To shrink a history makes another history of it: the seed and the shape say enough.
    let max_shrink_iters = 0;
    ProptestConfig {
        cases,
        max_shrink_iters,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..Default::default()
    }
}

/// The launch guard as it is.
pub struct RealGuard;

impl Guard for RealGuard {
    fn may_start(&self, applicant: &Applicant) -> bool {
        let was = applicant.past.as_ref().map(|past| guard::Past {
            id: past.id,
            role: past.role,
            slots: past.slots.clone(),
            replicas: past.replicas.clone(),
            config_epoch: past.epoch,
        });
        let words: Vec<_> = applicant
            .answers
            .iter()
            .map(|answer| PeerWord::Says {
                owner_of_my_slots: answer.owner,
                epoch: answer.epoch,
                is_my_replica: answer.is_replica,
                has_data: answer.has_data,
            })
            .chain(std::iter::repeat_n(PeerWord::Silent, applicant.silent))
            .collect();
        let released = if applicant.released { Released::ByOperator } else { Released::NotYet };
        let launch = Launch { was, data: applicant.data };
        matches!(judge(&launch, &words, applicant.waited, released), Verdict::Go(_))
    }
}

/// A pod without a launch guard.
pub struct NoGuard;

impl Guard for NoGuard {
    fn may_start(&self, _: &Applicant) -> bool {
        true
    }
}

/// An operator and the world that it works in.
pub struct World {
    pub desired: Desired,
    pub simulation: Simulation,
    pub losses: Vec<Loss>,
    pub wishes: Vec<Wish>,
    /// Why no pod may be made anew.
    pub hold: Option<String>,
    /// Pods that were evicted and are not well again.
    pub evicted: BTreeSet<Member>,
    /// Those of them, and of those that we took down, that found no machine.
    pub stranded: BTreeSet<Member>,
    /// How often we took a pod down that ran.
    pub replaced: usize,
    /// The operator died in the middle of its last pass.
    crashed: bool,
    random: Random,
    /// Steps of a hundred after which the operator dies and starts over.
    crashes: u64,
    /// How much clients write during a pass.
    writes: u32,
    /// Everything that was acknowledged, and by which shard.
    written: BTreeMap<Write, ShardIndex>,
    /// Pods that we took down and that are not well again.
    down: BTreeSet<Member>,
}

pub fn desired(shards: u16, replicas: u16) -> Desired {
    Desired { shards, replicas, node_timeout: Duration::from_secs(5) }
}

impl World {
    pub fn new(desired: Desired, persistence: Persistence, weather: Weather, seed: u64) -> Self {
        Self::guarded_by(Box::new(RealGuard), desired, persistence, weather, seed)
    }

    fn guarded_by(
        guard: Box<dyn Guard>,
        desired: Desired,
        persistence: Persistence,
        weather: Weather,
        seed: u64,
    ) -> Self {
        let simulation = Simulation::new(desired, persistence, weather, guard, seed);
        let random = Random::new(seed.wrapping_add(1));
        Self {
            desired,
            simulation,
            losses: Vec::new(),
            wishes: Vec::new(),
            hold: None,
            evicted: BTreeSet::new(),
            stranded: BTreeSet::new(),
            replaced: 0,
            crashed: false,
            random,
            crashes: 0,
            writes: 0,
            written: BTreeMap::new(),
            down: BTreeSet::new(),
        }
    }

    /// A healthy cluster with data in every shard, and every replica in sync.
    pub fn formed(desired: Desired, persistence: Persistence, weather: Weather, seed: u64) -> Self {
        Self::new(desired, persistence, weather, seed).with_data()
    }

    /// The same, but nobody keeps a server from starting.
    pub fn formed_without_guard(desired: Desired, persistence: Persistence, seed: u64) -> Self {
        Self::guarded_by(Box::new(NoGuard), desired, persistence, Weather::FINE, seed).with_data()
    }

    fn with_data(mut self) -> Self {
        self.run_until_healthy(Duration::from_mins(2));
        self.write_everywhere();
        self.simulation.tick(Duration::from_secs(1));
        self
    }

    /// From now on the operator dies after so many of a hundred steps.
    pub fn crash_after(&mut self, crashes: u64) {
        self.crashes = crashes;
    }

    /// From now on clients write all the time.
    pub fn write_during_passes(&mut self) {
        self.writes = 2;
    }

    /// Asks for another shape.
    pub fn want(&mut self, shards: u16, replicas: u16) {
        self.desired = Desired { shards, replicas, ..self.desired };
        self.simulation.want(self.desired);
    }

    /// Asks for other pods.
    pub fn want_image(&mut self, image: Image) {
        self.simulation.set_image(image);
    }

    /// Writes a little to every shard.
    pub fn write_everywhere(&mut self) {
        for shard in (0..self.desired.shards).map(ShardIndex) {
            let leader = self.simulation.leader(shard).unwrap_or_else(|| panic!("nobody leads shard {shard}"));
            let owned = self.simulation.slots_of(leader);
            for _ in 0..5 {
                let slot = loop {
                    let slot = self.any_slot();
                    if owned.contains(slot) {
                        break slot;
                    }
                };
                assert_eq!(self.write(slot), Some(shard), "shard {shard} takes no writes");
            }
        }
    }

    fn any_slot(&mut self) -> u16 {
        u16::try_from(self.random.between(0, u64::from(SLOTS) - 1)).expect("a slot")
    }

    fn write(&mut self, slot: u16) -> Option<ShardIndex> {
        let number = u32::try_from(self.written.len()).expect("a number");
        let write = Write { slot, number };
        let shard = self.simulation.write(write)?.shard;
        self.written.insert(write, shard);
        Some(shard)
    }

    pub fn lost_writes(&self) -> Vec<(ShardIndex, Write)> {
        let lost = self.written.iter().filter(|(write, _)| !self.simulation.can_read(**write));
        lost.map(|(write, shard)| (*shard, *write)).collect()
    }

    /// Looks, plans and acts once, and says how it found the cluster.
    pub fn pass(&mut self) -> Plan {
        self.note_who_is_back();
        let mut seen = self.simulation.observe();
        seen.hold.clone_from(&self.hold);
        seen.wishes = seen.unwelcome.iter().copied().map(Wish::Resign).chain(self.wishes.iter().copied()).collect();
        let plan = plan(self.desired, &seen);
        assert!(!needs_a_human(&plan.state), "nothing here needs a human: {:?}", plan.state);
        self.losses.extend(plan.losses.iter().copied());
        self.trace(&seen, &plan);
        self.act(&seen, &plan);
        for _ in 0..self.writes {
            let slot = self.any_slot();
            self.write(slot);
        }
        let pause = plan.look_again().unwrap_or(Duration::from_millis(500));
        assert!(pause >= Duration::from_millis(50), "a busy loop");
        self.simulation.tick(pause);
        self.note_who_is_back();
        plan
    }

    fn note_who_is_back(&mut self) {
        let (desired, simulation) = (self.desired, &self.simulation);
        self.down.retain(|down| desired.wants(*down) && !simulation.is_ready(*down));
        self.evicted.retain(|evicted| desired.wants(*evicted) && !simulation.is_ready(*evicted));
        self.stranded.extend(self.evicted.union(&self.down).copied().filter(|member| simulation.is_stranded(*member)));
        self.stranded.retain(|member| !simulation.is_ready(*member));
        self.evicted.retain(|member| !self.stranded.contains(member));
        self.down.retain(|member| !self.stranded.contains(member));
    }

    /// Tells what happens, if somebody wants to know.
    fn trace(&self, seen: &Observation, plan: &Plan) {
        if std::env::var_os("SIMULATION_TRACE").is_some() {
            let steps: Vec<_> = plan.steps().map(|step| step.action.to_string()).collect();
            let workloads: Vec<_> = plan.workloads.iter().map(|(shard, count)| format!("{shard}x{count}")).collect();
            let found = blemishes(self.desired, seen);
            let moves = seen.reports().filter(|(_, r)| r.exports != Exports::default()).map(|(m, r)| (m, &r.exports));
            let (lost, written, moves) = (self.lost_writes().len(), self.written.len(), moves.collect::<Vec<_>>());
            println!("{:?} unreadable: {lost} of {written}", self.simulation.now());
            println!("  {:?}\n  {found:?}\n  {steps:?} {:?} {workloads:?}\n  {moves:?}", plan.state, plan.replace);
        }
    }

    /// Does what was planned, or as much of it as the operator lives to do.
    fn act(&mut self, seen: &Observation, plan: &Plan) {
        self.crashed = true;
        self.check_workloads(plan);
        self.simulation.set_workloads(&plan.workloads);
        if self.random.chance(self.crashes) {
            return;
        }
        for step in plan.steps() {
            check(self.desired, seen, step);
            self.check_truth(step);
            // A refusal is no news: the next look finds what is left to do.
            let _ = self.simulation.carry_out(step);
            if self.random.chance(self.crashes) {
                return;
            }
        }
        self.simulation.set_evictable(&plan.let_go);
        assert!(plan.let_go.len() <= 1, "more than one is let go");
        let rolls = plan.replace.iter().any(|replaced| !seen.unused.contains(&replaced.member));
        assert!(plan.let_go.is_empty() || !rolls, "a roll while somebody is let go");
        let handed_over = plan.steps().filter(|step| matches!(step.action, Action::HandOver { .. })).count();
        assert!(handed_over <= 1, "more than one handover at a time");
        for replaced in &plan.replace {
            self.take_down(seen, replaced.member);
        }
        self.crashed = false;
    }

    /// We never take a second pod down before the first is well again, nor one that is ready before the first is. One that runs
    /// nothing is down already, and nobody misses one that never did when we looked.
    fn take_down(&mut self, seen: &Observation, member: Member) {
        let surplus = !self.desired.wants(member) && member.shard.0 < self.desired.shards;
        assert!(!surplus, "{member} is not wanted, but made anew");
        let simulation = &self.simulation;
        let missed = !seen.unused.contains(&member) || !simulation.slots_of(member).is_empty();
        if simulation.is_running(member) && missed {
            let is_away = |other: Member| !simulation.is_well(other) || simulation.is_ready(member);
            let away = self.down.union(&self.evicted).chain(&self.stranded).copied();
            let mut away = away.filter(|other| self.desired.wants(*other));
            let other = away.find(|other| *other != member && is_away(*other));
            assert_eq!(other, None, "{member} would be down as well");
            let slots = simulation.slots_of(member);
            assert!(slots.is_empty() || self.desired.replicas == 0, "{member} leads, but would be taken down");
            self.replaced += usize::from(self.down.insert(member));
        }
        self.simulation.end(member);
    }

    /// Somebody who empties machines comes by, and evicts whom he may. Not while the operator is dead: it cannot close the door
    /// again if the shard needs the pod, and a fault at that moment is one too many.
    pub fn evict(&mut self) {
        if self.crashed {
            return;
        }
        for member in self.simulation.evictable() {
            let slots = self.simulation.slots_of(member);
            assert!(slots.is_empty() || self.desired.replicas == 0, "{member} leads, but may be evicted");
            let leader = self.simulation.leader(member.shard);
            // A shard that is leaving and has nothing any more, neither running nor on disk, has no leader, and needs nobody.
            let has_left = member.shard.0 >= self.desired.shards
                && self.simulation.owners().iter().all(|(owner, ..)| owner.shard != member.shard);
            let led_by_another = leader.is_some_and(|leader| leader != member);
            assert!(led_by_another || has_left || self.desired.replicas == 0, "{member} is needed");
            let of_shard = self.stranded.iter().filter(|other| other.shard == member.shard);
            let away = self.evicted.union(&self.down).chain(of_shard);
            let mut away = away.filter(|other| **other != member && self.desired.wants(**other));
            assert_eq!(away.next(), None, "{member} may be evicted as well");
            self.evicted.insert(member);
            self.simulation.end(member);
        }
    }

    /// Nobody goes who has slots, or is about to get some.
    fn check_workloads(&self, plan: &Plan) {
        let is_asked = |member: Member| plan.workloads.get(&member.shard).is_some_and(|count| member.ordinal < *count);
        for member in self.simulation.members().into_iter().filter(|member| !is_asked(*member)) {
            let slots = self.simulation.slots_of(member);
            assert!(slots.is_empty(), "{member} would go with slots {slots}");
            assert!(!self.simulation.is_target(member), "{member} would go while slots move to it");
        }
    }

    /// Works until everything is over. What has just happened may not be visible yet, so the first look does not count.
    pub fn settle(&mut self, bound: Duration) {
        self.run_for(Duration::from_secs(2));
        self.run_until_healthy(bound);
        self.assert_settled();
    }

    /// What must be true when everything is over: all that was written is there, and slots are spread evenly over all shards.
    fn assert_settled(&self) {
        assert_eq!(self.lost_writes(), []);
        assert_eq!(self.losses, []);
        let counts: Vec<u16> = self.simulation.owners().iter().map(|(_, _, slots)| slots.len()).collect();
        assert_eq!(counts.len(), usize::from(self.desired.shards), "{counts:?}");
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(least.zip(most).is_some_and(|(least, most)| most - least <= 1), "{counts:?}");
        assert_eq!(self.simulation.members(), self.desired.members().collect::<Vec<_>>());
    }

    /// Whether a fault may hit a member: somebody else has all that it has, and is not cut off.
    pub fn can_be_spared(&self, member: Member) -> bool {
        self.simulation.can_be_spared(member)
    }

    /// Brings back everybody who is cut off.
    pub fn mend(&mut self) {
        for member in self.simulation.members() {
            self.simulation.set_network(member, Network::Whole);
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.simulation.now() + time;
        while self.simulation.now() < end {
            self.pass();
        }
    }

    /// Works until the cluster is healthy, and fails if that takes too long.
    pub fn run_until_healthy(&mut self, bound: Duration) {
        let end = self.simulation.now() + bound;
        loop {
            let plan = self.pass();
            if plan.state == State::Healthy {
                assert_eq!(plan.steps().count(), 0, "a healthy cluster is left alone");
                return;
            }
            if self.simulation.now() > end {
                let blemishes = blemishes(self.desired, &self.simulation.observe());
                panic!("not healthy after {bound:?}: {:?} {:?} {blemishes:?}", plan.state, plan.rounds);
            }
        }
    }

    /// What must not happen in truth, whatever the observer knew.
    fn check_truth(&self, step: &Step) {
        match &step.action {
            Action::AddSlots { on, slots } => {
                let owners = self.simulation.owners();
                let rival = owners.iter().find(|(member, _, owned)| member != on && owned.intersects(slots));
                assert!(rival.is_none(), "{} would give slots of {rival:?} away", step.action);
            }
            Action::Forget { id, .. } => {
                assert!(!self.simulation.ids().contains(id), "{} would strike a living server", step.action);
            }
            _ => {}
        }
    }
}

/// Moves that fail again and again are told to a human, but go on: here they fail by chance.
fn needs_a_human(state: &State) -> bool {
    match state {
        State::Stuck(progress) => progress.operation != Operation::Scaling || !progress.message.contains("failed"),
        _ => false,
    }
}
