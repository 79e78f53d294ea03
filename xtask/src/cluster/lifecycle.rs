//! `cluster up`, `down` and the rest, in the order in which things happen.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cgroup::{Hierarchies, Stay};
use super::layout::{Layout, NodeNumber, check_name};
use super::machine::Machine;
use super::pki::Pki;
use super::process::Process;
use super::state::{self, Lock, State};
use super::{Bench, NodeAction, VOLUMES, control_plane, node as nodes, preflight};
use crate::images::{self, Image};
use crate::progress::Step;
use crate::tools::{self, Toolbox};
use crate::wait::{Attempt, until};
use crate::{cargo, paths, shell};

const MANIFEST: &str = include_str!("../../manifests/base.yaml");
const NODES_READY: Duration = Duration::from_secs(90);
const LINK_GONE: Duration = Duration::from_secs(10);

/// Boots the cluster, unless it runs already. Whatever an earlier attempt left behind is cleared away first.
pub fn up(name: &str) -> Result<()> {
    check_name(name)?;
    let likely = Layout::new(name, state::slot_for(name)?);
    preflight::check(&likely)?;
    let _lock = Lock::take(name, "up")?;
    if is_running(name)? {
        eprintln!("the cluster {name:?} is running already");
        return switch_all_on(&running(name)?);
    }
    preflight::install()?;
    let tools = Toolbox::ensure()?;
    let volumes = build_volumes()?;
    let images = base_images(&tools)?;
    tear_down(&likely)?;
    let layout = state::reserve(name)?;
    if layout.slot != likely.slot {
        preflight::check(&layout)?;
    }
    boot(layout, tools, &volumes, &images).with_context(|| {
        format!("the cluster {name:?} did not come up; `cargo xtask cluster up` tries again, `… down` clears it away")
    })
}

fn boot(layout: Layout, tools: Toolbox, volumes: &Path, images: &[Image]) -> Result<()> {
    let mut step = Step::start(format!("boot cluster {}", layout.name));
    let mut state = State::new(layout.slot);
    state.tools = vec![tools.kubernetes.clone(), tools.containerd.clone()];
    let bench = Bench::new(layout, tools, state)?;
    std::fs::create_dir_all(bench.folder.join("bin"))?;
    bench.record(|_| {})?;
    let _stay = bench.enter_group()?;
    // A copy, because the next build would replace the file below the running program.
    std::fs::copy(volumes, bench.folder.join("bin").join(VOLUMES))?;

    step.say("machines");
    let pki = Pki::create(&bench.folder.join("pki"))?;
    let control = control_plane::boot(&bench)?;
    let machines: Vec<(NodeNumber, Machine)> = NodeNumber::all()
        .map(|node| {
            pki.issue_node(&bench.layout, node)?;
            pki.kubeconfig(
                &bench.folder.join(format!("{node}.kubeconfig")),
                &node.to_string(),
                &bench.layout.api_url(),
            )?;
            Ok((node, nodes::boot(&bench, &control, node)?))
        })
        .collect::<Result<_>>()?;

    step.say("control plane, and images on the nodes");
    std::thread::scope(|scope| {
        let loading: Vec<_> = machines
            .iter()
            .map(|(node, machine)| {
                let bench = &bench;
                scope.spawn(move || {
                    nodes::start_containerd(bench, machine, *node)?;
                    images.iter().try_for_each(|image| nodes::load(machine, *node, image))
                })
            })
            .collect();
        control_plane::start(&bench, &control, &pki)?;
        apply(&bench, &manifest(&bench))?;
        loading.into_iter().try_for_each(joined)
    })?;

    step.say("nodes");
    for (node, machine) in &machines {
        nodes::start_kubelet(&bench, machine, *node)?;
    }
    for node in NodeNumber::all() {
        wait(&bench, &["--for=create", &format!("node/{node}")])?;
    }
    control_plane::start_proxy(&bench, &control)?;
    wait(&bench, &["--for=condition=Ready", "node", "--all"])?;
    step.say("names");
    wait(&bench, &["--for=condition=Available", "--namespace=kube-system", "deployment/coredns"])?;
    bench.record(|state| state.complete = true)?;
    step.done(format!("kubeconfig: {}", bench.kubeconfig().display()));
    Ok(())
}

fn joined(thread: std::thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| bail!("a thread that set up a node panicked"))
}

/// Waits as `kubectl wait` does, but not for what cannot come because a program has ended.
fn wait(bench: &Bench, what: &[&str]) -> Result<()> {
    let logs = bench.folder.join("log");
    until("the cluster", NODES_READY, || match shell::run(bench.kubectl().args(["wait", "--timeout=5s"]).args(what)) {
        Ok(()) => Ok(Attempt::Done(())),
        Err(error) => {
            bench.check_all_alive()?;
            Ok(Attempt::Pending(format!("{error}; the logs of all programs are in {}", logs.display())))
        }
    })
}

fn apply(bench: &Bench, manifest: &str) -> Result<()> {
    shell::feed(bench.kubectl().args(["apply", "--server-side", "--filename=-"]), manifest.as_bytes()).map(drop)
}

fn manifest(bench: &Bench) -> String {
    MANIFEST.replace("@DNS@", &bench.layout.dns_service().to_string())
}

/// What every cluster carries: what pods are made with, names, and the newest Valkey.
fn base_images(tools: &Toolbox) -> Result<Vec<Image>> {
    let coredns = images::go_program("localhost/coredns:bench", &tools.kubernetes.join("coredns"), &["/coredns"])?;
    let valkey = images::SERIES.iter().map(images::valkey).collect::<Result<Vec<_>>>()?;
    Ok([images::pause()?, coredns].into_iter().chain(valkey).collect())
}

fn build_volumes() -> Result<PathBuf> {
    let mut step = Step::start(format!("build {VOLUMES}"));
    let log = paths::logs()?.join(format!("cargo-{VOLUMES}.log"));
    shell::logged(cargo::command().args(["build", "--package", VOLUMES]), &log, |line| step.say(line.trim()))?;
    step.done("");
    Ok(cargo::target_folder()?.join("debug").join(VOLUMES))
}

/// Ends the cluster and removes every trace of it.
pub fn down(name: &str) -> Result<()> {
    check_name(name)?;
    let layout = Layout::new(name, state::slot_for(name)?);
    let _lock = Lock::take(name, "down")?;
    let step = Step::start(format!("end cluster {name}"));
    tear_down(&layout)?;
    step.done("");
    Ok(())
}

/// Ends every cluster on this machine.
pub fn down_all() -> Result<()> {
    state::names()?.iter().try_for_each(|name| down(name))
}

/// Ends what the record names and what is in the cluster's control group, and nothing else. Safe to repeat.
fn tear_down(layout: &Layout) -> Result<()> {
    let groups = Hierarchies::detect()?;
    let recorded = State::load(&layout.name).ok().flatten().map(|state| state.machines).unwrap_or_default();
    let mut members = groups.members(&layout.programs_cgroup()?);
    members.extend(groups.members(&layout.clients_cgroup()?));
    members.retain(|pid| *pid != std::process::id());
    let processes: Vec<Process> =
        recorded.into_values().chain(members.into_iter().filter_map(|pid| Process::of(pid).ok())).collect();
    for process in &processes {
        process.signal(rustix::process::Signal::KILL)?;
    }
    for process in &processes {
        process.wait_gone(Duration::from_secs(30))?;
    }
    // The far end went with the control machine, but the kernel takes its time; `up` wants the name at once.
    let link = layout.host_link();
    let _ = shell::run(Command::new("ip").args(["link", "delete", &link]));
    until("the host's link to go", LINK_GONE, || {
        let is_there = Path::new("/sys/class/net").join(&link).exists();
        Ok(if is_there { Attempt::Pending(format!("look at `ip link show {link}`")) } else { Attempt::Done(()) })
    })?;
    groups.remove(&layout.cgroup()?)?;
    let folder = layout.folder()?;
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Whether `up` came to its end and the control plane that it started is still whole. Nodes may be off.
pub fn is_running(name: &str) -> Result<bool> {
    let Some(state) = State::load(name)? else {
        return Ok(false);
    };
    let of_control = |daemon: &str| daemon.split('/').next() == Some(control_plane::NAME);
    let mut daemons = state.daemons.iter().filter(|(daemon, _)| of_control(daemon)).map(|(_, process)| process);
    let machine = state.machines.get(control_plane::NAME);
    Ok(state.complete && machine.is_some_and(Process::is_alive) && daemons.all(Process::is_alive))
}

/// Brings back the nodes that somebody broke and left so.
fn switch_all_on(bench: &Bench) -> Result<()> {
    let control = bench.machine(control_plane::NAME)?;
    for node in NodeNumber::all() {
        start(bench, &control, bench.machine(&node.to_string()).ok().as_ref(), node)?;
        control.run(["ip", "link", "set", &node.port(), "up"])?;
    }
    wait(bench, &["--for=condition=Ready", "node", "--all"])
}

/// A cluster that runs, to do something with it.
pub(super) fn running(name: &str) -> Result<Bench> {
    if !is_running(name)? {
        bail!("the cluster {name:?} is not running; start it with `cargo xtask cluster up`");
    }
    let state = State::load(name)?.context("the cluster went away")?;
    let [kubernetes, containerd] = state.tools.as_slice() else { bail!("the cluster's record names no tools") };
    let tools = Toolbox { kubernetes: kubernetes.clone(), containerd: containerd.clone(), pause: tools::pause()? };
    Bench::new(Layout::new(name, state.slot), tools, state)
}

/// Prints what runs. `false` if the cluster does not run as it should.
pub fn status(name: &str) -> Result<bool> {
    let Some(state) = State::load(name)? else {
        println!("the cluster {name:?} does not exist; start it with `cargo xtask cluster up`");
        return Ok(false);
    };
    let (mut text, healthy) = describe(&state);
    if is_running(name)? {
        let bench = running(name)?;
        text += &shell::output(bench.kubectl().args(["get", "nodes", "-o", "wide"]))?;
    }
    // A reader that has seen enough (`| head`) is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(healthy)
}

fn describe(state: &State) -> (String, bool) {
    let mut healthy = state.complete;
    let mut lines = Vec::new();
    if !state.complete {
        lines.push("`up` did not come to its end; run it again".to_owned());
    }
    for (machine, init) in &state.machines {
        let alive = init.is_alive();
        let dead: Vec<_> = state
            .daemons
            .iter()
            .filter(|(daemon, process)| daemon.starts_with(&format!("{machine}/")) && !process.is_alive())
            .filter_map(|(daemon, _)| daemon.split('/').nth(1))
            .collect();
        healthy &= alive && dead.is_empty();
        lines.push(match (alive, dead.as_slice()) {
            (true, []) => format!("{machine:<10} on"),
            (true, dead) => format!("{machine:<10} on, but these ended: {}", dead.join(", ")),
            (false, _) => format!("{machine:<10} off"),
        });
    }
    (lines.join("\n") + "\n\n", healthy)
}

pub fn kubeconfig(name: &str) -> Result<PathBuf> {
    Ok(running(name)?.kubeconfig())
}

/// What a shell or a test needs to talk to the cluster.
pub fn environment(name: &str) -> Result<Vec<(&'static str, String)>> {
    let bench = running(name)?;
    let valkey: Vec<_> =
        images::SERIES.iter().map(|series| Ok(images::valkey(series)?.reference)).collect::<Result<_>>()?;
    Ok(vec![
        ("KUBECONFIG", bench.kubeconfig().display().to_string()),
        ("PATH", bench.tools.path()),
        ("VALKEY_IMAGES", valkey.join(",")),
        ("XTASK", std::env::current_exe()?.display().to_string()),
    ])
}

/// What is started until the result is dropped gets the CPU before the cluster does, as if it ran on a machine of its own. Otherwise a
/// test that measures pauses would measure its own.
pub fn as_client(name: &str) -> Result<Stay> {
    running(name)?.enter_as_client()
}

/// Puts an image into the store of every node that is on.
pub fn load(name: &str, image: &Image) -> Result<()> {
    let bench = running(name)?;
    std::thread::scope(|scope| {
        let loading: Vec<_> = NodeNumber::all()
            .filter_map(|node| Some((node, bench.machine(&node.to_string()).ok()?)))
            .map(|(node, machine)| scope.spawn(move || nodes::load(&machine, node, image)))
            .collect();
        loading.into_iter().try_for_each(joined)
    })
}

/// Does something to a node. What is so already is fine.
pub fn node(name: &str, node: &str, action: NodeAction) -> Result<()> {
    let node = NodeNumber::parse(node)?;
    let bench = running(name)?;
    let _lock = Lock::take(name, "node")?;
    let control = bench.machine(control_plane::NAME)?;
    let machine = bench.machine(&node.to_string());
    match (action, machine) {
        (NodeAction::Stop, Ok(machine)) => nodes::stop(&bench, &machine, node),
        (NodeAction::Crash, Ok(machine)) => machine.kill(),
        (NodeAction::Stop | NodeAction::Crash, Err(_)) => Ok(()),
        (NodeAction::Start, machine) => start(&bench, &control, machine.ok().as_ref(), node),
        (NodeAction::Partition, Ok(_)) => control.run(["ip", "link", "set", &node.port(), "down"]),
        (NodeAction::Heal, Ok(_)) => control.run(["ip", "link", "set", &node.port(), "up"]),
        (NodeAction::Partition | NodeAction::Heal, Err(off)) => Err(off),
    }
}

/// A node that is on and whole stays as it is; one that has lost a program is switched off first.
fn start(bench: &Bench, control: &Machine, running: Option<&Machine>, node: NodeNumber) -> Result<()> {
    if let Some(machine) = running {
        let programs = ["containerd", "kubelet", "kube-proxy"];
        if programs.iter().all(|program| bench.check_alive(&node.to_string(), program).is_ok()) {
            return Ok(());
        }
        machine.kill()?;
    }
    let _stay = bench.enter_group()?;
    let machine = nodes::boot(bench, control, node)?;
    nodes::start_containerd(bench, &machine, node)?;
    nodes::start_kubelet(bench, &machine, node)
}
