//! Another operator defines `valkeyclusters.valkey.io` too. Working on its objects would destroy its users' clusters.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;
use valkey_api::labels;

const NAME: &str = "valkeyclusters.valkey.io";

/// How soon to try again while the API server does not answer.
const BREATH: Duration = Duration::from_secs(2);

/// Refuses to work with a definition that is not ours. Waits for an API server that does not answer: a process that ends for
/// it would be started again only after minutes.
pub async fn ensure_ours(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = loop {
        match definitions.get_opt(NAME).await {
            Ok(found) => break found,
            Err(error @ kube::Error::Api(_)) => {
                return Err(error)
                    .context("the definition of ValkeyCluster cannot be read; check the operator's ClusterRole");
            }
            Err(error) => tracing::warn!(%error, "the API server does not answer; trying again"),
        }
        sleep(BREATH).await;
    };
    let Some(definition) = found else {
        bail!("there is no definition of {NAME}: apply deploy/crds, or install the chart, which brings them");
    };
    if definition.annotations().get(labels::CRD_OWNER).is_none_or(|owner| owner != labels::OPERATOR) {
        bail!(
            "{NAME} belongs to another operator (it has no annotation {}={}), whose clusters this one would break. Remove that operator and \
             its definition first, or run this one in another Kubernetes cluster",
            labels::CRD_OWNER,
            labels::OPERATOR
        );
    }
    Ok(())
}
