//! What a cluster could leave behind on a machine, as sets that can be compared.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What the kernel shows, leaving out what belongs to other clusters on this machine: they live on meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub struct Traces {
    links: BTreeSet<String>,
    routes: BTreeSet<String>,
    mounts: BTreeSet<String>,
    rules: BTreeSet<String>,
    control_groups: BTreeSet<String>,
    processes: BTreeSet<String>,
    folders: BTreeSet<String>,
}

/// Where programs of a Kubernetes make folders of their own if nobody tells them where else.
const SHARED_FOLDERS: &[&str] = &["/etc", "/opt", "/usr/libexec", "/var/lib", "/var/log", "/run"];

impl Traces {
    pub fn of_this_machine(cluster: &str) -> Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Self {
            links: names_in("/sys/class/net"),
            routes: lines_of("ip", &["route", "show", "table", "all"]),
            mounts: mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect(),
            rules: lines_of("nft", &["list", "ruleset"]),
            control_groups: control_groups(cluster),
            processes: processes(cluster),
            folders: SHARED_FOLDERS.iter().flat_map(|folder| paths_in(folder)).collect(),
        })
    }

    pub fn expect_no_more_than(&self, before: &Self) -> Result<()> {
        let Self { links, routes, mounts, rules, control_groups, processes, folders } = self;
        none("links", links, &before.links)?;
        none("routes", routes, &before.routes)?;
        none("mounts", mounts, &before.mounts)?;
        none("firewall rules", rules, &before.rules)?;
        none("control groups", control_groups, &before.control_groups)?;
        none("processes", processes, &before.processes)?;
        none("files", folders, &before.folders)
    }

    /// A running cluster shows in links, control groups and processes; its mounts and rules are its machines' own.
    pub fn expect_more_than(&self, before: &Self) -> Result<()> {
        for (what, now, then) in [
            ("links", &self.links, &before.links),
            ("routes", &self.routes, &before.routes),
            ("control groups", &self.control_groups, &before.control_groups),
            ("processes", &self.processes, &before.processes),
        ] {
            ensure!(now.difference(then).next().is_some(), "a running cluster shows no new {what}");
        }
        Ok(())
    }
}

fn none(what: &str, now: &BTreeSet<String>, then: &BTreeSet<String>) -> Result<()> {
    let left: Vec<_> = now.difference(then).collect();
    ensure!(left.is_empty(), "{what} left behind: {left:?}");
    Ok(())
}

fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn paths_in(folder: &'static str) -> impl Iterator<Item = String> {
    names_in(folder).into_iter().map(move |name| format!("{folder}/{name}"))
}

fn lines_of(program: &str, args: &[&str]) -> BTreeSet<String> {
    let out = Command::new(program).args(args).output();
    let text = out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Groups of this cluster and of nobody in particular.
fn control_groups(cluster: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk(Path::new("/sys/fs/cgroup"), &mut |folder| {
        let path = folder.to_string_lossy().into_owned();
        let others = path.contains("/valkey-bench-") && !path.contains(&format!("/valkey-bench-{cluster}"));
        if !others {
            found.insert(path);
        }
    });
    found
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            visit(&entry.path());
            walk(&entry.path(), visit);
        }
    }
}

/// Programs that name the cluster's folder in their command line, and the first processes of its machines.
fn processes(cluster: &str) -> BTreeSet<String> {
    let folder = format!("/clusters/{cluster}/");
    let machines: Vec<u32> = inits(cluster).unwrap_or_default();
    let mut found = BTreeSet::new();
    for pid in names_in("/proc").iter().filter_map(|name| name.parse::<u32>().ok()) {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&folder) || machines.contains(&pid) {
            found.insert(format!("{pid} {line}"));
        }
    }
    found
}

fn clusters() -> Result<PathBuf> {
    let cache = std::env::var_os("VALKEY_OPERATOR_CACHE").map(PathBuf::from);
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".cache/valkey-operator"));
    Ok(cache.or_else(home).context("HOME is not set")?.join("clusters"))
}

fn state(cluster: &str) -> Result<serde_json::Value> {
    let state = std::fs::read(clusters()?.join(cluster).join("state.json"))?;
    Ok(serde_json::from_slice(&state)?)
}

/// How many machines and programs the cluster's record names.
pub fn started(cluster: &str) -> usize {
    let Ok(state) = state(cluster) else { return 0 };
    let count = |what: &str| state.get(what).and_then(serde_json::Value::as_object).map_or(0, serde_json::Map::len);
    count("machines") + count("daemons")
}

fn inits(cluster: &str) -> Result<Vec<u32>> {
    let state = state(cluster)?;
    let machines = state.get("machines").and_then(serde_json::Value::as_object).context("no machines")?;
    let pids = machines.values().filter_map(|machine| machine.get("pid")?.as_u64());
    Ok(pids.filter_map(|pid| u32::try_from(pid).ok()).collect())
}

/// The network namespaces of a running cluster's machines.
pub fn namespaces(cluster: &str) -> Result<BTreeSet<String>> {
    inits(cluster)?.iter().map(|pid| namespace(*pid).with_context(|| format!("machine {pid} is gone"))).collect()
}

fn namespace(pid: u32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// No process is in any of the namespaces. (Without a process only a mount could hold one, and mounts are compared.)
pub fn expect_gone(namespaces: &BTreeSet<String>) -> Result<()> {
    let held = names_in("/proc").iter().filter_map(|pid| namespace(pid.parse().ok()?)).collect::<BTreeSet<_>>();
    let left: Vec<_> = namespaces.intersection(&held).collect();
    ensure!(left.is_empty(), "processes are left in the namespaces {left:?}");
    Ok(())
}
