//! What to do about an upgrade, and what to say: a plain function of the object, the facts and the time.
//!
//! Everything that must survive a restart is in the status. It is written before the deed that it speaks about, so a crash in between
//! finds the intention and carries it out; `startedAt` comes after the deed and tells the two apart.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use valkey_api::{ConditionStatus, ConditionType, UpgradePhase, UpgradeStatus, ValkeyUpgrade, conditions};

use super::facts::{ClusterFacts, Facts, OnStandstill, Standing, Tally, with_trouble};
use super::owner::Grip;
use super::path;

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// To be written first, if it says something new.
    pub status: UpgradeStatus,
    pub deed: Option<SetTag>,
}

/// Writes the tag into the cluster's spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetTag {
    pub tag: String,
    pub hold: Hold,
}

/// How the tag is taken hold of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The API server refuses if somebody else has it.
    IfFree,
    /// Also from somebody who set it once by hand.
    FromOneOff,
}

pub fn decide(upgrade: &ValkeyUpgrade, facts: &Facts, now: Timestamp) -> Decision {
    let before = upgrade.status.clone().unwrap_or_default();
    if upgrade.phase().is_over() {
        return Decision { status: before, deed: None };
    }
    let case = Case { upgrade, before, target: &upgrade.spec.target_version, now };
    let Some(cluster) = &facts.cluster else { return case.without_cluster() };
    let Some(from) = case.before.from_version.clone() else { return case.begin(cluster, facts.rival.as_deref()) };
    match (upgrade.phase(), case.before.started_at.is_some()) {
        (UpgradePhase::RollingBack, _) => case.roll_back(cluster, &from),
        (_, false) => case.start(cluster, &from),
        (_, true) => case.roll(cluster, &from),
    }
}

/// A refusal by the API server itself: somebody took the tag between our look and our write.
pub fn refused_at_the_write(
    upgrade: &ValkeyUpgrade,
    status: UpgradeStatus,
    words: &str,
    now: Timestamp,
) -> UpgradeStatus {
    let case = Case { upgrade, before: status, target: &upgrade.spec.target_version, now };
    let (phase, what) = match case.before.started_at {
        None => (UpgradePhase::Refused, "nothing was changed"),
        Some(_) => (UpgradePhase::Failed, "the former version was not written back"),
    };
    case.say(phase, "TagManaged", format!("somebody else manages spec.valkeyImage.tag, so {what}: {words}")).status
}

struct Case<'a> {
    upgrade: &'a ValkeyUpgrade,
    before: UpgradeStatus,
    target: &'a str,
    now: Timestamp,
}

impl Case<'_> {
    fn without_cluster(&self) -> Decision {
        let name = &self.upgrade.spec.cluster_ref.name;
        if self.before.from_version.is_some() {
            return self.say(
                UpgradePhase::Failed,
                "ClusterGone",
                format!("ValkeyCluster {name} was deleted meanwhile"),
            );
        }
        let words = format!(
            "there is no ValkeyCluster {name} in this namespace: create it, or correct spec.clusterRef in a new one"
        );
        self.say(UpgradePhase::Pending, "ClusterMissing", words)
    }

    /// Nothing was done yet.
    fn begin(&self, cluster: &ClusterFacts, rival: Option<&str>) -> Decision {
        let target = self.target;
        if let Some(rival) = rival {
            return self.say(
                UpgradePhase::Pending,
                "Queued",
                format!("waiting for ValkeyUpgrade {rival}, which goes first"),
            );
        }
        if let Standing::Rejected(words) = &cluster.standing {
            let words = format!("waiting until the cluster's spec is accepted: {words}");
            return self.say(UpgradePhase::Pending, "ClusterNotAccepted", words);
        }
        if cluster.tag == target {
            let mut decision =
                self.say(UpgradePhase::Succeeded, "NothingToDo", format!("the cluster's tag is {target} already"));
            decision.status.from_version = Some(target.into());
            return decision;
        }
        if let Err(words) = path::check(&cluster.tag, cluster.running, target) {
            return self.say(UpgradePhase::Refused, "VersionPath", words);
        }
        if let Grip::Managed(_) = &cluster.grip {
            return self.refuse_managed(cluster);
        }
        if self.upgrade.spec.is_paused() {
            return self.say(UpgradePhase::Paused, "Paused", "paused before its start; nothing was changed".into());
        }
        match &cluster.standing {
            Standing::Ready => self.set_out(cluster, &cluster.tag),
            Standing::Paused => {
                let words = "waiting until the cluster is not paused any more (its spec.paused)".into();
                self.say(UpgradePhase::Pending, "ClusterPaused", words)
            }
            Standing::Unready(words) | Standing::Rejected(words) => {
                let words =
                    format!("waiting until the cluster is Ready, so that no shard is left without a copy: {words}");
                self.say(UpgradePhase::Pending, "ClusterNotReady", words)
            }
        }
    }

    /// The intention first, then the deed.
    fn set_out(&self, cluster: &ClusterFacts, from: &str) -> Decision {
        let words = format!("writing {} into the cluster's spec.valkeyImage.tag", self.target);
        let mut decision = self.say(UpgradePhase::InProgress, "Starting", words);
        decision.status.from_version = Some(from.into());
        count(&mut decision.status, cluster, self.target);
        let hold = if cluster.grip == Grip::OneOff { Hold::FromOneOff } else { Hold::IfFree };
        decision.deed = Some(SetTag { tag: self.target.into(), hold });
        decision
    }

    /// The intention is written; whether the tag is must be seen.
    fn start(&self, cluster: &ClusterFacts, from: &str) -> Decision {
        if cluster.tag == self.target {
            let mut started = self.before.clone();
            started.started_at = Some(Time(self.now));
            started.last_progress_at = Some(Time(self.now));
            return Case { before: started, ..*self }.roll(cluster, from);
        }
        match &cluster.grip {
            _ if cluster.tag != from => self.fail_changed(cluster),
            Grip::Managed(_) => self.refuse_managed(cluster),
            _ if self.upgrade.spec.is_paused() => {
                self.say(UpgradePhase::Paused, "Paused", "paused before its start; nothing was changed".into())
            }
            _ => self.set_out(cluster, from),
        }
    }

    /// Pods are being made anew with the new version.
    fn roll(&self, cluster: &ClusterFacts, from: &str) -> Decision {
        let target = self.target;
        if cluster.tag != target {
            return self.fail_changed(cluster);
        }
        let tally = Tally::of(cluster, target);
        if tally.is_whole() && cluster.standing == Standing::Ready {
            let mut decision =
                self.say(UpgradePhase::Succeeded, "Upgraded", format!("every node runs {target} and is healthy"));
            count(&mut decision.status, cluster, target);
            return decision;
        }
        let paused = match &cluster.standing {
            _ if self.upgrade.spec.is_paused() => Some("paused"),
            Standing::Paused => Some("the cluster is paused (its spec.paused)"),
            _ => None,
        };
        let progress = format!("{} run {target}", tally.words());
        if let Some(why) = paused {
            let mut decision = self.say(UpgradePhase::Paused, "Paused", format!("{why}; {progress}"));
            count(&mut decision.status, cluster, target);
            return decision;
        }
        // Time that was spent in a pause does not count.
        let resumed = self.before.phase == Some(UpgradePhase::Paused);
        let mut decision = self.say(UpgradePhase::InProgress, "Rolling", with_trouble(&progress, cluster));
        if count(&mut decision.status, cluster, target) == Count::Risen || resumed {
            decision.status.last_progress_at = Some(Time(self.now));
        }
        if self.stands_still(&decision.status, cluster.patience) { self.give_up(cluster, from) } else { decision }
    }

    fn stands_still(&self, status: &UpgradeStatus, patience: SignedDuration) -> bool {
        let last = status.last_progress_at.as_ref().map_or(self.now, |last| last.0);
        self.now.duration_since(last) > patience
    }

    fn give_up(&self, cluster: &ClusterFacts, from: &str) -> Decision {
        let target = self.target;
        let seconds = cluster.patience.as_secs();
        let why = with_trouble(&format!("for {seconds} s no further node came up healthy with {target}"), cluster);
        let stop = |reason, advice: String| {
            let mut decision = self.say(UpgradePhase::Failed, reason, format!("{why}. {advice}"));
            count(&mut decision.status, cluster, target);
            decision
        };
        if cluster.on_standstill == OnStandstill::Stop {
            let advice = format!(
                "spec.upgrade.autoRollback is false, so the tag stays: set spec.valkeyImage.tag back to {from}, or mend what keeps the pod \
                 from coming up, and the roll goes on"
            );
            return stop("Standstill", advice);
        }
        if cluster.grip != Grip::Ours {
            let advice = "The tag is not managed by this upgrade alone any more, so it is not set back: decide who manages \
                          spec.valkeyImage.tag, and set it there";
            return stop("TagManaged", advice.into());
        }
        let written = Tally::of(cluster, target).updated() > 0;
        if cluster.replicas == 0 && written && !path::can_go_back(from, target) {
            let advice = format!(
                "Not rolled back: nodes without replicas run {target}, and {from} could not read the only copy of their data. Mend what \
                 keeps the other pods from coming up, and the roll goes on"
            );
            return stop("OnlyCopy", advice);
        }
        let mut decision = self.say(UpgradePhase::RollingBack, "Standstill", format!("{why}. Going back to {from}"));
        decision.status.most_updated = None;
        decision.status.last_progress_at = Some(Time(self.now));
        count(&mut decision.status, cluster, from);
        decision.deed = Some(SetTag { tag: from.into(), hold: Hold::IfFree });
        decision
    }

    /// Pods are being made anew with the former version.
    fn roll_back(&self, cluster: &ClusterFacts, from: &str) -> Decision {
        if cluster.tag == self.target {
            if cluster.grip != Grip::Ours {
                return self.fail_changed(cluster);
            }
            let deed = Some(SetTag { tag: from.into(), hold: Hold::IfFree });
            return Decision { status: self.before.clone(), deed };
        }
        if cluster.tag != from {
            return self.fail_changed(cluster);
        }
        let tally = Tally::of(cluster, from);
        let mut decision = if tally.is_whole() && cluster.standing == Standing::Ready {
            let words = format!("{} could not be reached; every node runs {from} again and is healthy", self.target);
            self.say(UpgradePhase::RolledBack, "RolledBack", words)
        } else {
            let held = if self.upgrade.spec.is_paused() { "paused; " } else { "" };
            let words = format!("{held}going back: {} run {from}", tally.words());
            self.say(UpgradePhase::RollingBack, "Standstill", with_trouble(&words, cluster))
        };
        if count(&mut decision.status, cluster, from) == Count::Risen {
            decision.status.last_progress_at = Some(Time(self.now));
        }
        decision
    }

    fn refuse_managed(&self, cluster: &ClusterFacts) -> Decision {
        let Grip::Managed(manager) = &cluster.grip else { return self.fail_changed(cluster) };
        let words = format!(
            "spec.valkeyImage.tag of ValkeyCluster {} is managed by {}, which would undo what is written here: set it to {} {}, which \
             starts the same roll",
            self.upgrade.spec.cluster_ref.name, manager.name, self.target, manager.place
        );
        self.say(UpgradePhase::Refused, "TagManaged", words)
    }

    fn fail_changed(&self, cluster: &ClusterFacts) -> Decision {
        let words = format!(
            "somebody else has set spec.valkeyImage.tag to {} meanwhile: this upgrade does nothing more; make a new one if it is \
             still wanted",
            cluster.tag
        );
        self.say(UpgradePhase::Failed, "TagChanged", words)
    }

    /// The status as it was, with what is new about it.
    fn say(&self, phase: UpgradePhase, reason: &str, message: String) -> Decision {
        let generation = self.upgrade.metadata.generation.unwrap_or_default();
        let now = Time(self.now);
        let mut status = self.before.clone();
        let mut set = |kind, holds, message: &str| {
            conditions::set(&mut status.conditions, kind, holds, reason, message, generation, now.clone());
        };
        let (accepted, progressing, succeeded) = verdicts(phase);
        set(ConditionType::Accepted, accepted, &message);
        set(ConditionType::Progressing, progressing, &message);
        set(ConditionType::Succeeded, succeeded, &message);
        status.completed_at = phase.is_over().then_some(now);
        status.phase = Some(phase);
        status.observed_generation = Some(generation);
        status.message = Some(message);
        Decision { status, deed: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Risen,
    Same,
}

/// Writes down how many nodes are where they should be.
fn count(status: &mut UpgradeStatus, cluster: &ClusterFacts, wanted: &str) -> Count {
    let tally = Tally::of(cluster, wanted);
    let (updated, most) = (tally.updated(), status.most_updated.unwrap_or_default());
    status.updated_nodes = Some(format!("{updated}/{}", tally.total()));
    status.shards = tally.into_shards();
    // A node that comes and goes is no progress, however often it comes.
    status.most_updated = Some(updated.max(most));
    if updated > most { Count::Risen } else { Count::Same }
}

fn verdicts(phase: UpgradePhase) -> (ConditionStatus, ConditionStatus, ConditionStatus) {
    use ConditionStatus::{False, True, Unknown};
    match phase {
        UpgradePhase::Pending => (Unknown, False, Unknown),
        UpgradePhase::InProgress | UpgradePhase::RollingBack => (True, True, Unknown),
        UpgradePhase::Paused => (True, False, Unknown),
        UpgradePhase::Succeeded => (True, False, True),
        UpgradePhase::RolledBack | UpgradePhase::Failed => (True, False, False),
        UpgradePhase::Refused => (False, False, False),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
