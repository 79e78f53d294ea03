//! The witness gets in where TLS and a password are asked for.

use anyhow::Result;
use e2e::{Bench, Endpoint, Identity, Witness, eventually, secs};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

use crate::helper;

/// Waits for its certificate, which needs the pod's address in it, and then is a cluster of one node.
const SERVER: &str = "until [ -s /data/ready ]; do sleep 0.2; done; cd /data; exec valkey-server --port 0 \
    --tls-port 6379 --tls-cluster yes --tls-cert-file server.crt --tls-key-file server.key --tls-ca-cert-file ca.crt \
    --cluster-enabled yes --save '' --dir /data \
    --user default off resetpass '~*' '&*' +@all --user orders on '>hidden-word' '~*' '&*' +@all";

#[e2e::test]
async fn the_witness_gets_in_where_tls_and_a_password_are_asked_for(k: Bench) -> Result<()> {
    k.apply(&helper::keeper("locked", None, SERVER)?).await?;
    let ready = e2e::plain::is_ready;
    k.pods().named("locked-0").until_it("the pod to be ready", secs(60), ready).await?;
    let address = k.pod_address("locked-0", 6379).await?;

    let mut authority = named("authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let mut server = named("server");
    server.subject_alt_names = vec![SanType::IpAddress(address.ip())];
    let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    let server = server.signed_by(&server_key, &authority)?;
    let client = named("client").signed_by(&client_key, &authority)?;
    for (file, text) in [
        ("server.crt", server.pem()),
        ("server.key", server_key.serialize_pem()),
        ("ca.crt", authority.pem()),
        ("ready", "yes".into()),
    ] {
        k.exec("locked-0", &["sh", "-c", "printf %s \"$1\" > /data/$0", file, &text]).await?;
    }

    let endpoint = Endpoint {
        username: Some("orders".into()),
        password: Some("hidden-word".into()),
        ca_pem: Some(authority.pem()),
        identity: Some(Identity { certificate: client.pem(), key: client_key.serialize_pem().into() }),
        ..Endpoint::plain([address])
    };
    k.remember_login(endpoint.clone());
    eventually("the server to take its slots", secs(30), async || {
        let mut node = endpoint.node(address, secs(2)).await?;
        let slots = redis::cmd("CLUSTER").arg(&["ADDSLOTSRANGE", "0", "16383"]).exec_async(&mut node).await;
        Ok(slots?)
    })
    .await?;

    let stranger = Endpoint { password: Some("guess".into()), ..endpoint.clone() };
    let refused = Witness::of(stranger).start().await.expect_err("a wrong password is let in");
    println!("as it should be: {refused:#}");

    let witness = eventually("the cluster to serve its slots", secs(20), async || {
        let witness = Witness::of(endpoint.clone()).rate(300).start().await?;
        witness.writes_in_every_shard(1, secs(1)).await?;
        Ok(witness)
    })
    .await?;
    witness.writes_in_every_shard(300, secs(20)).await?;
    let verdict = witness.stop().await?;
    println!("{verdict}");
    verdict.expect_no_lost_write();
    Ok(())
}

/// Names must differ: a certificate whose issuer has its own name would be taken for self-signed.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
