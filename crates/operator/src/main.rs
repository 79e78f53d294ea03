//! The operator: one process per replica, in a namespace of its own. The one that leads acts, the others wait.

mod children;
mod context;
mod controllers;
mod crd;
mod guarded_client;
mod leader_label;
mod leadership;
mod reports;
mod stores;
mod sweep;
mod trust;
mod webhook;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use axum::Router;
use axum::routing::get;
use clap::Parser;
use futures::StreamExt;
use futures::future::join_all;
use kube::runtime::Controller;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use valkey_pki::{Authority, TrustDomain};
use valkey_rpc::{Credentials, Dialer, Refusals, Reloadable, ServerTls, serve_reports};
use valkey_runtime::process::{Options, Process};

use crate::context::{Context, Settings};
use crate::controllers::{cluster, upgrade};
use crate::guarded_client::{CrashPoint, Tally};
use crate::leadership::Candidate;
use crate::stores::{Filling, Scope, Wake};
use crate::webhook::WebhookTls;

/// Runs Valkey clusters on Kubernetes
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    process: Options,
    /// Namespace of the operator itself: its Lease, its root CA and its keys lie there
    #[arg(long, env = "POD_NAMESPACE", default_value = "valkey-operator-system")]
    namespace: String,
    /// Name of this replica, which is also its claim to lead
    #[arg(long, env = "POD_NAME", default_value = "valkey-operator")]
    pod: String,
    /// Namespaces to look after, separated by commas; all if absent
    #[arg(long, value_delimiter = ',')]
    watch_namespaces: Vec<String>,
    /// Image of the sidecar that goes into each pod, if the cluster's spec names none
    #[arg(long)]
    sidecar_image: String,
    /// Trust domain of the identities in certificates
    #[arg(long, default_value = "valkey-operator")]
    trust_domain: TrustDomain,
    /// Where sidecars send their reports to this replica
    #[arg(long, default_value = "0.0.0.0:8443")]
    reports_addr: SocketAddr,
    /// Where the API server asks this replica about evictions
    #[arg(long, default_value = "0.0.0.0:9443")]
    webhook_addr: SocketAddr,
    /// Where sidecars find the leader; made from --namespace if absent
    #[arg(long)]
    report_url: Option<String>,
    /// For tests: end the process after so many writes
    #[arg(long, hide = true)]
    crash_after_writes: Option<u64>,
}

/// How long the end of the process waits until the Lease is given back.
const RELEASE: std::time::Duration = std::time::Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let process = Process::start(&args.process, env!("CARGO_PKG_VERSION")).await?;
    let stop = process.stop.clone();
    // A replica is ready as soon as it could take over.
    process.readiness.ready();
    let (tally, refusals) = (Tally::default(), Refusals::default());
    let counted = (tally.clone(), refusals.clone());
    let metrics = Router::new().route("/metrics", get(async move || metrics(&counted.0, &counted.1)));
    let (probes, work) = tokio::join!(process.serve_with(metrics), async {
        let outcome = run(args, stop.clone(), tally, refusals).await;
        stop.cancel();
        outcome
    });
    work?;
    Ok(probes?)
}

/// As Prometheus reads it.
fn metrics(tally: &Tally, refusals: &Refusals) -> String {
    let refused = refusals.count();
    format!(
        "{}# HELP valkey_operator_refused_peers_total Peers that were not who they had to be, and reports for others.\n\
         # TYPE valkey_operator_refused_peers_total counter\nvalkey_operator_refused_peers_total {refused}\n",
        tally.metrics()
    )
}

async fn run(args: Args, stop: CancellationToken, tally: Tally, refusals: Refusals) -> Result<()> {
    let config = Config::infer().await.context("no Kubernetes to talk to: run in a pod, or set KUBECONFIG")?;
    let plain = Client::try_from(config.clone())?;
    let mut candidate = Candidate::new(plain.clone(), &args.namespace, &args.pod);
    let wait = async {
        crd::ensure_ours(&plain).await?;
        leader_label::remove(&plain, &args.namespace, &args.pod).await;
        candidate.lead().await;
        anyhow::Ok(())
    };
    tokio::select! {
        led = wait => led?,
        () = stop.cancelled() => return Ok(()),
    }
    let crash = CrashPoint::after(args.crash_after_writes);
    let client = guarded_client::client(config, candidate.leadership(), crash.clone(), tally)?;
    let done = CancellationToken::new();
    let mut lease = tokio::spawn(candidate.keep(done.clone()));
    let outcome = tokio::select! {
        outcome = lead(&args, &plain, client, crash, refusals) => outcome,
        () = stop.cancelled() => Ok(()),
        lost = &mut lease => bail!("the Lease is lost ({lost:?}); another replica leads now, this one starts again"),
    };
    done.cancel();
    // Given back before the process ends, or the next leader waits for the end of the claim.
    let _ = tokio::time::timeout(RELEASE, lease).await;
    outcome
}

/// Everything that only the leader does. Returns only with an error.
async fn lead(args: &Args, plain: &Client, client: Client, crash: CrashPoint, refusals: Refusals) -> Result<()> {
    let root = Arc::new(trust::root(&client, &args.namespace).await?);
    let credentials = Reloadable::new(operator_credentials(&root, args)?);
    leader_label::set(plain, &args.namespace, &args.pod).await;
    let listener = TcpListener::bind(args.reports_addr)
        .await
        .with_context(|| format!("cannot listen at {}", args.reports_addr))?;
    let questions = TcpListener::bind(args.webhook_addr)
        .await
        .with_context(|| format!("cannot listen at {}", args.webhook_addr))?;
    let webhook_tls = WebhookTls::new(webhook::certificate(&root, &args.namespace)?);
    webhook::announce(&client, &format!("valkey-operator-{}", args.namespace), &root).await;
    let (desk, mut woken) = reports::desk(args.trust_domain.clone());
    let tls = ServerTls::new(credentials.clone(), reports::admits_pods(args.trust_domain.clone())).counting(refusals);

    let scopes = match args.watch_namespaces.as_slice() {
        [] => vec![Scope::All],
        some => some.iter().cloned().map(Scope::Namespace).collect(),
    };
    let mut doors = Vec::new();
    let mut controllers = Vec::new();
    for scope in scopes {
        let (door, wakes) = tokio::sync::mpsc::unbounded_channel();
        doors.push((scope.clone(), door));
        let recorder = Recorder::new(
            client.clone(),
            Reporter { controller: "valkey-operator".into(), instance: Some(args.pod.clone()) },
        );
        let world = World {
            client: client.clone(),
            root: root.clone(),
            dialer: Dialer::new(credentials.clone()),
            recorder,
            crash: crash.clone(),
        };
        controllers.push(control(args, scope, world, wakes));
    }
    let deliver = async {
        while let Some(wake) = woken.recv().await {
            let namespace = wake.namespace.clone().unwrap_or_default();
            let covers = |scope: &Scope| *scope == Scope::All || *scope == Scope::Namespace(namespace.clone());
            for (_, door) in doors.iter().filter(|(scope, _)| covers(scope)) {
                let _ = door.send(wake.clone());
            }
        }
    };
    let renew = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_hours(12)).await;
            match operator_credentials(&root, args) {
                Ok(new) => credentials.replace(new),
                Err(error) => tracing::error!(%error, "the operator's own certificate cannot be renewed"),
            }
            match webhook::certificate(&root, &args.namespace) {
                Ok(new) => webhook_tls.replace(new),
                Err(error) => tracing::error!(%error, "the webhook's certificate cannot be renewed"),
            }
        }
    };
    let answering = webhook::serve(&questions, &webhook_tls, client.clone());
    tokio::join!(serve_reports(&listener, &tls, desk), answering, deliver, renew, join_all(controllers));
    bail!("the watches ended")
}

/// The operator's own certificate. It lives in memory only, so each process makes its own.
fn operator_credentials(root: &Authority, args: &Args) -> Result<Credentials> {
    let leaf = trust::operator_leaf(root, &args.trust_domain, &args.namespace)?;
    Ok(Credentials::from_pem(leaf.chain_pem.as_bytes(), &leaf.key, root.certificate_pem().as_bytes())?)
}

struct World {
    client: Client,
    root: Arc<Authority>,
    dialer: Dialer,
    recorder: Recorder,
    crash: CrashPoint,
}

/// Looks after all clusters of a scope.
async fn control(args: &Args, scope: Scope, world: World, wakes: tokio::sync::mpsc::UnboundedReceiver<Wake>) {
    let World { client, root, dialer, recorder, crash } = world;
    let settings = Settings {
        namespace: args.namespace.clone(),
        sidecar_image: args.sidecar_image.clone(),
        trust_domain: args.trust_domain.clone(),
        report_url: args
            .report_url
            .clone()
            .unwrap_or_else(|| format!("https://valkey-operator-reports.{}.svc:8443", args.namespace)),
    };
    let filling = Filling::default();
    let (upgrades, upgrade_events, upgrade_wakes) = upgrade::watch(&client, &scope, &filling);
    let (clusters, events) = stores::clusters(&client, &scope, &filling);
    let (stores, child_wakes) = stores::watch(&client, &scope, upgrades.clone(), filling);
    let context = Arc::new(Context::new(client, stores, settings, root, dialer, recorder, crash));
    let sidecar_wakes = futures::stream::unfold(wakes, async |mut wakes| Some((wakes.recv().await?, wakes)));
    let sweeping = sweep::run(Arc::clone(&context), clusters.clone(), scope);
    let passes = Controller::for_stream(events, clusters)
        .reconcile_on(child_wakes)
        .reconcile_on(sidecar_wakes)
        .reconcile_on(upgrade_wakes)
        .run(cluster::reconcile, cluster::after_failure, Arc::clone(&context))
        .for_each(async |outcome| {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a pass ended with an error");
            }
        });
    let upgrading = Controller::for_stream(upgrade_events, upgrades)
        .run(upgrade::reconcile, upgrade::after_failure, context)
        .for_each(async |outcome| {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a look at an upgrade ended with an error");
            }
        });
    tokio::join!(passes, upgrading, sweeping);
}
