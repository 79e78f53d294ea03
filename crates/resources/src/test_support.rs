//! Clusters for tests, written as users write them.

use secrecy::SecretString;
use valkey_api::ValkeyCluster;

use crate::{CheckedCluster, Owner, Passwords, Reference, References, Wiring, check};

/// The cluster `orders` with this spec, in YAML.
pub fn cluster(spec: &str) -> ValkeyCluster {
    ValkeyCluster::new("orders", serde_saphyr::from_str(spec).expect("a spec"))
}

pub fn password(text: &str) -> SecretString {
    text.to_owned().into()
}

pub fn checked(spec: &str) -> CheckedCluster {
    checked_with(spec, &References::default())
}

/// Checked while the Secret that the spec refers to holds this password.
pub fn checked_with_password(spec: &str, text: &str) -> CheckedCluster {
    checked_with(spec, &References { auth_password: Reference::Found(password(text)), ..References::default() })
}

fn checked_with(spec: &str, references: &References) -> CheckedCluster {
    check(&cluster(spec), references).expect("a good spec")
}

pub fn owner() -> Owner {
    Owner { name: "orders".into(), namespace: "shop".into(), uid: "6c0c5c44-0000-4000-8000-000000000001".into() }
}

pub fn wiring() -> Wiring {
    Wiring {
        sidecar_image: "registry.example:5000/valkey-sidecar:0.1.0".into(),
        operator_namespace: "valkey-operator-system".into(),
        trust_domain: "cluster.local".into(),
        report_url: "https://valkey-operator-reports.valkey-operator-system.svc:8443".into(),
    }
}

pub fn passwords() -> Passwords {
    Passwords { admin: password("for-admin"), replicator: password("for-replicator"), app: password("for/app") }
}
