//! What Valkey nodes say about themselves and each other.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use redis::{RedisError, cmd};

use crate::bench::{Bench, address_of};
use crate::endpoint::{Endpoint, Host};

const PORT: u16 = 6379;
/// A node that hangs is a finding too.
const ANSWER: Duration = Duration::from_secs(2);

/// Whether a container of the pod is made from a Valkey image.
pub fn runs_in(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.filter_map(|container| container.image.as_deref()).any(|image| image.contains("/valkey:"))
}

/// `CLUSTER NODES`, `CLUSTER INFO` and `INFO`, asked directly with the first login that is let in.
pub async fn state(bench: &Bench, pod: &Pod) -> Result<String> {
    let address = SocketAddr::new(address_of(pod)?, PORT);
    let mut refusal = None;
    for login in [Endpoint::default()].into_iter().chain(bench.logins()) {
        // A certificate speaks of names, and the pod's own is in the domain of its Service.
        let named = login.dns.and_then(|_| Some(Host::new(host_of(pod)?, PORT)));
        match ask(&login, named.unwrap_or_else(|| address.into())).await {
            Ok(text) => return Ok(text),
            Err(error) => refusal = Some(error),
        }
    }
    Err(refusal.context("no login to try")?)
}

/// The name of a pod that has one.
fn host_of(pod: &Pod) -> Option<String> {
    let (name, namespace) = (pod.metadata.name.as_ref()?, pod.metadata.namespace.as_ref()?);
    Some(format!("{name}.{}.{namespace}.svc", pod.spec.as_ref()?.subdomain.as_ref()?))
}

async fn ask(login: &Endpoint, node: Host) -> Result<String> {
    let mut connection = login.node(node, ANSWER).await?;
    let mut text = String::new();
    for words in [["CLUSTER", "NODES"].as_slice(), &["CLUSTER", "INFO"], &["INFO", "everything"]] {
        let [first, rest @ ..] = words else { continue };
        let answer: Result<String, RedisError> = cmd(first).arg(rest).query_async(&mut connection).await;
        let answer = match answer {
            Err(error) if matches!(error.code(), Some("NOAUTH" | "NOPERM")) => return Err(error.into()),
            answer => answer.unwrap_or_else(|error| error.to_string()),
        };
        text.extend(["# ", &words.join(" "), "\n", &answer.replace('\r', ""), "\n"]);
    }
    Ok(text)
}
