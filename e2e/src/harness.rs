//! What happens around a test. Called by the code that `#[e2e::test]` writes, not by hand.

use std::any::Any;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::FutureExt;
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tokio::time::timeout;

use crate::bench::Bench;
use crate::{kube_node, namespace, report};

/// How long the API server may take for its first answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Ordinary tests hold it together, one that breaks nodes alone. All tests are in one program, so this is enough.
static BENCH: RwLock<()> = RwLock::new(());

/// A test, as its attribute tells.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub company: Company,
    /// After this long the test has failed, so that its report can still be written.
    pub minutes: u64,
}

/// Whether a test bears others beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    Shared,
    Alone,
}

/// What a test may return.
pub trait Outcome {
    fn into_result(self) -> Result<()>;
}

impl Outcome for () {
    fn into_result(self) -> Result<()> {
        Ok(())
    }
}

impl Outcome for Result<()> {
    fn into_result(self) -> Result<()> {
        self
    }
}

/// Why a test failed.
enum Failure {
    Error(anyhow::Error),
    Panic(Box<dyn Any + Send>),
}

impl Failure {
    fn message(&self) -> String {
        match self {
            Self::Error(error) => format!("{error:#}"),
            Self::Panic(payload) => payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_else(|| "a panic without a message".into()),
        }
    }
}

/// Runs a test with a runtime and a namespace of its own, and fails as it fails.
pub fn run<B, F>(case: Case, body: B)
where
    B: FnOnce(Bench) -> F,
    F: Future<Output: Outcome>,
{
    let (_shared, _alone);
    match case.company {
        Company::Shared => _shared = BENCH.read().unwrap_or_else(PoisonError::into_inner),
        Company::Alone => _alone = BENCH.write().unwrap_or_else(PoisonError::into_inner),
    }
    let started = Instant::now();
    let result = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime.block_on(around(case, body)),
        Err(error) => Err(Failure::Error(error.into())),
    };
    note(case, started.elapsed());
    match result {
        Ok(()) => {}
        Err(Failure::Panic(payload)) => resume_unwind(payload),
        Err(failure @ Failure::Error(_)) => {
            // Without the panic hook, whose place in the source would be this line for every test.
            eprintln!("{}", failure.message());
            resume_unwind(Box::new(failure.message()));
        }
    }
}

/// Adds how long a test took to the file that `E2E_TIMES` names. The runner itself does not tell.
fn note(case: Case, took: Duration) {
    let Some(path) = std::env::var_os("E2E_TIMES") else { return };
    let line = format!("{} {}\n", took.as_millis(), case.name);
    let noted = OpenOptions::new().append(true).create(true).open(path).and_then(|mut f| f.write_all(line.as_bytes()));
    if let Err(error) = noted {
        eprintln!("how long {} took cannot be noted: {error}", case.name);
    }
}

async fn around<B, F>(case: Case, body: B) -> Result<(), Failure>
where
    B: FnOnce(Bench) -> F,
    F: Future<Output: Outcome>,
{
    let client = connect().await.map_err(Failure::Error)?;
    let namespace = namespace::create(&client, case.name).await.map_err(Failure::Error)?;
    let bench = Bench::new(client, namespace, case);
    let result = guarded(case, body(bench.clone())).await;
    if let Err(failure) = &result {
        match Box::pin(report::write(&bench, &failure.message())).await {
            Ok(folder) => eprintln!("{} failed; what the cluster looked like: {}", case.name, folder.display()),
            Err(error) => eprintln!("{} failed, and no report could be written: {error:#}", case.name),
        }
    }
    let mended = kube_node::restore(&bench).await;
    if std::env::var_os("E2E_KEEP").is_some() {
        eprintln!("{} leaves its namespace {} behind", case.name, bench.namespace());
    } else if let Err(error) = namespace::delete(bench.client(), bench.namespace()).await {
        eprintln!("{error:#}");
    }
    result.and_then(|()| mended.context("what was done to the nodes cannot be undone").map_err(Failure::Error))
}

/// Runs the test's body so that it ends here, whatever it does.
async fn guarded(case: Case, body: impl Future<Output: Outcome>) -> Result<(), Failure> {
    let limit = Duration::from_secs(60 * case.minutes);
    match timeout(limit, AssertUnwindSafe(body).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome.into_result().map_err(Failure::Error),
        Ok(Err(payload)) => Err(Failure::Panic(payload)),
        Err(_) => Err(Failure::Error(anyhow::anyhow!("the test was not done after {} minutes", case.minutes))),
    }
}

/// Only ever the cluster that `KUBECONFIG` names: a test may break nodes, so it must not find one by itself.
async fn connect() -> Result<Client> {
    let advice =
        "no Kubernetes to test on: run `cargo xtask cluster up` and then `eval \"$(cargo xtask cluster env)\"`";
    std::env::var_os("KUBECONFIG").context("KUBECONFIG is not set").context(advice)?;
    let config = Config::from_kubeconfig(&KubeConfigOptions::default()).await.context(advice)?;
    let client = Client::try_from(config).context(advice)?;
    timeout(ANSWER, client.apiserver_version()).await.context("no answer").context(advice)?.context(advice)?;
    Ok(client)
}
