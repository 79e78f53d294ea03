//! The `ConfigMap` with what all servers of a cluster have in common.

use k8s_openapi::api::core::v1::ConfigMap;
use valkey_api::labels::Component;
use valkey_model::Settings;

use super::{Owner, child_meta};
use crate::checked::CheckedCluster;
use crate::valkey_conf::{first_start_conf, valkey_conf};

/// The file of the `ConfigMap` that servers read.
pub const VALKEY_CONF: &str = "valkey.conf";

pub fn config(cluster: &CheckedCluster, owner: &Owner, live: &Settings) -> ConfigMap {
    let files =
        [(VALKEY_CONF.into(), valkey_conf(cluster, live)), ("first-start.conf".into(), first_start_conf(cluster))];
    ConfigMap {
        metadata: child_meta(owner, cluster.names.config_map(), Component::Node),
        data: Some(files.into()),
        ..Default::default()
    }
}
