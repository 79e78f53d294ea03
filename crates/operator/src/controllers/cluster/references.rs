//! What a spec refers to: looked up, not judged.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use secrecy::SecretString;
use valkey_api::ValkeyCluster;
use valkey_resources::{Presence, Reference, References};

use super::Error;
use crate::context::Context;

pub async fn find(context: &Context, cluster: &ValkeyCluster, namespace: &str) -> Result<References, Error> {
    let (auth_password, service_account) =
        tokio::try_join!(auth_password(context, cluster, namespace), service_account(context, cluster, namespace))?;
    Ok(References { auth_password, service_account })
}

async fn auth_password(context: &Context, cluster: &ValkeyCluster, namespace: &str) -> Result<Reference, Error> {
    let Some(reference) = cluster.spec.auth().secret_ref else { return Ok(Reference::NotAsked) };
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let failed = |source| Error::Kubernetes { what: "the Secret in spec.auth.secretRef cannot be read", source };
    let Some(secret) = secrets.get_opt(&reference.name).await.map_err(failed)? else { return Ok(Reference::Missing) };
    let value = secret.data.and_then(|mut data| data.remove(reference.key()));
    let text = value.and_then(|value| String::from_utf8(value.0).ok()).filter(|text| !text.is_empty());
    Ok(text.map_or(Reference::KeyMissing, |text| Reference::Found(SecretString::from(text))))
}

async fn service_account(context: &Context, cluster: &ValkeyCluster, namespace: &str) -> Result<Presence, Error> {
    let Some(name) = &cluster.spec.service_account_name else { return Ok(Presence::NotAsked) };
    let accounts: Api<ServiceAccount> = Api::namespaced(context.client.clone(), namespace);
    let failed =
        |source| Error::Kubernetes { what: "the ServiceAccount in spec.serviceAccountName cannot be read", source };
    Ok(if accounts.get_opt(name).await.map_err(failed)?.is_some() { Presence::Found } else { Presence::Missing })
}
