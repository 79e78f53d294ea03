//! Pods in words, and the logs of their containers.

use std::fmt::Write;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};

use crate::bench::Bench;

/// The end of a log is where the trouble is.
const LINES: i64 = 5000;
/// Where the operator runs. It works for all tests at once, so only the latest part of its log is about this one.
const OPERATOR: &str = "valkey-operator-system";
const LATEST: i64 = 600; // seconds

/// A pod in the words of `kubectl describe`, but shorter.
pub fn describe(pod: &Pod) -> String {
    let mut text = String::new();
    let status = pod.status.clone().unwrap_or_default();
    let place = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let phase = status.phase.as_deref().unwrap_or("no phase");
    let address = status.pod_ip.as_deref().unwrap_or("no address");
    let leaving = pod.metadata.deletion_timestamp.as_ref().map(|at| format!(", being deleted by {}", at.0));
    let leaving = leaving.unwrap_or_default();
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{}: {phase} on {place} at {address}{leaving}", pod.name_any());
    for condition in status.conditions.into_iter().flatten().filter(|condition| condition.status != "True") {
        let (reason, message) = (condition.reason.unwrap_or_default(), condition.message.unwrap_or_default());
        let _ = writeln!(text, "  {} is {}: {reason} {message}", condition.type_, condition.status);
    }
    let containers = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
    for container in containers.into_iter().flatten().flatten() {
        text.push_str(&describe_container(&container));
    }
    text.push('\n');
    text
}

fn describe_container(container: &ContainerStatus) -> String {
    let ContainerStatus { name, image, ready, restart_count, state, last_state, .. } = container;
    let ready = if *ready { "ready" } else { "not ready" };
    let now = state.as_ref().map(in_words).unwrap_or_default();
    let before = last_state.as_ref().map(in_words).filter(|before| !before.is_empty());
    let before = before.map(|before| format!("; before that {before}")).unwrap_or_default();
    format!("  container {name} ({image}): {ready}, {now}, {restart_count} restarts{before}\n")
}

fn in_words(state: &ContainerState) -> String {
    if let Some(running) = &state.running {
        let since = running.started_at.as_ref().map(|at| format!(" since {}", at.0)).unwrap_or_default();
        return format!("running{since}");
    }
    if let Some(waiting) = &state.waiting {
        let (reason, message) = (waiting.reason.as_deref(), waiting.message.as_deref());
        return format!("waiting: {} {}", reason.unwrap_or_default(), message.unwrap_or_default());
    }
    if let Some(ended) = &state.terminated {
        let at = ended.finished_at.as_ref().map(|at| format!(" at {}", at.0)).unwrap_or_default();
        let (reason, message) = (ended.reason.as_deref(), ended.message.as_deref());
        let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
        return format!("ended with {}{at}: {reason} {message}", ended.exit_code);
    }
    String::new()
}

/// One log that can be read.
#[derive(Debug)]
pub struct Log {
    pod: String,
    container: String,
    life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Current,
    Previous,
}

/// The logs of all containers of a pod, and of their previous lives if they had any.
pub fn logs_of(pod: &Pod) -> Vec<Log> {
    let status = pod.status.clone().unwrap_or_default();
    let containers = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
    let mut logs = Vec::new();
    for container in containers.into_iter().flatten().flatten() {
        let log = |life| Log { pod: pod.name_any(), container: container.name.clone(), life };
        logs.push(log(Life::Current));
        if container.restart_count > 0 {
            logs.push(log(Life::Previous));
        }
    }
    logs
}

impl Log {
    pub fn file(&self) -> String {
        let Self { pod, container, life } = self;
        let previous = if *life == Life::Previous { "-previous" } else { "" };
        format!("logs/{pod}-{container}{previous}.log")
    }

    pub async fn read(&self, bench: &Bench) -> Result<String> {
        let pods: Api<Pod> = Api::namespaced(bench.client().clone(), bench.namespace());
        let params = LogParams {
            container: Some(self.container.clone()),
            previous: self.life == Life::Previous,
            tail_lines: Some(LINES),
            ..LogParams::default()
        };
        Ok(pods.logs(&self.pod, &params).await?)
    }
}

/// The pods of the operator, which are in nobody's namespace but their own.
pub async fn operators(bench: &Bench) -> Result<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(bench.client().clone(), OPERATOR);
    Ok(pods.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect())
}

/// What an operator said of late.
pub async fn operator_log(bench: &Bench, pod: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(bench.client().clone(), OPERATOR);
    let params = LogParams { tail_lines: Some(LINES), since_seconds: Some(LATEST), ..LogParams::default() };
    Ok(pods.logs(pod, &params).await?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        let pod = json!({
            "metadata": {"name": "orders-0"},
            "spec": {"nodeName": "node-2", "containers": []},
            "status": {
                "phase": "Running",
                "podIP": "10.0.0.7",
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "valkey"},
                    {"type": "PodScheduled", "status": "True"},
                ],
                "containerStatuses": [{
                    "name": "valkey", "image": "valkey:9", "imageID": "", "ready": false, "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                }],
            },
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_in_words_says_where_it_is_and_what_is_wrong() {
        let text = describe(&pod());
        assert_eq!(
            text.trim_end(),
            "orders-0: Running on node-2 at 10.0.0.7\n  \
             Ready is False: ContainersNotReady valkey\n  \
             container valkey (valkey:9): not ready, waiting: CrashLoopBackOff back-off, 3 restarts; \
             before that ended with 137: OOMKilled"
        );
    }

    #[test]
    fn a_container_that_was_restarted_has_two_logs() {
        let files: Vec<_> = logs_of(&pod()).iter().map(Log::file).collect();
        assert_eq!(files, ["logs/orders-0-valkey.log", "logs/orders-0-valkey-previous.log"]);
    }
}
