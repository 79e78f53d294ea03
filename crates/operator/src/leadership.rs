//! Who acts: of several replicas of the operator the one that holds the Lease.
//!
//! A claim has an end by our own monotonic clock, counted from *before* the request that renewed it, and is looked at before
//! each write (`guarded_client`). So a leader that was cut off or frozen stops by itself before another one may start, and
//! nothing depends on the clocks of two machines being equal.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const NAME: &str = "valkey-operator";
/// How long a claim lasts.
const DURATION: Duration = Duration::from_secs(10);
/// How often a leader renews its claim.
const RENEWAL: Duration = Duration::from_secs(3);
/// How often somebody else looks whether the claim has ended.
const PATROL: Duration = Duration::from_secs(2);
/// How long a leader acts on a claim. Shorter than it lasts: a write that is under way at the end must be over before another
/// leads.
const TENURE: Duration = Duration::from_secs(8);

/// A claim to lead that everybody who writes looks at.
#[derive(Clone, Debug, Default)]
pub struct Leadership(Arc<Mutex<Option<Instant>>>);

impl Leadership {
    pub fn holds(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn claim(&self, since: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(since + TENURE);
    }

    fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Another's claim as last seen, and since when it has not changed by our clock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sighting {
    holder: String,
    renewed: Option<Timestamp>,
}

/// One candidate.
#[derive(Debug)]
pub struct Candidate {
    leases: Api<Lease>,
    identity: String,
    leadership: Leadership,
    last_seen: Option<(Sighting, Instant)>,
}

impl Candidate {
    /// `identity` is the pod's name: a container that restarts in the same pod goes on with its own claim at once, since its
    /// predecessor is surely dead.
    pub fn new(client: Client, namespace: &str, identity: &str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            identity: identity.to_owned(),
            leadership: Leadership::default(),
            last_seen: None,
        }
    }

    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until this process leads.
    pub async fn lead(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return tracing::info!(identity = self.identity, "leading"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the Lease cannot be read or written; trying again"),
            }
            sleep(PATROL).await;
        }
    }

    /// Renews the claim until `stop`, which releases it, or until it is lost.
    pub async fn keep(mut self, stop: CancellationToken) -> Lost {
        loop {
            tokio::select! {
                () = sleep(RENEWAL) => {}
                () = stop.cancelled() => {
                    self.release().await;
                    return Lost::Released;
                }
            }
            match self.attempt().await {
                Ok(true) => {}
                Ok(false) => {
                    self.leadership.end();
                    return Lost::ToAnother;
                }
                Err(error) => {
                    tracing::warn!(%error, "the Lease cannot be renewed; trying again");
                    if !self.leadership.holds() {
                        return Lost::Expired;
                    }
                }
            }
        }
    }

    /// Claims or renews, if nobody else's claim stands.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let begun = Instant::now();
        let Some(current) = self.leases.get_opt(NAME).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() },
                spec: Some(self.spec(None)),
            };
            return self.written(begun, self.leases.create(&PostParams::default(), &lease).await);
        };
        if self.stands_for_another(&current) {
            return Ok(false);
        }
        // The resource version of `current` goes along, so of two that write at once only one succeeds.
        let next = Lease { spec: Some(self.spec(current.spec.as_ref())), ..current };
        self.written(begun, self.leases.replace(NAME, &PostParams::default(), &next).await)
    }

    fn written(&self, begun: Instant, result: kube::Result<Lease>) -> kube::Result<bool> {
        match result {
            Ok(_) => {
                self.leadership.claim(begun);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether somebody else holds the Lease and has renewed it within its duration, as far as we could watch.
    fn stands_for_another(&mut self, lease: &Lease) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder.is_empty() || holder == self.identity {
            return false;
        }
        let sighting = Sighting { holder, renewed: spec.renew_time.map(|time| time.0) };
        match &self.last_seen {
            Some((before, since)) if *before == sighting => since.elapsed() < DURATION,
            _ => {
                self.last_seen = Some((sighting, Instant::now()));
                true
            }
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mine = before.filter(|before| before.holder_identity.as_ref() == Some(&self.identity));
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or(0);
        LeaseSpec {
            acquire_time: mine.and_then(|mine| mine.acquire_time.clone()).or_else(|| Some(now.clone())),
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            lease_transitions: Some(if mine.is_some() { transitions } else { transitions.saturating_add(1) }),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }

    /// Lets the next one lead at once instead of after the end of the claim. Best effort: the claim ends anyway.
    async fn release(&self) {
        self.leadership.end();
        let Ok(Some(mut lease)) = self.leases.get_opt(NAME).await else { return };
        let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
        else {
            return;
        };
        spec.holder_identity = None;
        if let Err(error) = self.leases.replace(NAME, &PostParams::default(), &lease).await {
            tracing::warn!(%error, "the Lease was not released; the next leader waits for its end");
        }
    }
}

/// Why a leader leads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Released,
    ToAnother,
    Expired,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_by_itself_before_another_may_start() {
        let leadership = Leadership::default();
        assert!(!leadership.holds());
        let now = Instant::now();
        leadership.claim(now);
        assert!(leadership.holds());
        leadership.claim(now.checked_sub(TENURE).unwrap());
        assert!(TENURE < DURATION);
        assert!(!leadership.holds(), "acted upon for longer than {TENURE:?}");
    }
}
