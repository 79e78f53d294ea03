//! Add-ons of the bench, in the long suite because they are built first.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::{Bench, eventually, secs};
use k8s_openapi::api::core::v1::Secret;

/// Also shows that the API server reaches a webhook behind a Service.
#[e2e::test(minutes = 20)]
#[ignore = "builds cert-manager, which takes minutes on a machine that never did"]
async fn cert_manager_issues_a_certificate(k: Bench) -> Result<()> {
    let xtask = std::env::var_os("XTASK").context("set XTASK to the path of xtask")?;
    let install =
        tokio::task::spawn_blocking(|| Command::new(xtask).args(["cluster", "addon", "cert-manager"]).output());
    let out = install.await??;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // The webhook is ready a moment before its certificate is known to the API server.
    eventually("cert-manager to take an order", secs(60), async || k.apply(ORDER).await).await?;
    let secret = k.objects::<Secret>().named("shop-tls");
    let issued = |secret: &Secret| secret.data.as_ref().is_some_and(|data| data.contains_key("tls.crt"));
    secret.until_it("the certificate", secs(60), issued).await?;
    Ok(())
}

const ORDER: &str = "
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shop}
spec: {secretName: shop-tls, commonName: shop, issuerRef: {name: self}}
";
