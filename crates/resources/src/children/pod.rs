//! A pod: Valkey under the launcher, and the sidecar that tells both what to do.

use std::collections::BTreeMap;

use k8s_openapi::DeepMerge;
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, LocalObjectReference, ObjectFieldSelector,
    PodSecurityContext, PodSpec, Probe, ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use valkey_api::names::{BUS_PORT, HEALTH_PORT, SIDECAR_PORT, VALKEY_PORT};
use valkey_model::ShardIndex;

use super::{BuildError, Wiring, scheduling};
use crate::checked::CheckedCluster;
use crate::hash::fingerprint;
use crate::valkey_conf::{DATA, RUN, restart_settings};

/// The container in which the server runs.
pub const VALKEY_CONTAINER: &str = "valkey";
/// The native sidecar beside it.
pub const SIDECAR_CONTAINER: &str = "sidecar";

pub const DATA_VOLUME: &str = "data";

/// What Kubernetes can give more or less of to a running container. It cannot add or take away a request or limit, and by
/// default (`resizePolicy`) it does not restart the container for it.
pub const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// The user and group of the official image. Its files are owned so, and those of a volume by way of the group.
const VALKEY_USER: i64 = 999;
/// Enough for a handover and a last save; the launcher divides it up.
const GRACE_PERIOD_SECONDS: i64 = 30;
const SIDECAR: &str = "/usr/bin/valkey-sidecar";
/// Certificates and passwords: for the pod's group, for nobody else.
const SECRET_MODE: i32 = 0o440;

pub fn spec(cluster: &CheckedCluster, wiring: &Wiring, shard: ShardIndex) -> PodSpec {
    let pods = &cluster.pods;
    let pull_secret = |name: &String| LocalObjectReference { name: name.clone() };
    let pull_secrets: Vec<_> = cluster.image.pull_secrets.iter().map(pull_secret).collect();
    PodSpec {
        init_containers: Some(vec![sidecar(cluster, wiring, shard)]),
        containers: vec![valkey(cluster)],
        volumes: Some(volumes(cluster, shard)),
        affinity: Some(scheduling::affinity(cluster, shard)),
        topology_spread_constraints: Some(scheduling::spread(cluster)),
        node_selector: pods.node_selector.clone(),
        tolerations: pods.tolerations.clone(),
        priority_class_name: pods.priority_class_name.clone(),
        service_account_name: pods.service_account_name.clone(),
        // Nothing in the pod talks to the API server: what it needs is mounted.
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: (!pull_secrets.is_empty()).then_some(pull_secrets),
        security_context: Some(pod_security(cluster)),
        termination_grace_period_seconds: Some(GRACE_PERIOD_SECONDS),
        ..Default::default()
    }
}

/// A fingerprint of what a pod must be restarted for.
///
/// Not in it: labels and annotations, which can change on a running pod; how much CPU and memory the server gets, which can
/// too; parameters that a running server takes; and the sidecar's image as long as it is the operator's own, so that a new
/// operator restarts nobody's cluster.
pub fn template_hash(cluster: &CheckedCluster, spec: &PodSpec) -> Result<String, BuildError> {
    #[derive(Serialize)]
    struct Restart {
        pod: PodSpec,
        config: Vec<(String, String)>,
    }
    let mut pod = spec.clone();
    let sidecars_own_image = cluster.sidecar.name.is_none() && cluster.sidecar.tag.is_none();
    for container in pod.init_containers.iter_mut().flatten().filter(|_| sidecars_own_image) {
        container.image = None;
    }
    let resources = pod.containers.iter_mut().filter_map(|container| container.resources.as_mut());
    for resources in resources {
        let amounts = resources.requests.iter_mut().chain(&mut resources.limits).flatten();
        for (_, amount) in amounts.filter(|(name, _)| RESIZABLE.contains(&name.as_str())) {
            *amount = Quantity::default(); // that there is one counts, not which
        }
    }
    Ok(fingerprint(&Restart { pod, config: restart_settings(cluster) })?)
}

/// A native sidecar: it is there before Valkey, which asks it whether it may start, and after it.
fn sidecar(cluster: &CheckedCluster, wiring: &Wiring, shard: ShardIndex) -> Container {
    let install = [SIDECAR.into(), "install-launcher".into(), format!("{RUN}/launcher")].to_vec();
    let install = LifecycleHandler { exec: Some(ExecAction { command: Some(install) }), ..Default::default() };
    Container {
        name: SIDECAR_CONTAINER.into(),
        image: Some(sidecar_image(cluster, wiring)),
        image_pull_policy: cluster.sidecar.pull_policy.map(|policy| policy.as_str().into()),
        restart_policy: Some("Always".into()),
        args: Some(vec![
            "run".into(),
            format!("--cluster={}", cluster.names.cluster()),
            format!("--shard={shard}"),
            format!("--operator-namespace={}", wiring.operator_namespace),
            format!("--trust-domain={}", wiring.trust_domain),
            format!("--report-url={}", wiring.report_url),
        ]),
        env: Some(vec![
            from_field("POD_NAME", "metadata.name"),
            from_field("POD_NAMESPACE", "metadata.namespace"),
            from_field("POD_IP", "status.podIP"),
            from_field("NODE_NAME", "spec.nodeName"),
        ]),
        ports: Some(vec![port("grpc", SIDECAR_PORT), port("health", HEALTH_PORT)]),
        // Done before the next container starts: Valkey's image need not have a launcher of ours.
        lifecycle: Some(Lifecycle { post_start: Some(install), ..Default::default() }),
        liveness_probe: Some(Probe { period_seconds: Some(10), failure_threshold: Some(6), ..http_probe("/healthz") }),
        resources: Some(ResourceRequirements {
            requests: Some(amounts(&[("cpu", "10m"), ("memory", "16Mi")])),
            limits: Some(amounts(&[("memory", "64Mi")])),
            claims: None,
        }),
        security_context: Some(container_security()),
        volume_mounts: Some(vec![
            mount(DATA_VOLUME, DATA),
            mount("tmp", "/tmp"),
            mount("run", RUN),
            read_only("config", "/etc/valkey-operator/config"),
            read_only("users", "/etc/valkey-operator/users"),
            read_only("certs", "/etc/valkey-operator/certs"),
        ]),
        ..Default::default()
    }
}

/// What a server asks for whose spec says nothing about CPU. Without a request it gets what all others leave over, its own sidecar
/// among them: on a busy machine writes then wait for seconds. A pod that runs keeps what it has.
const CPU_SHARE: &str = "100m";

type Amounts = BTreeMap<String, Quantity>;

fn with_a_share_of_cpu(resources: Option<ResourceRequirements>) -> ResourceRequirements {
    let mut resources = resources.unwrap_or_default();
    let says = |amounts: &Option<Amounts>| amounts.as_ref().is_some_and(|all| all.contains_key("cpu"));
    if !says(&resources.requests) && !says(&resources.limits) {
        let share = Quantity(CPU_SHARE.to_owned());
        resources.requests.get_or_insert_default().insert("cpu".to_owned(), share);
    }
    resources
}

fn valkey(cluster: &CheckedCluster) -> Container {
    Container {
        name: VALKEY_CONTAINER.into(),
        image: Some(cluster.image.reference.clone()),
        image_pull_policy: cluster.image.pull_policy.map(|policy| policy.as_str().into()),
        command: Some(vec![
            format!("{RUN}/launcher"),
            "--".into(),
            "valkey-server".into(),
            format!("{RUN}/valkey.conf"),
        ]),
        ports: Some(vec![port("valkey", VALKEY_PORT), port("bus", BUS_PORT)]),
        readiness_probe: Some(Probe {
            period_seconds: Some(1),
            timeout_seconds: Some(2),
            failure_threshold: Some(2),
            ..http_probe("/valkey/ready")
        }),
        // Patient: a server that loads or syncs is busy, not dead, and killing it starts the work again.
        liveness_probe: Some(Probe {
            period_seconds: Some(5),
            timeout_seconds: Some(5),
            failure_threshold: Some(6),
            ..http_probe("/valkey/live")
        }),
        resources: Some(with_a_share_of_cpu(cluster.pods.resources.clone())),
        security_context: Some(container_security()),
        volume_mounts: Some(vec![mount(DATA_VOLUME, DATA), mount("tmp", "/tmp"), mount("run", RUN)]),
        ..Default::default()
    }
}

/// The operator's own image, with the name or tag that the user wants instead.
fn sidecar_image(cluster: &CheckedCluster, wiring: &Wiring) -> String {
    // A registry may have a port, so only a colon after the last slash begins a tag.
    let slash = wiring.sidecar_image.rfind('/').unwrap_or(0);
    let (own_name, own_tag) = match wiring.sidecar_image.rfind(':').filter(|colon| *colon > slash) {
        Some(colon) => wiring.sidecar_image.split_at(colon),
        None => (wiring.sidecar_image.as_str(), ""),
    };
    let name = cluster.sidecar.name.as_deref().unwrap_or(own_name);
    let tag = cluster.sidecar.tag.as_ref().map_or_else(|| own_tag.to_owned(), |tag| format!(":{tag}"));
    format!("{name}{tag}")
}

fn volumes(cluster: &CheckedCluster, shard: ShardIndex) -> Vec<Volume> {
    let names = &cluster.names;
    let own = cluster.storage.is_none().then(|| empty_dir(DATA_VOLUME, EmptyDirVolumeSource::default()));
    // In memory: keys and passwords never touch the Kubernetes node's disk.
    let run = EmptyDirVolumeSource { medium: Some("Memory".into()), size_limit: Some(Quantity("16Mi".into())) };
    let config = ConfigMapVolumeSource { name: names.config_map(), ..Default::default() };
    let mounted = [
        empty_dir("tmp", EmptyDirVolumeSource::default()),
        empty_dir("run", run),
        Volume { name: "config".into(), config_map: Some(config), ..Default::default() },
        secret("users", names.users_secret()),
        secret("certs", names.certs_secret(shard)),
    ];
    own.into_iter().chain(mounted).collect()
}

fn empty_dir(name: &str, source: EmptyDirVolumeSource) -> Volume {
    Volume { name: name.into(), empty_dir: Some(source), ..Default::default() }
}

fn secret(name: &str, secret: String) -> Volume {
    let source =
        SecretVolumeSource { secret_name: Some(secret), default_mode: Some(SECRET_MODE), ..Default::default() };
    Volume { name: name.into(), secret: Some(source), ..Default::default() }
}

fn pod_security(cluster: &CheckedCluster) -> PodSecurityContext {
    let mut security = PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(VALKEY_USER),
        run_as_group: Some(VALKEY_USER),
        fs_group: Some(VALKEY_USER),
        fs_group_change_policy: Some("OnRootMismatch".into()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }),
        ..Default::default()
    };
    security.merge_from(cluster.pods.security_context.clone().unwrap_or_default());
    security
}

fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        ..Default::default()
    }
}

fn from_field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: path.into(), api_version: None };
    let source = EnvVarSource { field_ref: Some(field), ..Default::default() };
    EnvVar { name: name.into(), value_from: Some(source), ..Default::default() }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.into()),
        container_port: number.into(),
        protocol: Some("TCP".into()),
        ..Default::default()
    }
}

/// Answered by the sidecar, for both containers, without TLS.
fn http_probe(path: &str) -> Probe {
    let action =
        HTTPGetAction { path: Some(path.into()), port: IntOrString::Int(HEALTH_PORT.into()), ..Default::default() };
    Probe { http_get: Some(action), ..Default::default() }
}

fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.into(), mount_path: path.into(), ..Default::default() }
}

fn read_only(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(volume, path) }
}

fn amounts(amounts: &[(&str, &str)]) -> Amounts {
    amounts.iter().map(|(name, amount)| ((*name).into(), Quantity((*amount).into()))).collect()
}
