//! Kubernetes objects of one kind: reading them, and waiting for them by watching.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, pin_mut};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::report::pods;

/// How much of one object's state a message shows.
const GLANCE: usize = 600;
/// How many objects a message shows.
const GLANCES: usize = 12;

/// The objects of a kind that a test looks at: all of a namespace, or those that match.
#[derive(Clone, Debug)]
pub struct Objects<K> {
    api: Api<K>,
    fields: Option<String>,
    labels: Option<String>,
}

impl<K> Objects<K>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    pub(crate) fn new(api: Api<K>) -> Self {
        Self { api, fields: None, labels: None }
    }

    /// Only the object with this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.fields = Some(format!("metadata.name={name}"));
        self
    }

    /// Only objects with these labels, written as `key=value,…`.
    #[must_use]
    pub fn labelled(mut self, selector: &str) -> Self {
        self.labels = Some(selector.into());
        self
    }

    pub async fn get(&self, name: &str) -> Result<K> {
        self.api.get(name).await.with_context(|| format!("cannot read {name}"))
    }

    pub async fn list(&self) -> Result<Vec<K>> {
        let Self { api, fields, labels } = self;
        let params =
            ListParams { field_selector: fields.clone(), label_selector: labels.clone(), ..ListParams::default() };
        Ok(api.list(&params).await?.items)
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        self.api.delete(name, &DeleteParams::default()).await.with_context(|| format!("cannot delete {name}"))?;
        Ok(())
    }

    /// Deletes all of the objects at once and without grace, as `kubectl delete --force` does.
    pub async fn delete_now(&self) -> Result<()> {
        let Self { api, fields, labels } = self;
        let which =
            ListParams { field_selector: fields.clone(), label_selector: labels.clone(), ..ListParams::default() };
        api.delete_collection(&DeleteParams::default().grace_period(0), &which).await?;
        Ok(())
    }

    /// Changes an object the way `kubectl patch --type merge` does.
    pub async fn merge(&self, name: &str, change: Value) -> Result<K> {
        let patched = self.api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        patched.with_context(|| format!("cannot change {name}"))
    }

    /// Watches until the condition holds for all of the objects together, and returns them as they were then.
    ///
    /// The error names what was waited for and what was seen last.
    pub async fn until(
        &self,
        what: &str,
        within: Duration,
        mut condition: impl FnMut(&[&K]) -> bool,
    ) -> Result<Vec<K>> {
        let end = Instant::now() + within;
        let Self { api, fields, labels } = self;
        let config = Config { field_selector: fields.clone(), label_selector: labels.clone(), ..Config::default() };
        let events = watcher(api.clone(), config).default_backoff();
        pin_mut!(events);
        let mut seen: BTreeMap<String, K> = BTreeMap::new();
        let mut listing: BTreeMap<String, K> = BTreeMap::new();
        let mut settled = false;
        let mut trouble = None;
        loop {
            match timeout_at(end, events.next()).await {
                Ok(Some(Ok(event))) => match event {
                    Event::Init => (listing, settled) = (BTreeMap::new(), false),
                    Event::InitApply(object) => drop(listing.insert(object.name_any(), object)),
                    Event::InitDone => (seen, settled) = (std::mem::take(&mut listing), true),
                    Event::Apply(object) => drop(seen.insert(object.name_any(), object)),
                    Event::Delete(object) => drop(seen.remove(&object.name_any())),
                },
                Ok(Some(Err(error))) => trouble = Some(error),
                Ok(None) | Err(_) => {
                    let trouble = trouble.map(|error| format!("; the watch had trouble: {error}")).unwrap_or_default();
                    bail!("waited {within:.0?} for {what}; last seen: {}{trouble}", glance(seen.values()));
                }
            }
            // While a list is being read nothing can be said about all objects together.
            if settled && condition(&seen.values().collect::<Vec<_>>()) {
                return Ok(seen.into_values().collect());
            }
        }
    }

    /// Watches until the one object that is meant satisfies the condition.
    pub async fn until_it(&self, what: &str, within: Duration, condition: impl Fn(&K) -> bool) -> Result<K> {
        let found = self.until(what, within, |all| matches!(all, [one] if condition(one))).await?;
        found.into_iter().next().context("the object went away while it was looked at")
    }

    /// Watches until there are none.
    pub async fn until_gone(&self, what: &str, within: Duration) -> Result<()> {
        self.until(what, within, |all| all.is_empty()).await.map(drop)
    }
}

/// The state of some objects in a few lines.
fn glance<'a, K: Serialize + 'a>(objects: impl ExactSizeIterator<Item = &'a K>) -> String {
    let in_all = objects.len();
    if in_all == 0 {
        return "nothing".into();
    }
    let mut text = String::new();
    for object in objects.take(GLANCES) {
        let state = state_of(serde_json::to_value(object).unwrap_or_default());
        text.push_str("\n  ");
        text.extend(state.chars().take(GLANCE));
    }
    match in_all.saturating_sub(GLANCES) {
        0 => text,
        more => format!("{text}\n  and {more} more"),
    }
}

/// An object's status without what nobody looks for: the plain values, and conditions in a few words each.
fn state_of(whole: Value) -> String {
    if whole.get("kind").and_then(Value::as_str) == Some("Pod") {
        let described = serde_json::from_value(whole).map(|pod| pods::describe(&pod));
        return described.map_or_else(|error| error.to_string(), |text| text.trim_end().replace('\n', "\n  "));
    }
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let leaving = whole.pointer("/metadata/deletionTimestamp").map_or("", |_| " (being deleted)");
    let status = whole.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let plain = status.iter().filter(|(_, value)| !value.is_array() && !value.is_object());
    let plain = plain.map(|(field, value)| format!("{field}={value}"));
    let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let conditions = conditions.map(|condition| {
        let [kind, is, reason, message] = ["/type", "/status", "/reason", "/message"].map(|path| text(condition, path));
        format!("{kind}={is} {reason} {message}").trim_end().to_owned()
    });
    let state: Vec<_> = plain.chain(conditions).collect();
    format!("{}{leaving}: {}", text(&whole, "/metadata/name"), state.join(", "))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_seen_last_is_told_in_few_words() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "node-1"},
            "status": {
                "conditions": [
                    {"type": "DiskPressure", "status": "False", "reason": "Fine"},
                    {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped."},
                ],
                "images": [{"names": ["a", "b"]}],
                "phase": "Running",
            },
        }))
        .unwrap();
        let seen =
            "\n  node-1: phase=\"Running\", DiskPressure=False Fine, Ready=Unknown NodeStatusUnknown Kubelet stopped.";
        assert_eq!(glance([node].iter()), seen);
        assert_eq!(glance(<[Node; 0]>::default().iter()), "nothing");
    }
}
