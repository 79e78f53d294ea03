//! Who may talk to whom, and where secrets may be.

mod leaks;
mod nodes;
mod peers;
mod visit;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use e2e::{Bench, Cluster, secs};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::LogParams;
use kube::{Api, ResourceExt};
use secrecy::SecretString;

/// Where the operator and the keys of all authorities are.
const OPERATOR_NAMESPACE: &str = "valkey-operator-system";
/// Cheap, and enough to be asked.
const SMALL: &str = "{masterCount: 3, replicasPerMaster: 0, persistence: {enabled: false}}";

async fn small(k: &Bench, name: &str) -> Result<Cluster> {
    let cluster = Cluster::apply(k, name, SMALL).await?;
    cluster.ready(secs(90)).await?;
    Ok(cluster)
}

/// The texts in a Secret.
struct Entries {
    secret: String,
    texts: BTreeMap<String, String>,
}

impl Entries {
    async fn read(k: &Bench, namespace: &str, secret: &str) -> Result<Self> {
        let found = Api::<Secret>::namespaced(k.client().clone(), namespace).get(secret).await;
        Self::of(found.with_context(|| format!("cannot read Secret {secret} of {namespace}"))?)
    }

    fn of(secret: Secret) -> Result<Self> {
        let name = secret.name_any();
        let text = |(key, value): (String, k8s_openapi::ByteString)| Ok((key, String::from_utf8(value.0)?));
        Ok(Self { secret: name, texts: secret.data.unwrap_or_default().into_iter().map(text).collect::<Result<_>>()? })
    }

    fn text(&self, entry: &str) -> Result<&str> {
        let text = self.texts.get(entry).with_context(|| format!("Secret {} has no {entry}", self.secret))?;
        Ok(text)
    }
}

/// A certificate with its chain and key, as they are in a Secret.
struct Shown {
    chain: String,
    key: SecretString,
}

impl Shown {
    /// What a pod of a cluster shows, for the purpose `mtls` or `tls`.
    async fn by_pod(k: &Bench, pod: &str, purpose: &str) -> Result<Self> {
        let (shard, _) = pod.rsplit_once('-').context("not the name of a pod")?;
        let entries = Entries::read(k, k.namespace(), &format!("{shard}-certs")).await?;
        let entry = |kind: &str| entries.text(&format!("{pod}.{purpose}.{kind}")).map(str::to_owned);
        Ok(Self { chain: entry("crt")?, key: entry("key")?.into() })
    }
}

async fn log(k: &Bench, namespace: &str, pod: &str, container: &str) -> Result<String> {
    let pods = Api::<Pod>::namespaced(k.client().clone(), namespace);
    let params = LogParams { container: Some(container.into()), ..LogParams::default() };
    pods.logs(pod, &params).await.with_context(|| format!("cannot read the log of {container} in {pod}"))
}
