//! The root of all certificates of this installation, and the operator's own identity.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use valkey_api::pki::{ROOT_VALID_FOR_DAYS, SecretName, ValkeyCASpec, ValkeyCAStatus};
use valkey_api::{ConditionStatus, ConditionType, ValkeyCA, conditions, labels};
use valkey_pki::{Authority, CERTIFICATE_ENTRY, KEY_ENTRY, Leaf, LeafRequest, SpiffeId, TrustDomain, Validity};

/// The `ValkeyCA` that every certificate of this installation descends from.
pub const ROOT: &str = "valkey-operator-root";
/// The Secret that the operator makes for it if nobody brought one.
const ROOT_SECRET: &str = "valkey-operator-root-ca";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} cannot be read or written: {source}")]
    Kubernetes { what: &'static str, source: kube::Error },
    #[error(
        "Secret {secret} has no {entry}: put the root's certificate and key there, or delete the Secret and a new root is made"
    )]
    Incomplete { secret: String, entry: &'static str },
    #[error("Secret {secret} cannot be used as root: {source}")]
    Unusable { secret: String, source: valkey_pki::Error },
    #[error("a certificate cannot be made: {0}")]
    Pki(#[from] valkey_pki::Error),
    #[error(transparent)]
    Identity(#[from] valkey_pki::IdentityError),
    #[error(transparent)]
    Validity(#[from] valkey_pki::ValidityError),
}

/// The root, made at the first start and used ever after.
pub async fn root(client: &Client, namespace: &str) -> Result<Authority, Error> {
    let authorities: Api<ValkeyCA> = Api::namespaced(client.clone(), namespace);
    let failed = |source| Error::Kubernetes { what: "the ValkeyCA", source };
    let ca = match authorities.get_opt(ROOT).await.map_err(failed)? {
        Some(ca) => ca,
        None => created(authorities.create(&PostParams::default(), &built_in()).await, &authorities, ROOT)
            .await
            .map_err(failed)?,
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = &ca.spec.ca_cert_secret_ref.name;
    let failed = |source| Error::Kubernetes { what: "the root's Secret", source };
    let content = if let Some(content) = secrets.get_opt(secret).await.map_err(failed)? {
        content
    } else {
        let made = generate(secret, ca.spec.valid_for_days)?;
        created(secrets.create(&PostParams::default(), &made).await, &secrets, secret).await.map_err(failed)?
    };
    let root = load(secret, &content)?;
    tell(&authorities, &ca, &root)
        .await
        .map_err(|source| Error::Kubernetes { what: "the status of the ValkeyCA", source })?;
    Ok(root)
}

/// What was created, or what somebody else created a moment before us: never the second of two roots.
async fn created<K>(result: kube::Result<K>, api: &Api<K>, name: &str) -> kube::Result<K>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match result {
        Err(kube::Error::Api(status)) if status.is_already_exists() => api.get(name).await,
        other => other,
    }
}

fn built_in() -> ValkeyCA {
    let ca_cert_secret_ref = SecretName { name: ROOT_SECRET.into() };
    let mut ca = ValkeyCA::new(ROOT, ValkeyCASpec { ca_cert_secret_ref, valid_for_days: ROOT_VALID_FOR_DAYS });
    ca.metadata.labels = Some(managed());
    ca
}

fn managed() -> BTreeMap<String, String> {
    [(labels::MANAGED_BY.into(), labels::OPERATOR.into())].into()
}

fn generate(name: &str, days: i32) -> Result<Secret, Error> {
    tracing::info!(secret = name, days, "making the root of all certificates");
    let validity: Validity = format!("{days}d").parse()?;
    let root = Authority::root("valkey-operator root", validity, Timestamp::now())?;
    let data = [
        (CERTIFICATE_ENTRY.into(), ByteString(root.certificate_pem().into_bytes())),
        (KEY_ENTRY.into(), ByteString(root.key().expose_secret().as_bytes().to_vec())),
    ];
    let metadata = ObjectMeta { name: Some(name.into()), labels: Some(managed()), ..ObjectMeta::default() };
    Ok(Secret { metadata, data: Some(data.into()), ..Secret::default() })
}

fn load(name: &str, secret: &Secret) -> Result<Authority, Error> {
    let entry = |entry: &'static str| {
        let found = secret.data.as_ref().and_then(|data| data.get(entry));
        found.ok_or_else(|| Error::Incomplete { secret: name.to_owned(), entry })
    };
    let key = SecretString::from(String::from_utf8_lossy(&entry(KEY_ENTRY)?.0).into_owned());
    let unusable = |source| Error::Unusable { secret: name.to_owned(), source };
    Authority::load(&entry(CERTIFICATE_ENTRY)?.0, &key).map_err(unusable)
}

/// The status of the `ValkeyCA`, written only if it says something new.
async fn tell(authorities: &Api<ValkeyCA>, ca: &ValkeyCA, root: &Authority) -> kube::Result<()> {
    let facts = root.facts();
    let mut status = ValkeyCAStatus {
        thumbprint: Some(facts.thumbprint.to_string()),
        issued_at: Some(Time(facts.issued_at())),
        expires_at: Some(Time(facts.not_after)),
        conditions: ca.status.clone().unwrap_or_default().conditions,
    };
    let expired = facts.is_expired(Timestamp::now());
    let (reason, message) = if expired { ("Expired", "the root has expired") } else { ("Loaded", "the root signs") };
    let generation = ca.metadata.generation.unwrap_or_default();
    conditions::set(
        &mut status.conditions,
        ConditionType::Ready,
        ConditionStatus::from(!expired),
        reason,
        message,
        generation,
        Time(Timestamp::now()),
    );
    if ca.status.as_ref() != Some(&status) {
        authorities
            .patch_status(&ca.name_any(), &PatchParams::default(), &Patch::Merge(json!({ "status": status })))
            .await?;
    }
    Ok(())
}

/// A certificate that says: this is the operator.
pub fn operator_leaf(root: &Authority, domain: &TrustDomain, namespace: &str) -> Result<Leaf, Error> {
    let request = LeafRequest {
        common_name: "valkey-operator".into(),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        uri: Some(SpiffeId::operator(domain, namespace)?),
        validity: Validity::LEAF,
    };
    Ok(root.issue(&request, Timestamp::now())?)
}
