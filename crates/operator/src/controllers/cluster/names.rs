//! Whether clients find a pod. They are sent to names, and for some seconds after a pod was made anew its name leads to where its
//! predecessor was: DNS servers remember. A shard that is handed over to such a pod is away for its clients until they forget.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::net::lookup_host;
use tokio::time::timeout;
use valkey_api::ChildNames;
use valkey_api::names::VALKEY_PORT;
use valkey_model::Member;

use super::observe::ready_since;
use crate::context::Memory;

/// Each question goes to one of the DNS servers by chance, and each of them remembers for itself.
const QUESTIONS: usize = 8;
const ANSWER: Duration = Duration::from_millis(500);
/// Longer than DNS servers usually remember: whose name is wrong for so long would be so for ever.
const FRESH: SignedDuration = SignedDuration::from_secs(60);
/// Where no name can be resolved at all, as outside of Kubernetes, nobody waits for it for longer.
const WITHOUT_DNS: SignedDuration = SignedDuration::from_secs(10);

/// Pods that are ready, but whose names do not lead to them yet. Asked only when somebody is to lead who did not before.
pub async fn misleading(
    names: &ChildNames,
    namespace: &str,
    pods: &BTreeMap<Member, Arc<Pod>>,
    memory: &mut Memory,
) -> BTreeSet<Member> {
    let now = Timestamp::now();
    let unsure = pods.iter().filter(|(member, _)| !memory.found.contains_key(member));
    let fresh = unsure.filter_map(|(member, pod)| {
        let age = now.duration_since(ready_since(pod)?);
        let address = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
        (age < FRESH).then_some((*member, address, age))
    });
    let asked = fresh.map(|(member, address, age)| async move {
        let name = names.pod_host(member, namespace);
        let found = join_all((0..QUESTIONS).map(|_| lookup(&name))).await;
        (member, leads_to(address, &found, age))
    });
    let (found, misleading): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().partition(|(_, leads)| *leads);
    let uid = |member: Member| Some((member, pods.get(&member)?.uid()?));
    memory.found.extend(found.into_iter().filter_map(|(member, _)| uid(member)));
    misleading.into_iter().map(|(member, _)| member).collect()
}

/// What one DNS server says; `None` if it does not know the name, or nothing.
async fn lookup(name: &str) -> Option<Vec<IpAddr>> {
    let found = timeout(ANSWER, lookup_host((name, VALKEY_PORT))).await.ok()?.ok()?;
    Some(found.map(|address| address.ip()).collect())
}

fn leads_to(address: IpAddr, found: &[Option<Vec<IpAddr>>], age: SignedDuration) -> bool {
    if found.iter().all(Option::is_none) {
        return age >= WITHOUT_DNS;
    }
    found.iter().all(|one| one.as_ref().is_some_and(|addresses| addresses.contains(&address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(all: &[&str]) -> Vec<Option<Vec<IpAddr>>> {
        all.iter().map(|text| text.parse().ok().map(|address| vec![address])).collect()
    }

    #[test]
    fn every_server_must_lead_to_the_pod() {
        let (here, soon) = ("10.0.0.2".parse().unwrap(), SignedDuration::from_secs(20));
        assert!(leads_to(here, &answers(&["10.0.0.2", "10.0.0.2"]), soon));
        assert!(!leads_to(here, &answers(&["10.0.0.2", "10.0.0.1"]), soon));
        assert!(!leads_to(here, &answers(&["10.0.0.2", "unknown"]), soon));
    }

    #[test]
    fn where_there_is_no_dns_nobody_waits_for_it_for_long() {
        let here = "10.0.0.2".parse().unwrap();
        assert!(!leads_to(here, &answers(&["unknown"]), SignedDuration::from_secs(1)));
        assert!(leads_to(here, &answers(&["unknown"]), SignedDuration::from_secs(11)));
    }
}
