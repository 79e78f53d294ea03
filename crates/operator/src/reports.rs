//! What sidecars tell by themselves. A report is a hint: it wakes the pass of its cluster, which then looks for itself.

use std::sync::Arc;

use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc;
use valkey_pki::{Identity, SpiffeId, TrustDomain, identity_of};
use valkey_rpc::{Event, Refusal, Report, ReportDesk, Sender, Turned};

use crate::stores::Wake;

/// Takes reports, of each pod about itself only.
#[derive(Debug)]
pub struct Desk {
    pub trust_domain: TrustDomain,
    pub wakes: mpsc::UnboundedSender<Wake>,
}

/// Lets pods of this trust domain in. Which of them may report what is the desk's part.
pub fn admits_pods(
    trust_domain: TrustDomain,
) -> impl Fn(&rustls::pki_types::CertificateDer<'_>) -> Result<(), Refusal> {
    move |certificate| match identity_of(certificate) {
        Ok(SpiffeId { trust_domain: domain, identity: Identity::Pod { .. } }) if domain == trust_domain => Ok(()),
        Ok(other) => Err(Refusal(format!("{other} is not a pod of this installation"))),
        Err(error) => Err(Refusal(error.to_string())),
    }
}

impl ReportDesk for Desk {
    async fn take(&self, sender: Sender, report: Report) -> Result<(), Turned> {
        let expected = SpiffeId::pod(&self.trust_domain, &report.namespace, &report.cluster, &report.pod);
        let away = |away: String| Turned { away };
        let expected = expected.map_err(|error| away(error.to_string()))?;
        let identity = identity_of(&sender.certificate).map_err(|error| away(error.to_string()))?;
        if identity != expected {
            tracing::warn!(%identity, address = %sender.address, claimed = %expected, "a pod reported for another one; refused");
            return Err(away(format!("{identity} may not report for {expected}")));
        }
        tracing::debug!(pod = report.pod, namespace = report.namespace, event = ?report.event, "report");
        if report.event != Event::Heartbeat {
            // The receiver is gone only while this process ends.
            let _ = self.wakes.send(ObjectRef::new(&report.cluster).within(&report.namespace));
        }
        Ok(())
    }
}

/// For the wiring: a desk behind an `Arc`, and the other end of its wakes.
pub fn desk(trust_domain: TrustDomain) -> (Arc<Desk>, mpsc::UnboundedReceiver<Wake>) {
    let (wakes, woken) = mpsc::unbounded_channel();
    (Arc::new(Desk { trust_domain, wakes }), woken)
}
