//! Who may open a connection to a cluster's pods.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use valkey_api::labels::{self, Component, Labels};
use valkey_api::names::{BUS_PORT, HEALTH_PORT, SIDECAR_PORT, VALKEY_PORT};

use super::{Owner, Wiring, child_meta};
use crate::checked::CheckedCluster;

/// Set by Kubernetes on every namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Clients and probes from anywhere; gossip from the cluster's own pods; commands from the operator's namespace.
pub fn ingress(cluster: &CheckedCluster, owner: &Owner, wiring: &Wiring) -> NetworkPolicy {
    let own_pods = labels::of_cluster(cluster.names.cluster());
    let nodes = NetworkPolicyPeer { pod_selector: Some(selector(own_pods.clone())), ..Default::default() };
    let home = [(NAMESPACE_NAME.to_owned(), wiring.operator_namespace.clone())].into();
    let operator = NetworkPolicyPeer { namespace_selector: Some(selector(home)), ..Default::default() };
    NetworkPolicy {
        metadata: child_meta(owner, cluster.names.network_policy(), Component::Node),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(own_pods)),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(vec![
                rule(&[VALKEY_PORT, HEALTH_PORT], None),
                rule(&[BUS_PORT], Some(nodes)),
                rule(&[SIDECAR_PORT], Some(operator)),
            ]),
            ..Default::default()
        }),
    }
}

fn rule(ports: &[u16], from: Option<NetworkPolicyPeer>) -> NetworkPolicyIngressRule {
    let port = |number: &u16| NetworkPolicyPort {
        port: Some(IntOrString::Int((*number).into())),
        protocol: Some("TCP".into()),
        end_port: None,
    };
    NetworkPolicyIngressRule { ports: Some(ports.iter().map(port).collect()), from: from.map(|peer| vec![peer]) }
}

fn selector(labels: Labels) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), ..Default::default() }
}
