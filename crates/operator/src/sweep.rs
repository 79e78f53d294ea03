//! Removes what no owner reference can: the keys of clusters that are gone, which lie in the operator's own namespace.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, ResourceExt};
use valkey_api::{ValkeyCluster, labels};

use crate::context::Context;
use crate::controllers::cluster::material::{OF_CLUSTER, OF_NAMESPACE};
use crate::stores::{Scope, Watched};

/// How often. A key that waits does no harm: nothing trusts it any more.
const BETWEEN: Duration = Duration::from_mins(10);

pub async fn run(context: Arc<Context>, clusters: Store<Watched>, scope: Scope) {
    context.stores.filling.over().await;
    // Somebody else may have led when they went.
    let mut due = true;
    loop {
        let exists = |namespace: &str, name: &str| clusters.get(&ObjectRef::new(name).within(namespace)).is_some();
        due |= context.retain(exists) > 0;
        if due {
            let swept = sweep(&context, &scope, exists).await;
            due = swept.is_err();
            if let Err(error) = swept {
                tracing::warn!(%error, "keys of clusters that are gone cannot be swept; trying again later");
            }
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

async fn sweep(context: &Context, scope: &Scope, exists: impl Fn(&str, &str) -> bool) -> kube::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let ours = ListParams::default().labels(&format!("{}={},{OF_CLUSTER}", labels::MANAGED_BY, labels::OPERATOR));
    for key in secrets.list_metadata(&ours).await? {
        let (Some(namespace), Some(cluster)) = (key.labels().get(OF_NAMESPACE), key.labels().get(OF_CLUSTER)) else {
            continue;
        };
        let ours = *scope == Scope::All || *scope == Scope::Namespace(namespace.clone());
        if !ours || exists(namespace, cluster) {
            continue;
        }
        // The watch may be behind: only the API server's own word counts before something is deleted.
        let clusters: Api<ValkeyCluster> = Api::namespaced(context.client.clone(), namespace);
        if clusters.get_metadata_opt(cluster).await?.is_some() {
            continue;
        }
        let preconditions = Preconditions { uid: key.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match secrets.delete(&key.name_any(), &params).await {
            Ok(_) => tracing::info!(secret = key.name_any(), "swept the key of a cluster that is gone"),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
