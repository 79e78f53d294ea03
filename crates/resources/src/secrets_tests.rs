use super::*;
use crate::test_support::{checked, checked_with_password, owner, password, passwords};

fn value(secret: &Secret, key: &str) -> Option<String> {
    let data = secret.data.as_ref()?;
    Some(String::from_utf8(data.get(key)?.0.clone()).unwrap())
}

#[test]
fn applications_find_everything_to_connect_with() {
    let secret = connection_secret(&checked("{}"), &owner(), &passwords(), Some("PEM"));
    assert_eq!(secret.metadata.name.as_deref(), Some("orders-connection"));
    for (key, expected) in [
        ("host", "orders.shop.svc"),
        ("port", "6379"),
        ("username", "app"),
        ("password", "for/app"),
        ("tls", "true"),
        ("ca.crt", "PEM"),
        ("uri", "rediss://app:for%2Fapp@orders.shop.svc:6379"),
    ] {
        assert_eq!(value(&secret, key).as_deref(), Some(expected), "{key}");
    }
}

#[test]
fn the_users_own_password_is_that_of_the_default_user() {
    let cluster = checked_with_password("{auth: {secretRef: {name: pw}}, tls: {enabled: false}}", "ü@1");
    let secret = connection_secret(&cluster, &owner(), &passwords(), None);
    assert_eq!(value(&secret, "uri").unwrap(), "redis://default:%C3%BC%401@orders.shop.svc:6379");
    assert_eq!(value(&secret, "ca.crt"), None);
}

#[test]
fn an_open_cluster_needs_no_login() {
    let secret = connection_secret(&checked("{auth: {enabled: false}}"), &owner(), &passwords(), Some("PEM"));
    assert_eq!(value(&secret, "uri").unwrap(), "rediss://orders.shop.svc:6379");
    assert_eq!((value(&secret, "username"), value(&secret, "password")), (None, None));
}

#[test]
fn pods_get_the_users_and_only_the_passwords_that_they_show_themselves() {
    let secret = users_secret(&checked("{}"), &owner(), &passwords());
    let keys: Vec<_> = secret.data.as_ref().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, [USERS_ADMIN_PASSWORD, USERS_REPLICATOR_PASSWORD, USERS_FILE]);
    assert_eq!(value(&secret, USERS_ADMIN_PASSWORD).unwrap(), "for-admin");
}

#[test]
fn each_pod_of_a_shard_finds_its_own_certificates_and_whom_to_trust() {
    let certificate = |pod: &str, purpose| PodCertificate {
        pod: pod.into(),
        purpose,
        chain: format!("chain of {pod}"),
        key: password("key"),
    };
    let certificates = [certificate("orders-1-0", Purpose::Tls), certificate("orders-1-0", Purpose::Mtls)];
    let trust = Trust { tls_ca: "tls".into(), root: "root".into() };
    let secret = shard_certs_secret(&checked("{}"), &owner(), ShardIndex(1), &certificates, &trust);
    assert_eq!(secret.metadata.name.as_deref(), Some("orders-1-certs"));
    let keys: Vec<_> = secret.data.unwrap().into_keys().collect();
    let expected = ["orders-1-0.mtls.crt", "orders-1-0.mtls.key", "orders-1-0.tls.crt", "orders-1-0.tls.key"];
    assert_eq!(keys, [&expected[..], &["root.crt", "tls-ca.crt"]].concat());
}
