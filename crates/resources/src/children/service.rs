//! The ways to a cluster: for clients, for readers, and the names of its nodes.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use valkey_api::labels::{self, Component, Labels};
use valkey_api::names::{BUS_PORT, VALKEY_PORT};

use super::{Owner, child_meta};
use crate::checked::CheckedCluster;

/// Names and addresses of all pods, ready or not: nodes must find each other before any of them can be ready.
pub fn nodes(cluster: &CheckedCluster, owner: &Owner) -> Service {
    let spec = ServiceSpec {
        cluster_ip: Some("None".into()),
        publish_not_ready_addresses: Some(true),
        ports: Some(vec![port("valkey", VALKEY_PORT), port("bus", BUS_PORT)]),
        ..selecting(labels::of_cluster(cluster.names.cluster()))
    };
    service(owner, cluster.names.nodes_service(), spec)
}

/// What a client connects to first: any node that is ready.
pub fn client(cluster: &CheckedCluster, owner: &Owner) -> Service {
    service(owner, cluster.names.client_service(), selecting(labels::of_cluster(cluster.names.cluster())))
}

/// Replicas only, as far as the operator has marked them.
pub fn read(cluster: &CheckedCluster, owner: &Owner) -> Service {
    let mut replicas = labels::of_cluster(cluster.names.cluster());
    replicas.insert(labels::ROLE.into(), labels::REPLICA.into());
    service(owner, cluster.names.read_service(), selecting(replicas))
}

fn service(owner: &Owner, name: String, spec: ServiceSpec) -> Service {
    Service { metadata: child_meta(owner, name, Component::Access), spec: Some(spec), status: None }
}

fn selecting(selector: Labels) -> ServiceSpec {
    ServiceSpec {
        type_: Some("ClusterIP".into()),
        selector: Some(selector),
        ports: Some(vec![port("valkey", VALKEY_PORT)]),
        ..Default::default()
    }
}

fn port(name: &str, number: u16) -> ServicePort {
    ServicePort {
        name: Some(name.into()),
        port: number.into(),
        target_port: Some(IntOrString::String(name.into())),
        protocol: Some("TCP".into()),
        ..Default::default()
    }
}
