//! The report on a failed test: what the cluster looked like before everything is taken down.
//!
//! A report never fails because a part of it does: the part's file holds the error instead.

mod folder;
mod objects;
pub(crate) mod pods;
mod valkey;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::time::timeout;

use crate::bench::Bench;
use folder::Folder;

/// How long a report may take in all; what is not there by then is missing.
const ALL: Duration = Duration::from_secs(30);
/// How long one question may take: a node that is gone must not use up the time of all others.
const ONE: Duration = Duration::from_secs(8);

/// Writes the report and returns its folder.
pub async fn write(bench: &Bench, failure: &str) -> Result<PathBuf> {
    let folder =
        Folder::create(&base()?.join(format!("{}-{}", bench.test(), Timestamp::now().strftime("%Y%m%dT%H%M%SZ"))))?;
    folder.keep("failure.txt", Ok(format!("{}\nnamespace {}\n\n{failure}\n", bench.test(), bench.namespace())));
    if timeout(ALL, Box::pin(collect(bench, &folder))).await.is_err() {
        folder.keep("incomplete.txt", Ok(format!("not everything was collected within {ALL:?}\n")));
    }
    Ok(folder.path)
}

/// `E2E_REPORTS`, or the workspace's `target/e2e-reports`.
fn base() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("E2E_REPORTS") {
        return Ok(folder.into());
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("e2e lies in no workspace")?;
    Ok(workspace.join("target").join("e2e-reports"))
}

async fn collect(bench: &Bench, folder: &Folder) {
    let pods = in_time(bench.pods().list()).await;
    let pods = pods.unwrap_or_else(|error| {
        folder.keep("pods.txt", Err(error));
        Vec::new()
    });
    tokio::join!(
        async { folder.keep("events.txt", in_time(objects::events(bench)).await) },
        async { folder.keep("nodes.yaml", in_time(objects::nodes(bench)).await) },
        async { folder.keep("volumes.yaml", in_time(objects::volumes(bench)).await) },
        objects::all(bench, folder),
        logs(bench, folder, &pods),
        operator_logs(bench, folder),
        valkey_nodes(bench, folder, &pods),
        async {
            if !pods.is_empty() {
                folder.keep("pods.txt", Ok(pods.iter().map(pods::describe).collect()));
            }
        },
    );
}

async fn logs(bench: &Bench, folder: &Folder, pods: &[Pod]) {
    let wanted = pods.iter().flat_map(pods::logs_of);
    join_all(wanted.map(async |log| folder.keep(&log.file(), in_time(log.read(bench)).await))).await;
}

async fn operator_logs(bench: &Bench, folder: &Folder) {
    match in_time(pods::operators(bench)).await {
        Ok(operators) => {
            let reading = operators.iter().map(async |pod| {
                folder.keep(&format!("operator-{pod}.log"), in_time(pods::operator_log(bench, pod)).await);
            });
            join_all(reading).await;
        }
        Err(error) => folder.keep("operator.log", Err(error)),
    }
}

async fn valkey_nodes(bench: &Bench, folder: &Folder, pods: &[Pod]) {
    let servers = pods.iter().filter(|pod| valkey::runs_in(pod));
    join_all(servers.map(async |pod| {
        let state = in_time(valkey::state(bench, pod)).await;
        folder.keep(&format!("valkey/{}.txt", pod.name_any()), state);
    }))
    .await;
}

async fn in_time<T>(part: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(ONE, part).await.with_context(|| format!("no answer within {ONE:?}"))?
}
