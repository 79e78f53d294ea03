//! Secrets are in Secrets, and nowhere else.

use std::fs;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, secs};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::discovery::{ApiGroup, Discovery, verbs};
use kube::{Api, ResourceExt};

use super::{Entries, OPERATOR_NAMESPACE, log};

/// Endings of the entries that everybody may know.
const PUBLIC: [&str; 5] = [".crt", "host", "port", "tls", "username"];
/// Shorter words are no secrets: in a list of users most words are rights.
const SHORTEST: usize = 24;

#[e2e::test]
async fn no_secret_shows_outside_of_secrets(k: Bench) -> Result<()> {
    let orders = Cluster::apply(&k, "orders", "{}").await?;
    orders.ready(secs(90)).await?;

    let needles = secrets(&k).await?;
    let entries = |ending: &str| needles.iter().filter(|needle| needle.entry.ends_with(ending)).count();
    assert!(entries("password") >= 3, "admin, replication and application have a password each");
    assert!(entries(".key") >= 12 + 3, "every pod has a key for each purpose, and every authority has one");

    let hay = [objects(&k).await?, logs(&k).await?, processes()?];
    // Each kind of hay must be able to show something.
    let (namespace, [objects_now, logs, processes]) = (k.namespace(), &hay);
    let someone_says = |places: &[Hay], word: &str| places.iter().any(|hay| hay.text.contains(word));
    assert!(someone_says(objects_now, &format!("orders.{namespace}.svc")), "no object names the cluster's host");
    assert!(someone_says(logs, namespace), "no log names the namespace");
    assert!(someone_says(processes, "--cluster=orders"), "no process has an argument of ours");
    assert!(someone_says(processes, &format!("POD_NAMESPACE={namespace}")), "no process has a variable of ours");
    for places in &hay {
        assert_eq!(found(&needles, places), <[String; 0]>::default());
    }
    let asked = orders.command::<redis::Value>("orders-0-0", &["CONFIG", "GET", "*auth*"]).await;
    assert!(asked.is_err(), "an application reads the configuration, with passwords in it");

    // And whoever lets something slip is caught.
    let password = orders.connection().await?.remove("password").context("no password")?;
    k.apply(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: slip}}\ndata: {{word: {password:?}}}\n"))
        .await?;
    let slip = format!("orders-connection/password shows in ConfigMap {namespace}/slip");
    assert_eq!(found(&needles, &objects(&k).await?), [slip]);
    Ok(())
}

#[e2e::test]
async fn what_the_server_reads_is_for_its_user_alone(k: Bench) -> Result<()> {
    super::small(&k, "orders").await?;
    let list = ["find", "/run/valkey", "-type", "f", "-exec", "stat", "-c", "%a %n", "{}", "+"];
    let files = k.exec("orders-0-0", &list).await?;
    for secret in ["tls.key", "users.acl", "valkey.conf"] {
        assert!(files.contains(&format!("/run/valkey/{secret}")), "{secret} is not there: {files}");
    }
    for line in files.lines().filter(|line| !line.ends_with("/launcher")) {
        ensure!(line.starts_with("600 "), "others may read {line}");
    }
    Ok(())
}

/// Something that must not be seen.
struct Needle {
    /// Where it comes from. The value is never printed.
    entry: String,
    value: String,
}

/// Some place where it might be.
struct Hay {
    place: String,
    text: String,
}

/// Everything secret that was made for the clusters of this namespace, and the root's key.
async fn secrets(k: &Bench) -> Result<Vec<Needle>> {
    let central = Api::<Secret>::namespaced(k.client().clone(), OPERATOR_NAMESPACE);
    let authorities = ListParams::default().labels(&format!("valkey.io/of-namespace={}", k.namespace()));
    let mut secrets = k.objects::<Secret>().list().await?;
    secrets.extend(central.list(&authorities).await?.items);
    secrets.push(central.get("valkey-operator-root-ca").await?);
    let mut needles = Vec::new();
    for secret in secrets {
        let Entries { secret, texts } = Entries::of(secret)?;
        let is_public = |name: &str| PUBLIC.iter().any(|ending| name.ends_with(ending));
        for (name, text) in texts.iter().filter(|(name, _)| !is_public(name)) {
            let entry = format!("{secret}/{name}");
            needles.extend(forms(text)?.into_iter().map(|value| Needle { entry: entry.clone(), value }));
        }
    }
    Ok(needles)
}

fn found(needles: &[Needle], places: &[Hay]) -> Vec<String> {
    let mut found = Vec::new();
    for Hay { place, text } in places {
        let shown = needles.iter().filter(|needle| text.contains(&needle.value));
        found.extend(shown.map(|needle| format!("{} shows in {place}", needle.entry)));
    }
    found
}

/// As Kubernetes writes it, and each word of it that says something.
fn forms(text: &str) -> Result<Vec<String>> {
    let base64 = serde_json::to_value(ByteString(text.into()))?;
    let base64 = base64.as_str().context("not a text")?.to_owned();
    // What follows in a key is its public half, which every certificate shows.
    let words = if text.contains("PRIVATE KEY") { 2 } else { usize::MAX };
    let words = text.split_whitespace().filter(|word| word.len() >= SHORTEST).take(words);
    Ok(words.map(str::to_owned).chain([base64]).collect())
}

/// Every object of every kind in the whole cluster, but Secrets.
async fn objects(k: &Bench) -> Result<Vec<Hay>> {
    let discovery = Discovery::new(k.client().clone()).run_aggregated().await?;
    let kinds = discovery.groups().flat_map(ApiGroup::recommended_resources);
    let kinds = kinds.filter(|(kind, can)| can.supports_operation(verbs::LIST) && kind.kind != "Secret");
    let kinds: Vec<ApiResource> = kinds.map(|(kind, _)| kind).collect();
    let mut hay = Vec::new();
    for kind in kinds {
        let listed = Api::<DynamicObject>::all_with(k.client().clone(), &kind).list(&ListParams::default()).await;
        for object in listed.with_context(|| format!("cannot list {}", kind.plural))? {
            let place = format!("{} {}/{}", kind.kind, object.namespace().unwrap_or_default(), object.name_any());
            hay.push(Hay { place, text: serde_json::to_string(&object)? });
        }
    }
    Ok(hay)
}

/// What all containers of the test and of the operator have said.
async fn logs(k: &Bench) -> Result<Vec<Hay>> {
    let operators = Api::<Pod>::namespaced(k.client().clone(), OPERATOR_NAMESPACE).list(&ListParams::default()).await?;
    let mut hay = Vec::new();
    for pod in k.pods().list().await?.into_iter().chain(operators) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let spec = pod.spec.unwrap_or_default();
        for container in spec.init_containers.into_iter().flatten().chain(spec.containers) {
            let text = log(k, &namespace, &name, &container.name).await?;
            hay.push(Hay { place: format!("the log of {} in {name}", container.name), text });
        }
    }
    Ok(hay)
}

/// Arguments and environment of all processes of this machine, which the nodes are a part of.
fn processes() -> Result<Vec<Hay>> {
    let mut hay = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let folder = entry?.path();
        if folder.file_name().is_none_or(|name| name.to_string_lossy().parse::<u32>().is_err()) {
            continue;
        }
        for file in ["cmdline", "environ"] {
            // One that ended meanwhile has nothing to show.
            let Ok(content) = fs::read(folder.join(file)) else { continue };
            let text = String::from_utf8_lossy(&content).replace('\0', " ");
            hay.push(Hay { place: format!("{file} of process {}", folder.display()), text });
        }
    }
    Ok(hay)
}
