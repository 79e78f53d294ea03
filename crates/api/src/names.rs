//! What each object of a cluster is called. The only place that glues names together.

use valkey_model::{Member, ShardIndex};

/// The port that clients, replicas and the operator's probes speak Valkey on, with TLS or without.
pub const VALKEY_PORT: u16 = 6379;
/// The port that the nodes gossip on: Valkey adds 10000 to its client port.
pub const BUS_PORT: u16 = 16379;
/// The port on which a sidecar takes commands from the operator.
pub const SIDECAR_PORT: u16 = 7380;
/// The port of probes, of operator and sidecar alike.
pub const HEALTH_PORT: u16 = 8081;

/// The longest name of a cluster: its children's names, longest `<cluster>-connection`, and the names and labels that
/// Kubernetes itself derives from them must stay below 63 characters.
pub const MAX_CLUSTER_NAME: usize = 40;

/// How a cluster's name may not end: the Services of another cluster do.
pub const RESERVED_ENDINGS: [&str; 2] = ["-nodes", "-read"];

/// The names of a cluster's children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildNames {
    cluster: String,
}

impl ChildNames {
    pub fn new(cluster: impl Into<String>) -> Self {
        Self { cluster: cluster.into() }
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub fn stateful_set(&self, shard: ShardIndex) -> String {
        self.with(&shard.to_string())
    }

    pub fn pod(&self, member: Member) -> String {
        self.with(&member.to_string())
    }

    /// Headless: gives each pod its name in DNS, ready or not.
    pub fn nodes_service(&self) -> String {
        self.with("nodes")
    }

    /// What clients connect to first.
    pub fn client_service(&self) -> String {
        self.cluster.clone()
    }

    /// Reaches replicas only.
    pub fn read_service(&self) -> String {
        self.with("read")
    }

    pub fn config_map(&self) -> String {
        self.with("config")
    }

    /// The users that a pod's Valkey knows, for the pods.
    pub fn users_secret(&self) -> String {
        self.with("users")
    }

    /// Address, user, password and CA, for applications.
    pub fn connection_secret(&self) -> String {
        self.with("connection")
    }

    /// The certificates of one shard's pods.
    pub fn certs_secret(&self, shard: ShardIndex) -> String {
        format!("{}-{shard}-certs", self.cluster)
    }

    /// The certificate of the CA that signs what clients see.
    pub fn tls_ca_secret(&self) -> String {
        self.with("tls-ca")
    }

    /// The certificate of the CA that signs what sidecars and operator show each other.
    pub fn mtls_ca_secret(&self) -> String {
        self.with("mtls-ca")
    }

    /// The key of [`Self::tls_ca_secret`]. Lies in the operator's namespace, out of reach of the cluster's own.
    pub fn tls_ca_key_secret(&self, namespace: &str) -> String {
        self.key_secret(namespace, "tls-ca-key")
    }

    /// The key of [`Self::mtls_ca_secret`], in the operator's namespace.
    pub fn mtls_ca_key_secret(&self, namespace: &str) -> String {
        self.key_secret(namespace, "mtls-ca-key")
    }

    pub fn pod_disruption_budget(&self) -> String {
        self.cluster.clone()
    }

    pub fn network_policy(&self) -> String {
        self.cluster.clone()
    }

    /// The `ValkeyClusterStatus` with the live topology.
    pub fn topology(&self) -> String {
        self.cluster.clone()
    }

    pub fn tls_bundle(&self) -> String {
        self.with("tls")
    }

    pub fn mtls_bundle(&self) -> String {
        self.with("mtls")
    }

    pub fn certificate_binding(&self) -> String {
        self.cluster.clone()
    }

    /// A pod's name in DNS. Short of the cluster domain, which a pod's resolver adds and a certificate cannot know.
    pub fn pod_host(&self, member: Member, namespace: &str) -> String {
        format!("{}.{}.{namespace}.svc", self.pod(member), self.nodes_service())
    }

    /// The host that clients connect to.
    pub fn client_host(&self, namespace: &str) -> String {
        format!("{}.{namespace}.svc", self.client_service())
    }

    /// The host that reaches replicas only.
    pub fn read_host(&self, namespace: &str) -> String {
        format!("{}.{namespace}.svc", self.read_service())
    }

    fn with(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.cluster)
    }

    /// Dots cannot be part of a cluster's or namespace's name, so two clusters never meet in one key Secret.
    fn key_secret(&self, namespace: &str, suffix: &str) -> String {
        format!("{namespace}.{}.{suffix}", self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_called_by_shard_and_ordinal_and_found_under_the_nodes_service() {
        let names = ChildNames::new("orders");
        assert_eq!(names.pod(Member::new(2, 1)), "orders-2-1");
        assert_eq!(names.stateful_set(ShardIndex(2)), "orders-2");
        assert_eq!(names.pod_host(Member::new(2, 1), "shop"), "orders-2-1.orders-nodes.shop.svc");
        assert_eq!(names.client_host("shop"), "orders.shop.svc");
        assert_eq!(names.tls_ca_key_secret("shop"), "shop.orders.tls-ca-key");
    }

    #[test]
    fn no_child_of_the_longest_name_is_longer_than_kubernetes_bears() {
        // A StatefulSet's pods carry its name and a hash of eleven characters in one label, and that is the tightest limit.
        const REVISION: usize = 11;
        let names = ChildNames::new("c".repeat(MAX_CLUSTER_NAME));
        assert!(names.stateful_set(ShardIndex(499)).len() + REVISION <= 63);
        assert!(names.pod(Member::new(499, 5)).len() <= 63);
        assert!(names.connection_secret().len() <= 63);
        assert!(names.certs_secret(ShardIndex(499)).len() <= 63);
    }

    #[test]
    fn only_services_of_two_clusters_could_meet_and_the_rule_on_names_keeps_them_apart() {
        // The Service `a-read` of cluster `a` would be the client Service of a cluster `a-read`: such a name is refused.
        let one = ChildNames::new("a");
        for service in [one.nodes_service(), one.read_service()] {
            assert!(RESERVED_ENDINGS.iter().any(|ending| service.ends_with(ending)), "{service}");
        }
    }
}
