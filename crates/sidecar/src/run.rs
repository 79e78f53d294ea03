//! Starts all duties.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tracing::info;
use valkey_model::ShardIndex;
use valkey_pki::SpiffeId;
use valkey_runtime::process::Process;

use crate::arguments::RunArguments;
use crate::certificates::keep_server;
use crate::context::Context;
use crate::mounts::Mounts;
use crate::moves::work;
use crate::operator::{Wire, talk};
use crate::pod::Pod;
use crate::prepare::RunDir;
use crate::reports::Outbox;
use crate::watch::watch;
use crate::{launcher_socket, metrics, probes};

/// Looks after the server until told to end. That comes after the server's own end, so there is nothing to wait for then.
pub async fn run(arguments: RunArguments) -> anyhow::Result<()> {
    let RunArguments { cluster, shard, operator_namespace, trust_domain, report_url, grpc_addr, .. } = arguments;
    let RunArguments { run_dir, data_dir, mounts, pod_name, pod_namespace, pod_ip, node_name, process, .. } = arguments;
    let process = Process::start(&process, env!("CARGO_PKG_VERSION")).await?;
    let operator = SpiffeId::operator(&trust_domain, &operator_namespace)?;
    let mounts = Mounts::new(&mounts, &pod_name);
    let pod = Pod::new(pod_namespace, cluster, pod_name, pod_ip, ShardIndex(shard))?;
    info!(pod = pod.name, namespace = pod.namespace, cluster = pod.cluster, node = node_name, %operator, "on duty");

    let (outbox, events) = Outbox::new();
    let context = Arc::new(Context::new(pod, mounts, RunDir::new(run_dir), data_dir, outbox));
    let launcher = launcher_socket::bind(&context).context("the launcher cannot be heard")?;
    let listener = TcpListener::bind(grpc_addr).await;
    let listener = listener.with_context(|| format!("{grpc_addr} cannot be used: choose another --grpc-addr"))?;
    let wire = Wire { listener, operator, reports: report_url.map(|url| (url, events)) };

    tokio::spawn(launcher_socket::listen(launcher, context.clone()));
    tokio::spawn({
        let context = context.clone();
        async move { watch(&context).await }
    });
    tokio::spawn({
        let context = context.clone();
        async move { keep_server(&context).await }
    });
    tokio::spawn({
        let context = context.clone();
        async move { work(&context).await }
    });
    tokio::spawn(talk(context.clone(), wire));
    process.readiness.ready();
    Ok(process.serve_with(probes::routes(context.clone()).merge(metrics::routes(context))).await?)
}
