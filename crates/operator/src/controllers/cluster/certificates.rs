//! The cluster's certificates as objects that people can look at.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::DynamicObject;
use valkey_api::labels::Component;
use valkey_api::pki::{
    ActiveCertificate, ClusterName, ObjectName, Purpose, SecretName, ValkeyCertificateBindingSpec,
    ValkeyCertificateBindingStatus, ValkeyCertificateBundleSpec, ValkeyCertificateBundleStatus,
};
use valkey_api::{ConditionStatus, ConditionType, ValkeyCertificateBinding, ValkeyCertificateBundle, conditions};
use valkey_pki::Intermediate;
use valkey_resources::{BuildError, CheckedCluster, Owner, child_meta, object};

use super::material::{Material, as_api};
use crate::context::Context;
use crate::trust;

/// Bundles, the Secrets with their certificates, and the binding. Their status is applied with them: it is as fixed as they are.
pub fn objects(
    context: &Context,
    checked: &CheckedCluster,
    owner: &Owner,
    material: &Material,
) -> Result<Vec<DynamicObject>, BuildError> {
    let names = &checked.names;
    let bundles = [
        (
            Purpose::Mtls,
            names.mtls_bundle(),
            names.mtls_ca_secret(),
            names.mtls_ca_key_secret(&owner.namespace),
            &material.mtls,
        ),
        (
            Purpose::Tls,
            names.tls_bundle(),
            names.tls_ca_secret(),
            names.tls_ca_key_secret(&owner.namespace),
            &material.tls,
        ),
    ];
    let mut all = Vec::new();
    for (purpose, name, cert_secret, key_secret, signer) in bundles {
        let operator = &context.settings.namespace;
        let spec = ValkeyCertificateBundleSpec {
            ca_ref: ObjectName { name: trust::ROOT.into(), namespace: operator.clone() },
            purpose,
            cert_secret_ref: SecretName { name: cert_secret.clone() },
            key_secret_ref: ObjectName { name: key_secret, namespace: operator.clone() },
        };
        all.push(object(bundle(owner, name, spec, signer))?);
        all.push(object(certificate_secret(owner, cert_secret, signer))?);
    }
    all.push(object(binding(checked, owner, material))?);
    Ok(all)
}

fn bundle(
    owner: &Owner,
    name: String,
    spec: ValkeyCertificateBundleSpec,
    signer: &Intermediate,
) -> ValkeyCertificateBundle {
    let facts = signer.authority().facts();
    let status = ValkeyCertificateBundleStatus {
        thumbprint: Some(facts.thumbprint.to_string()),
        issued_at: Some(Time(facts.issued_at())),
        expires_at: Some(Time(facts.not_after)),
        conditions: ready("Issued", "the intermediate is there and signs", facts.issued_at()),
    };
    ValkeyCertificateBundle { metadata: child_meta(owner, name, Component::Certificates), spec, status: Some(status) }
}

/// Certificates only. The key stays with the operator.
fn certificate_secret(owner: &Owner, name: String, signer: &Intermediate) -> Secret {
    let data = signer.certificates().into_iter().map(|(entry, pem)| (entry, ByteString(pem))).collect();
    Secret { metadata: child_meta(owner, name, Component::Certificates), data: Some(data), ..Secret::default() }
}

/// True since the certificate was made; a renewal makes it anew.
fn ready(reason: &str, message: &str, since: Timestamp) -> Vec<Condition> {
    let mut conditions = Vec::new();
    conditions::set(&mut conditions, ConditionType::Ready, ConditionStatus::True, reason, message, 1, Time(since));
    conditions
}

fn binding(checked: &CheckedCluster, owner: &Owner, material: &Material) -> ValkeyCertificateBinding {
    let names = &checked.names;
    let active = material.facts.iter().map(|issued| {
        let purpose = as_api(issued.purpose);
        ActiveCertificate {
            purpose,
            bundle_ref: match purpose {
                Purpose::Mtls => names.mtls_bundle(),
                Purpose::Tls => names.tls_bundle(),
            },
            secret_name: names.certs_secret(issued.member.shard),
            pod: names.pod(issued.member),
            thumbprint: issued.facts.thumbprint.to_string(),
            issued_at: Time(issued.facts.issued_at()),
            expires_at: Time(issued.facts.not_after),
        }
    });
    let newest = material.facts.iter().map(|issued| issued.facts.issued_at()).max().unwrap_or(Timestamp::UNIX_EPOCH);
    ValkeyCertificateBinding {
        metadata: child_meta(owner, names.certificate_binding(), Component::Certificates),
        spec: ValkeyCertificateBindingSpec { cluster_ref: ClusterName { name: owner.name.clone() } },
        status: Some(ValkeyCertificateBindingStatus {
            active: active.collect(),
            conditions: ready("Issued", "every pod has a valid certificate for each purpose", newest),
        }),
    }
}
