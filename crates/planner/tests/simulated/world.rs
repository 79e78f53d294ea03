//! The planner at work in a simulated world, and the promises that it must keep at every step.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use valkey_model::{
    Action, Desired, Member, NodeId, Observation, Role, ShardIndex, Sighting, SlotSet, Step, blemishes,
};
use valkey_planner::guard::{self, Launch, PeerWord, Released, Verdict, judge};
use valkey_planner::{Loss, Plan, State, plan};
use valkey_testkit::simulation::{Applicant, Guard, Persistence, Random, Simulation, Weather};

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
    random: Random,
    /// Steps of a hundred after which the operator dies and starts over.
    crashes: u64,
    written: BTreeMap<ShardIndex, u32>,
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
        Self { desired, simulation, losses: Vec::new(), random, crashes: 0, written: BTreeMap::new() }
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

    /// Writes a little to every shard that takes it.
    pub fn write_everywhere(&mut self) {
        for shard in (0..self.desired.shards).map(ShardIndex) {
            let count = self.written.entry(shard).or_default();
            for _ in 0..5 {
                assert!(self.simulation.write(shard, *count), "shard {shard} takes no writes");
                *count += 1;
            }
        }
    }

    pub fn lost_writes(&self) -> Vec<(ShardIndex, u32)> {
        let lost = self.written.iter().flat_map(|(shard, count)| {
            let found = self.simulation.read(*shard);
            (0..*count).filter(move |write| !found.contains(write)).map(|write| (*shard, write))
        });
        lost.collect()
    }

    /// Looks, plans and acts once, and says how it found the cluster.
    pub fn pass(&mut self) -> Plan {
        let seen = self.simulation.observe();
        let plan = plan(self.desired, &seen);
        assert!(!matches!(plan.state, State::Stuck(_)), "nothing here needs a human: {:?}", plan.state);
        self.losses.extend(plan.losses.iter().copied());
        for step in plan.steps() {
            check(self.desired, &seen, step);
            self.check_truth(step);
            // A refusal is no news: the next look finds what is left to do.
            let _ = self.simulation.carry_out(step);
            if self.random.chance(self.crashes) {
                break;
            }
        }
        let pause = plan.look_again().unwrap_or(Duration::from_millis(500));
        assert!(pause >= Duration::from_millis(50), "a busy loop");
        self.simulation.tick(pause);
        plan
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

/// What a step must not do in view of what was seen.
fn check(desired: Desired, seen: &Observation, step: &Step) {
    let known = |member: Member| seen.report(member).unwrap_or_else(|| panic!("{} is not there", step.action));
    match &step.action {
        Action::Replicate { on, primary } => {
            let report = known(*on);
            assert!(report.slots.is_empty(), "{} has slots", step.action);
            assert!(report.role == Role::Replica || report.keys == 0, "{} has keys", step.action);
            let home = seen.reports().find(|(_, leader)| leader.id == *primary).map(|(member, _)| member.shard);
            assert_eq!(home, Some(on.shard), "{} leaves its shard", step.action);
        }
        Action::Forget { id, .. } => {
            let held = |s: &Sighting| matches!(s, Sighting::Held(held) if held.id == *id);
            assert!(!seen.reports().any(|(_, report)| report.id == *id), "{} is alive", step.action);
            assert!(!seen.members.values().any(held), "{} is held", step.action);
            assert!(desired.members().all(|member| is_known(seen.sighting(member))), "{}: unknown", step.action);
        }
        Action::AddSlots { slots, .. } => {
            let owned = owned_anywhere(seen);
            assert!(!owned.intersects(slots), "{}: somebody owns them", step.action);
        }
        Action::TakeOver { on } => {
            let primary = known(*on).primary.expect("a replica");
            assert!(is_proven_gone(desired, seen, *on, primary), "{}: no proof", step.action);
        }
        Action::SetEpoch { on, .. } => assert!(known(*on).is_blank(), "{}: not blank", step.action),
        Action::Meet { on, address } => {
            known(*on);
            assert!(seen.reports().any(|(_, report)| report.address == *address), "{}: a stranger", step.action);
        }
        Action::Release { on } => {
            assert!(matches!(seen.sighting(*on), Sighting::Held(_)), "{}: not held", step.action);
        }
        Action::SetNodeTimeout { .. } => {}
    }
}

fn is_known(sighting: &Sighting) -> bool {
    matches!(sighting, Sighting::Known(_) | Sighting::Held(_))
}

fn owned_anywhere(seen: &Observation) -> SlotSet {
    let own = seen.reports().map(|(_, report)| &report.slots);
    let told = seen.reports().flat_map(|(_, report)| report.peers.iter().map(|peer| &peer.slots));
    let held = seen.members.values().filter_map(|sighting| match sighting {
        Sighting::Held(held) => Some(&held.slots),
        _ => None,
    });
    own.chain(told).chain(held).fold(SlotSet::EMPTY, |all, slots| all.union(slots))
}

fn is_proven_gone(desired: Desired, seen: &Observation, heir: Member, primary: NodeId) -> bool {
    let held = seen.members.values().any(|s| matches!(s, Sighting::Held(held) if held.id == primary));
    let mut shard = desired.members().filter(|member| member.shard == heir.shard);
    let all_known = shard.all(|member| is_known(seen.sighting(member)));
    let alive = seen.reports().any(|(_, report)| report.id == primary);
    !alive && (held || all_known)
}
