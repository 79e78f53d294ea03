//! The `ConfigMap` with what all servers of a cluster have in common.

use k8s_openapi::api::core::v1::ConfigMap;
use valkey_api::labels::Component;

use super::{Owner, child_meta};
use crate::checked::CheckedCluster;
use crate::valkey_conf::valkey_conf;

pub fn config(cluster: &CheckedCluster, owner: &Owner) -> ConfigMap {
    ConfigMap {
        metadata: child_meta(owner, cluster.names.config_map(), Component::Node),
        data: Some([("valkey.conf".into(), valkey_conf(cluster))].into()),
        ..Default::default()
    }
}
