//! The control plane: etcd, API server, controller manager, scheduler, a kube-proxy, and volumes, on a machine of its
//! own that is also the switch that all others are plugged into.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::layout::{Layout, NodeNumber};
use super::machine::Machine;
use super::pki::Pki;
use super::{Bench, VOLUMES};
use crate::shell;
use crate::wait::{Attempt, until};

pub const NAME: &str = "control";
const SWITCH: &str = "switch";
const SWITCH_ADDRESS: &str = "02:00:00:00:00:02";
const API_START: Duration = Duration::from_mins(1);
/// Kubernetes gives a silent node 40 s by default; tests of lost nodes need not wait that long.
const NODE_GRACE: &str = "20s";

/// Boots the machine, with the switch in it and this host plugged in.
pub fn boot(bench: &Bench) -> Result<Machine> {
    let layout = &bench.layout;
    let control = bench.boot(NAME)?;
    // Without an address of its own the bridge takes the lowest one among its ports: unplugging that port would make the
    // control plane unreachable until everybody has asked for it again.
    control.run(["ip", "link", "add", SWITCH, "address", SWITCH_ADDRESS, "type", "bridge"])?;
    control.address(SWITCH, layout.control(), layout.machines().prefix)?;
    // Any route will do: kube-proxy's rules turn the address into a pod's, but a packet without a route never gets there.
    control.run(["ip", "route", "replace", &layout.services().to_string(), "dev", SWITCH])?;
    plug_in_host(layout, &control)?;
    for node in NodeNumber::all() {
        control.route(&layout.pods_of(node).to_string(), layout.node(node))?;
    }
    Ok(control)
}

/// This host is one more machine on the switch: pods and services can be dialled from it, through its one new link.
fn plug_in_host(layout: &Layout, control: &Machine) -> Result<()> {
    let (link, pid) = (layout.host_link(), control.init.pid.to_string());
    let ip = |args: &[&str]| shell::run(Command::new("ip").args(args));
    ip(&["link", "add", &link, "type", "veth", "peer", "name", "host", "netns", &pid])?;
    plug(control, "host")?;
    let address = format!("{}/{}", layout.host(), layout.machines().prefix);
    ip(&["addr", "add", &address, "dev", &link])?;
    ip(&["link", "set", &link, "up"])?;
    for node in NodeNumber::all() {
        ip(&["route", "replace", &layout.pods_of(node).to_string(), "via", &layout.node(node).to_string()])?;
    }
    // The control machine's kube-proxy turns a service's address into a pod's.
    ip(&["route", "replace", &layout.services().to_string(), "via", &layout.control().to_string()])
}

/// Puts a link of the control machine onto the switch.
pub fn plug(control: &Machine, link: &str) -> Result<()> {
    control.run(["ip", "link", "set", link, "master", SWITCH, "up"])
}

pub fn start(bench: &Bench, control: &Machine, pki: &Pki) -> Result<()> {
    let layout = &bench.layout;
    pki.issue_control_plane(layout)?;
    for (file, user) in [("kubeconfig", "admin"), ("controller-manager.kubeconfig", "controller-manager")] {
        pki.kubeconfig(&bench.folder.join(file), user, &layout.api_url())?;
    }
    for user in ["scheduler", "proxy"] {
        pki.kubeconfig(&bench.folder.join(format!("{user}.kubeconfig")), user, &layout.api_url())?;
    }
    bench.start(NAME, control, "etcd", &etcd())?;
    bench.start(NAME, control, "kube-apiserver", &api_server(bench, pki))?;
    wait_for_api(bench)?;
    bench.start(NAME, control, "kube-controller-manager", &controller_manager(bench, pki))?;
    bench.start(NAME, control, "kube-scheduler", &scheduler(bench))?;
    bench.start(NAME, control, VOLUMES, &volumes(bench))
}

/// Lets the API server reach webhooks behind a service, and this host reach any service.
///
/// It needs a node's name to know which endpoints are near; the first node's will do, since nothing is local here.
pub fn start_proxy(bench: &Bench, control: &Machine) -> Result<()> {
    let Some(node) = NodeNumber::all().next() else {
        return Ok(());
    };
    bench.start(NAME, control, "kube-proxy", &super::node::proxy_flags(bench, node))
}

fn etcd() -> Vec<String> {
    let client = "http://127.0.0.1:2379";
    vec![
        "--data-dir=/run/etcd".into(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
        "--log-level=warn".into(),
        // In memory, because nothing here outlives the machine.
        "--unsafe-no-fsync".into(),
    ]
}

fn api_server(bench: &Bench, pki: &Pki) -> Vec<String> {
    let layout = &bench.layout;
    let file = |name: &str| pki.path(name).display().to_string();
    vec![
        "--etcd-servers=http://127.0.0.1:2379".into(),
        "--secure-port=6443".into(),
        format!("--advertise-address={}", layout.control()),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--service-account-key-file={}", file("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", file("service-accounts.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-cluster-ip-range={}", layout.services()),
        "--authorization-mode=Node,RBAC".into(),
        "--allow-privileged".into(),
        format!("--kubelet-client-certificate={}", file("admin.crt")),
        format!("--kubelet-client-key={}", file("admin.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--requestheader-client-ca-file={}", file("ca.crt")),
        "--requestheader-allowed-names=front-proxy".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--proxy-client-cert-file={}", file("front-proxy.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy.key")),
    ]
}

fn controller_manager(bench: &Bench, pki: &Pki) -> Vec<String> {
    let file = |name: &str| pki.path(name).display().to_string();
    vec![
        format!("--kubeconfig={}", bench.folder.join("controller-manager.kubeconfig").display()),
        format!("--service-account-private-key-file={}", file("service-accounts.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        "--use-service-account-credentials".into(),
        // Not below /usr, which is the host's.
        "--flex-volume-plugin-dir=/var/lib/volume-plugins".into(),
        "--leader-elect=false".into(),
        format!("--node-monitor-grace-period={NODE_GRACE}"),
    ]
}

fn scheduler(bench: &Bench) -> Vec<String> {
    vec![format!("--kubeconfig={}", bench.folder.join("scheduler.kubeconfig").display()), "--leader-elect=false".into()]
}

fn volumes(bench: &Bench) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", bench.kubeconfig().display()),
        format!("--root={}", bench.folder.join("volumes").display()),
    ]
}

fn wait_for_api(bench: &Bench) -> Result<()> {
    let log = bench.log(NAME, "kube-apiserver");
    until("the API server", API_START, || {
        bench.check_alive(NAME, "kube-apiserver")?;
        match shell::run(bench.kubectl().args(["get", "--raw=/readyz"])) {
            Ok(()) => Ok(Attempt::Done(())),
            Err(error) => Ok(Attempt::Pending(format!("{error}; its log is {}", log.display()))),
        }
    })
}
