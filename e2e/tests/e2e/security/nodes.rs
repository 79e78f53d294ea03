//! Valkey's own ports: who gets in with which certificate and which TLS.

use anyhow::{Context, Result, ensure};
use e2e::{Bench, Cluster, Endpoint, eventually, secs};
use rustls::version::{TLS12, TLS13};

use super::visit::{Visitor, hello, visit_in_plain_text};
use super::{Entries, Shown, small};

const CLIENTS: u16 = 6379;
const BUS: u16 = 16379;

/// TLS's own words for "too old".
const ALERT_PROTOCOL_VERSION: [u8; 2] = [2, 70];
const TLS_HANDSHAKE: u8 = 22;

/// F04: a stray MEET, or a pod with an address that another cluster remembers, must not merge two clusters.
#[e2e::test]
async fn nodes_of_one_cluster_cannot_join_another(k: Bench) -> Result<()> {
    let (orders, carts) = tokio::try_join!(small(&k, "orders"), small(&k, "carts"))?;

    let bus = k.pod_address("orders-0-0", BUS).await?;
    let member = Visitor { version: &TLS13, shows: Some(Shown::by_pod(&k, "orders-1-0", "tls").await?) };
    assert_eq!(member.visit(bus, b"").await.context("a member of the cluster is refused")?, b"");
    let stranger = Visitor { version: &TLS13, shows: Some(Shown::by_pod(&k, "carts-0-0", "tls").await?) };
    let refused = stranger.visit(bus, b"").await.expect_err("a node of another cluster is let in");
    println!("a node of another cluster: {refused:#}");
    // Signed by the same root, for the same pod, but for another purpose.
    let mislaid = Visitor { version: &TLS13, shows: Some(Shown::by_pod(&k, "orders-1-0", "mtls").await?) };
    let refused = mislaid.visit(bus, b"").await.expect_err("a certificate for the operator is let in");
    println!("a certificate for the operator: {refused:#}");
    let nobody = Visitor { version: &TLS13, shows: None };
    let refused = nobody.visit(bus, b"").await.expect_err("somebody without a certificate is let in");
    println!("somebody without a certificate: {refused:#}");

    let users = Entries::read(&k, k.namespace(), "orders-users").await?;
    let admin = Endpoint {
        username: Some("valkey-admin".into()),
        password: Some(users.text("admin-password")?.into()),
        ..orders.endpoint().await?
    };
    let mut node = admin.node(orders.host("orders-0-0"), secs(2)).await?;
    let other = k.pod_address("carts-0-0", CLIENTS).await?.ip().to_string();
    redis::cmd("CLUSTER").arg(&["MEET", &other, &CLIENTS.to_string()]).exec_async(&mut node).await?;
    let known: String = redis::cmd("CLUSTER").arg("NODES").query_async(&mut node).await?;
    let tries = known.lines().any(|line| line.contains(&other) && line.contains("handshake"));
    assert!(tries, "nobody tries to meet {other}:\n{known}");
    // It gives up after the node timeout. Had it been let in, both clusters would know six nodes from then on.
    eventually("the stranger to be given up", secs(20), async || {
        let known: String = redis::cmd("CLUSTER").arg("NODES").query_async(&mut node).await?;
        ensure!(!known.contains(&other), "{known}");
        Ok(())
    })
    .await?;
    orders.is_whole().await?;
    carts.is_whole().await
}

#[e2e::test]
async fn clients_need_tls_1_2_or_newer(k: Bench) -> Result<()> {
    let orders: Cluster = small(&k, "orders").await?;
    let address = k.pod_address("orders-0-0", CLIENTS).await?;
    for version in [&TLS12, &TLS13] {
        let heard = Visitor { version, shows: None }.visit(address, b"PING\r\n").await;
        let heard = heard.with_context(|| format!("{version:?}"))?;
        assert!(heard.starts_with(b"-NOAUTH"), "{}", String::from_utf8_lossy(&heard));
    }
    let newest_of_client = async |version: u16| visit_in_plain_text(address, &hello(version)?).await;
    assert_eq!(newest_of_client(0x0303).await?.first(), Some(&TLS_HANDSHAKE), "TLS 1.2 is not answered");
    for (version, name) in [(0x0302, "1.1"), (0x0301, "1.0")] {
        let heard = newest_of_client(version).await?;
        assert!(heard.ends_with(&ALERT_PROTOCOL_VERSION), "TLS {name} is answered with {heard:?}");
    }
    let heard = visit_in_plain_text(address, b"PING\r\n").await?;
    assert!(!heard.starts_with(b"+") && !heard.starts_with(b"-"), "plain text: {}", String::from_utf8_lossy(&heard));
    orders.is_whole().await
}
