//! The operator's own certificates, made visible.
//!
//! Only what a human wants to see: names, dates, thumbprints. Certificates and keys lie in Secrets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long a root is valid if nobody says otherwise: ten years.
pub const ROOT_VALID_FOR_DAYS: i32 = 3650;

/// The root from which all certificates of an installation descend.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "valkey.io",
    version = "v1alpha1",
    kind = "ValkeyCA",
    plural = "valkeycas",
    shortname = "vca",
    category = "valkey",
    namespaced,
    status = "ValkeyCAStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "The root from which all certificates of an installation descend.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".status.expiresAt"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyCASpec {
    /// The Secret, in the same namespace, with the root's certificate (`ca.crt`) and key (`ca.key`). Made by the operator if
    /// it is not there; bring your own by making it first.
    pub ca_cert_secret_ref: SecretName,

    /// For how many days a root that the operator makes is valid.
    #[serde(default = "root_valid_for_days")]
    #[x_kube(validation = Rule::new("self >= 30 && self <= 36500").message(
        "spec.validForDays must be 30 to 36500: a shorter root would expire under running clusters; leave it out for ten years"
    ))]
    pub valid_for_days: i32,
}

fn root_valid_for_days() -> i32 {
    ROOT_VALID_FOR_DAYS
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyCAStatus {
    /// The SHA-256 of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thumbprint: Option<String>,
    /// From when it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<Time>,
    /// Until when it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// `Ready`: the root is there, and signs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// An intermediate CA: one per cluster and purpose, so that what leaks from one cluster is worth nothing in another.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "valkey.io",
    version = "v1alpha1",
    kind = "ValkeyCertificateBundle",
    plural = "valkeycertificatebundles",
    shortname = "vcb",
    category = "valkey",
    namespaced,
    status = "ValkeyCertificateBundleStatus",
    derive = "PartialEq",
    doc = "An intermediate CA: one per cluster and purpose.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Purpose", type_ = "string", json_path = ".spec.purpose"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".status.expiresAt"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyCertificateBundleSpec {
    /// The `ValkeyCA` that signs it.
    pub ca_ref: ObjectName,
    /// What the certificates that it signs are for.
    pub purpose: Purpose,
    /// The Secret, in the same namespace, with the certificate (`ca.crt`).
    pub cert_secret_ref: SecretName,
    /// The Secret with the key. It lies with the operator, not with the cluster.
    pub key_secret_ref: ObjectName,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyCertificateBundleStatus {
    /// The SHA-256 of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thumbprint: Option<String>,
    /// From when it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<Time>,
    /// Until when it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// `Ready`: the intermediate is there, and signs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The certificates that a cluster's pods use right now.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "valkey.io",
    version = "v1alpha1",
    kind = "ValkeyCertificateBinding",
    plural = "valkeycertificatebindings",
    shortname = "vcbind",
    category = "valkey",
    namespaced,
    status = "ValkeyCertificateBindingStatus",
    derive = "PartialEq",
    doc = "The certificates that a cluster's pods use right now.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyCertificateBindingSpec {
    /// The `ValkeyCluster`, in the same namespace.
    pub cluster_ref: ClusterName,
}

#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyCertificateBindingStatus {
    /// One entry per pod and purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ActiveCertificate>,
    /// `Ready`: every pod has a valid certificate for each purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One pod's certificate for one purpose.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ActiveCertificate {
    pub purpose: Purpose,
    /// The `ValkeyCertificateBundle` that signed it.
    pub bundle_ref: String,
    /// The Secret that it lies in.
    pub secret_name: String,
    /// The pod that shows it.
    pub pod: String,
    /// The SHA-256 of the certificate.
    pub thumbprint: String,
    /// From when it is valid.
    pub issued_at: Time,
    /// Until when it is valid.
    pub expires_at: Time,
}

/// What a certificate is for.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Operator and sidecar among themselves.
    Mtls,
    /// Valkey to its clients and among its nodes.
    Tls,
}

impl Purpose {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mtls => "mtls",
            Self::Tls => "tls",
        }
    }
}

/// A Secret in the same namespace.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretName {
    pub name: String,
}

/// A `ValkeyCluster` in the same namespace.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterName {
    pub name: String,
}

/// An object that may lie in another namespace.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectName {
    pub name: String,
    pub namespace: String,
}
