//! A node: a machine with containerd, a kubelet and a kube-proxy; and the ways in which it can go and come back.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::json;

use super::Bench;
use super::control_plane;
use super::layout::NodeNumber;
use super::machine::Machine;
use crate::images::Image;
use crate::shell;
use crate::wait::{Attempt, until};

const CONTAINERD_START: Duration = Duration::from_secs(30);
const SOCKET: &str = "/run/containerd/containerd.sock";
/// A registry on this host at this port may be spoken to without TLS.
const REGISTRY_PORT: u16 = 5000;
const POD_GRACE: Duration = Duration::from_secs(30);

/// Boots the machine and plugs it in; nothing runs on it yet.
pub fn boot(bench: &Bench, control: &Machine, node: NodeNumber) -> Result<Machine> {
    let layout = &bench.layout;
    // Control groups do not outlive a reboot; kubelet would look for the containers that were in them, for 3 s each.
    let group = layout.node_cgroup(node)?;
    bench.groups.remove(&group)?;
    bench.groups.create(&group)?;
    let machine = bench.boot(&node.to_string())?;
    control.connect(&node.port(), &machine, "eth0")?;
    control_plane::plug(control, &node.port())?;
    machine.address("eth0", layout.node(node), layout.machines().prefix)?;
    machine.route("default", layout.control())?;
    for other in NodeNumber::all().filter(|other| *other != node) {
        machine.route(&layout.pods_of(other).to_string(), layout.node(other))?;
    }
    Ok(machine)
}

/// Starts containerd and waits until it answers.
pub fn start_containerd(bench: &Bench, machine: &Machine, node: NodeNumber) -> Result<()> {
    let folder = bench.machine_folder(&node.to_string());
    std::fs::create_dir_all(folder.join("cni"))?;
    std::fs::write(folder.join("cni/10-bridge.conflist"), cni(bench, node).to_string())?;
    let registry = format!("{}:{REGISTRY_PORT}", bench.layout.host());
    std::fs::create_dir_all(folder.join("registries").join(&registry))?;
    let hosts = format!("server = \"http://{registry}\"\n");
    std::fs::write(folder.join("registries").join(&registry).join("hosts.toml"), hosts)?;
    std::fs::write(folder.join("containerd.toml"), containerd(bench, node))?;
    let args = [format!("--config={}", folder.join("containerd.toml").display())];
    bench.start(&node.to_string(), machine, "containerd", &args)?;
    until(&format!("containerd of {node}"), CONTAINERD_START, || {
        bench.check_alive(&node.to_string(), "containerd")?;
        match shell::run(ctr(machine).arg("version")) {
            Ok(()) => Ok(Attempt::Done(())),
            Err(error) => Ok(Attempt::Pending(error.to_string())),
        }
    })
}

/// Puts an image into the node's store.
pub fn load(machine: &Machine, node: NodeNumber, image: &Image) -> Result<()> {
    shell::run(ctr(machine).args(["--namespace=k8s.io", "images", "import"]).arg(&image.archive))
        .with_context(|| format!("cannot load {} into {node}", image.reference))
}

fn ctr(machine: &Machine) -> Command {
    let mut command = machine.command("ctr");
    command.arg(format!("--address={SOCKET}"));
    command
}

/// Starts what makes the machine a node of the cluster.
pub fn start_kubelet(bench: &Bench, machine: &Machine, node: NodeNumber) -> Result<()> {
    let folder = bench.machine_folder(&node.to_string());
    let name = node.to_string();
    std::fs::write(folder.join("kubelet.json"), kubelet(bench, node)?.to_string())?;
    std::fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\n")?;
    let flags = [
        format!("--config={}", folder.join("kubelet.json").display()),
        format!("--kubeconfig={}", bench.folder.join(format!("{node}.kubeconfig")).display()),
        format!("--hostname-override={node}"),
        format!("--node-ip={}", bench.layout.node(node)),
        format!("--node-labels=topology.kubernetes.io/zone={}", node.zone()),
    ];
    bench.start(&name, machine, "kubelet", &flags)?;
    bench.start(&name, machine, "kube-proxy", &proxy_flags(bench, node))
}

pub fn proxy_flags(bench: &Bench, node: NodeNumber) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", bench.folder.join("proxy.kubeconfig").display()),
        "--proxy-mode=nftables".into(),
        format!("--cluster-cidr={}", bench.layout.pods()),
        format!("--hostname-override={node}"),
        // A network namespace may not set the machine's connection tracking limits.
        "--conntrack-max-per-core=0".into(),
        "--conntrack-tcp-timeout-established=0s".into(),
        "--conntrack-tcp-timeout-close-wait=0s".into(),
    ]
}

/// A clean shutdown, as an init system does it: kubelet first, so that nothing is started again; then every container is
/// told to end and given time; then the power goes.
pub fn stop(bench: &Bench, machine: &Machine, node: NodeNumber) -> Result<()> {
    if let Some(kubelet) = bench.process(&node.to_string(), "kubelet") {
        kubelet.signal(Signal::TERM)?;
        kubelet.wait_gone(POD_GRACE)?;
    }
    for task in tasks(machine)? {
        // One that ends by itself in this moment is fine.
        let _ = shell::run(ctr(machine).args(["--namespace=k8s.io", "tasks", "kill", "--signal=SIGTERM", &task]));
    }
    // What does not end in time ends with the power, as on any machine.
    let _ = until("the containers to end", POD_GRACE, || match tasks(machine)?.as_slice() {
        [] => Ok(Attempt::Done(())),
        left => Ok(Attempt::Pending(format!("{} are left", left.len()))),
    });
    machine.kill()
}

/// Running containers, the pods' own holders left out: those hold the network that the others still need.
fn tasks(machine: &Machine) -> Result<Vec<String>> {
    let mut list = ctr(machine);
    list.args(["--namespace=k8s.io", "containers", "list", "--quiet", "labels.\"io.cri-containerd.kind\"==sandbox"]);
    let sandboxes = shell::output(&mut list)?;
    let tasks = shell::output(ctr(machine).args(["--namespace=k8s.io", "tasks", "list"]))?;
    let running =
        tasks.lines().filter(|line| line.contains("RUNNING")).filter_map(|line| line.split_whitespace().next());
    Ok(running.filter(|id| !sandboxes.lines().any(|sandbox| sandbox == *id)).map(str::to_owned).collect())
}

fn cni(bench: &Bench, node: NodeNumber) -> serde_json::Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "bench",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                // Gone with the machine's power, like the addresses themselves.
                "dataDir": "/run/cni-addresses",
                "ranges": [[{"subnet": bench.layout.pods_of(node).to_string()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn containerd(bench: &Bench, node: NodeNumber) -> String {
    let folder = bench.machine_folder(&node.to_string());
    let (cni, registries) = (folder.join("cni"), folder.join("registries"));
    // Without the right to lower a process's out-of-memory score, no pod would start.
    let restrict = !super::preflight::has_capability(super::preflight::SYS_RESOURCE);
    format!(
        r#"version = 3
[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "localhost/pause:1"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "{}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = {restrict}
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{}"
"#,
        registries.display(),
        cni.display()
    )
}

fn kubelet(bench: &Bench, node: NodeNumber) -> Result<serde_json::Value> {
    let pki = bench.folder.join("pki");
    Ok(json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "x509": {"clientCAFile": pki.join("ca.crt")},
            "webhook": {"enabled": true},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki.join(format!("{node}.crt")),
        "tlsPrivateKeyFile": pki.join(format!("{node}.key")),
        // Not below /usr, which is the host's.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [bench.layout.dns_service().to_string()],
        "resolvConf": bench.machine_folder(&node.to_string()).join("resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", bench.layout.node_cgroup(node)?),
        "failCgroupV1": false,
        "failSwapOn": false,
        "serializeImagePulls": false,
        // Or kubelet pulls what was loaded by hand, if it once pulled the same image under another name.
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        // All nodes share this machine's disk: a full one is the user's to notice, not a reason to evict pods.
        "evictionHard": {"nodefs.available": "1Mi", "imagefs.available": "1Mi", "memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }))
}
