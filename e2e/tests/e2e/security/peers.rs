//! Operator and sidecars: each side talks to exactly those it means, whatever root a certificate leads to.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, eventually, secs};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use rustls::version::{TLS12, TLS13};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use valkey_pki::{Authority, LeafRequest, SpiffeId, Validity};
use valkey_rpc::{Credentials, Dialer, Event, Observed, Reloadable, Report, ReportError, Reporter, State};

use super::visit::{Visitor, visit_in_plain_text};
use super::{Entries, OPERATOR_NAMESPACE, Shown, log, small};

const TRUST_DOMAIN: &str = "valkey-operator";
const COMMANDS: u16 = 7380;
const HEALTH: u16 = 8081;
const REPORTS: u16 = 8443;

/// How a client of gRPC begins when it does without TLS.
const PLAIN_HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The first byte of a TLS message that says why the connection ends.
const TLS_ALERT: u8 = 21;

#[e2e::test]
async fn only_the_operator_may_command_a_sidecar(k: Bench) -> Result<()> {
    small(&k, "orders").await?;
    let root = Root::installed(&k).await?;
    let sidecar = Sidecar::of(&k, "orders", "orders-0-0").await?;
    let now = Timestamp::now();
    let operator = operator()?;

    let welcome = root.issue(&operator, now)?;
    let observed = eventually("the sidecar to answer the operator", secs(10), async || {
        sidecar.ask(root.credentials(&welcome)?).await
    });
    let state = observed.await?.state;
    assert!(matches!(state, State::Known(_)), "{state:?}");

    let elsewhere = SpiffeId::operator(&TRUST_DOMAIN.parse()?, "elsewhere")?;
    let other_domain = SpiffeId::operator(&"elsewhere".parse()?, OPERATOR_NAMESPACE)?;
    let foreign_pod = pod(k.namespace(), "carts", "carts-0-0")?;
    let last_week = now.checked_sub(SignedDuration::from_hours(7 * 24))?;
    for (who, shown, reason) in [
        ("the operator of another root", Root::new()?.issue(&operator, now)?, "UnknownIssuer"),
        ("the operator of another namespace", root.issue(&elsewhere, now)?, "elsewhere/operator is not"),
        ("the operator of another installation", root.issue(&other_domain, now)?, "spiffe://elsewhere/"),
        ("a pod of this cluster", Shown::by_pod(&k, "orders-1-0", "mtls").await?, "orders-1-0 is not"),
        ("a pod of another cluster", root.issue(&foreign_pod, now)?, "carts-0-0 is not"),
        ("the operator of last week", root.issue(&operator, last_week)?, "certificate expired"),
    ] {
        let credentials = root.credentials(&shown)?;
        sidecar.refuses(who, reason, async || sidecar.ask(credentials).await.map(drop)).await?;
    }

    let nobody = Visitor { version: &TLS13, shows: None };
    sidecar.refuses("nobody", "no certificates", async || nobody.visit(sidecar.address, b"").await.map(drop)).await?;
    let old = Visitor { version: &TLS12, shows: Some(welcome) };
    let speaks_old_tls = async || old.visit(sidecar.address, b"").await.map(drop);
    sidecar.refuses("the operator with TLS 1.2", "incompatible", speaks_old_tls).await?;
    let speaks_plain_text = async || {
        let heard = visit_in_plain_text(sidecar.address, PLAIN_HTTP2).await?;
        ensure!(heard.first().is_some_and(|first| *first != TLS_ALERT), "no answer");
        Ok(())
    };
    sidecar.refuses("somebody without TLS", "", speaks_plain_text).await
}

#[e2e::test]
async fn the_operator_commands_exactly_the_pod_that_it_means(k: Bench) -> Result<()> {
    small(&k, "orders").await?;
    let root = Root::installed(&k).await?;
    let shown = root.issue(&operator()?, Timestamp::now())?;
    let sidecar = Sidecar::of(&k, "orders", "orders-0-0").await?;
    for meant in [
        pod(k.namespace(), "orders", "orders-1-0")?,
        pod(k.namespace(), "carts", "orders-0-0")?,
        pod("elsewhere", "orders", "orders-0-0")?,
        operator()?,
    ] {
        let name = meant.to_string();
        let error = Sidecar { name: meant, ..sidecar.clone() }.ask(root.credentials(&shown)?).await;
        let error = format!("{:#}", error.err().with_context(|| format!("orders-0-0 passes for {name}"))?);
        assert!(error.contains(&format!("{} answers where {name} was expected", sidecar.name)), "{error}");
    }
    Ok(())
}

#[e2e::test]
async fn a_pod_may_only_report_for_itself(k: Bench) -> Result<()> {
    small(&k, "orders").await?;
    let root = Root::installed(&k).await?;
    let own = Report {
        namespace: k.namespace().into(),
        cluster: "orders".into(),
        pod: "orders-0-0".into(),
        event: Event::Heartbeat,
        summary: None,
    };
    let (leader, address) = leader(&k).await?;
    let post = async |shown: &Shown, report: &Report| {
        let credentials = Reloadable::new(root.credentials(shown)?);
        let reporter = Reporter::new(format!("https://{address}").parse()?, credentials, operator()?.to_string());
        anyhow::Ok(reporter.post(report).await)
    };

    let shown = Shown::by_pod(&k, "orders-0-0", "mtls").await?;
    eventually("a pod's own report to be taken", secs(10), async || Ok(post(&shown, &own).await??)).await?;
    for other in [
        Report { pod: "orders-1-0".into(), ..own.clone() },
        Report { cluster: "carts".into(), ..own.clone() },
        Report { namespace: "elsewhere".into(), ..own.clone() },
    ] {
        let Report { namespace, cluster, pod: name, .. } = &other;
        let claimed = pod(namespace, cluster, name)?.to_string();
        match post(&shown, &other).await? {
            Err(ReportError::Turned { status, words }) => {
                assert_eq!(status.as_u16(), 403, "{words}");
                assert!(words.contains(&format!("orders-0-0 may not report for {claimed}")), "{words}");
            }
            other => panic!("orders-0-0 reports for {claimed}: {other:?}"),
        }
    }

    let now = Timestamp::now();
    let last_week = now.checked_sub(SignedDuration::from_hours(7 * 24))?;
    let itself = pod(k.namespace(), "orders", "orders-0-0")?;
    for (who, stranger) in [
        ("a pod of another root", Root::new()?.issue(&itself, now)?),
        ("a pod of last week", root.issue(&itself, last_week)?),
        ("somebody who is no pod", root.issue(&operator()?, now)?),
    ] {
        let error = post(&stranger, &own).await?.expect_err(who);
        assert!(!matches!(error, ReportError::Turned { .. } | ReportError::Deadline(_)), "{who} is let in: {error}");
    }

    eventually("the leader to name whom it refused", secs(5), async || {
        let log = log(&k, OPERATOR_NAMESPACE, &leader, "operator").await?;
        let of_us = log.lines().filter(|line| line.contains(k.namespace()) && line.contains("refused")).count();
        ensure!(of_us >= 3, "{of_us} refusals in the log of {leader}");
        Ok(())
    })
    .await
}

/// An authority that can sign everything.
struct Root(Authority);

impl Root {
    /// The one that everybody here trusts.
    async fn installed(k: &Bench) -> Result<Self> {
        let entries = Entries::read(k, OPERATOR_NAMESPACE, "valkey-operator-root-ca").await?;
        Ok(Self(Authority::load(entries.text("ca.crt")?.as_bytes(), &entries.text("ca.key")?.into())?))
    }

    /// One that nobody here has heard of.
    fn new() -> Result<Self> {
        Ok(Self(Authority::root("a stranger", Validity::ROOT, Timestamp::now())?))
    }

    /// Valid for a day.
    fn issue(&self, name: &SpiffeId, now: Timestamp) -> Result<Shown> {
        let request = LeafRequest {
            common_name: "a test".into(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            uri: Some(name.clone()),
            validity: "1d".parse()?,
        };
        let leaf = self.0.issue(&request, now)?;
        Ok(Shown { chain: leaf.chain_pem, key: leaf.key })
    }

    /// Shows this, and trusts this root. So it is always the other side that refuses.
    fn credentials(&self, Shown { chain, key }: &Shown) -> Result<Credentials> {
        Ok(Credentials::from_pem(chain.as_bytes(), key, self.0.certificate_pem().as_bytes())?)
    }
}

fn operator() -> Result<SpiffeId> {
    Ok(SpiffeId::operator(&TRUST_DOMAIN.parse()?, OPERATOR_NAMESPACE)?)
}

fn pod(namespace: &str, cluster: &str, pod: &str) -> Result<SpiffeId> {
    Ok(SpiffeId::pod(&TRUST_DOMAIN.parse()?, namespace, cluster, pod)?)
}

/// The operator's pod that takes reports, and where.
async fn leader(k: &Bench) -> Result<(String, SocketAddr)> {
    let pods = Api::<Pod>::namespaced(k.client().clone(), OPERATOR_NAMESPACE);
    let leaders = pods.list(&ListParams::default().labels("valkey.io/leader=true")).await?;
    let leader = leaders.items.first().context("nobody leads")?;
    let address = leader.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("no address")?;
    Ok((leader.name_any(), SocketAddr::new(address.parse()?, REPORTS)))
}

/// A pod's sidecar, as others see it.
#[derive(Clone)]
struct Sidecar {
    k: Bench,
    pod: String,
    name: SpiffeId,
    address: SocketAddr,
}

impl Sidecar {
    async fn of(k: &Bench, cluster: &str, name: &str) -> Result<Self> {
        let address = k.pod_address(name, COMMANDS).await?;
        Ok(Self { k: k.clone(), pod: name.into(), name: pod(k.namespace(), cluster, name)?, address })
    }

    async fn ask(&self, credentials: Credentials) -> Result<Observed> {
        let dialer = Dialer::new(Reloadable::new(credentials));
        Ok(dialer.connect(self.address, &self.name.to_string()).await?.observe().await?)
    }

    /// Checks that an attempt fails, and that the sidecar has counted and logged it, with this in the reason.
    async fn refuses(&self, who: &str, reason: &str, attempt: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let before = self.count().await?;
        let error = attempt().await.err().with_context(|| format!("{who} is let in"))?;
        println!("{who}: {error:#}");
        eventually("the refusal to be counted and logged", secs(5), async || {
            let (counted, logged) = (self.count().await?, self.logged().await?);
            ensure!(counted > before, "{who} is not counted");
            ensure!(counted == logged.len(), "{counted} were counted, and logged were {logged:?}");
            let new = logged.iter().skip(before);
            ensure!(new.clone().all(|line| line.contains(reason)), "{who}: {:?}", new.collect::<Vec<_>>());
            Ok(())
        })
        .await
    }

    /// How many it has refused, as Prometheus reads it.
    async fn count(&self) -> Result<usize> {
        let mut stream = TcpStream::connect((self.address.ip(), HEALTH)).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let value = answer.lines().find_map(|line| line.strip_prefix("valkey_sidecar_refused_peers_total "));
        Ok(value.with_context(|| format!("no such metric: {answer}"))?.trim().parse()?)
    }

    /// Why it has refused somebody, in the order of its log.
    async fn logged(&self) -> Result<Vec<String>> {
        let log = log(&self.k, self.k.namespace(), &self.pod, "sidecar").await?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let refused = lines.filter(|line| line.get("message").is_some_and(|message| message == "refused"));
        // A command that could not be carried out is refused, too, but not its sender.
        let peers = refused.filter(|line| line.get("peer").is_some());
        Ok(peers.filter_map(|line| line.get("reason").map(Value::to_string)).collect())
    }
}
