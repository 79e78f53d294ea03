//! Control groups, version 1 and 2: each node's pods live below a group of its own.
//!
//! On version 1 every controller is a hierarchy of its own, and a kubelet wants its root group in each of them. On
//! version 2 there is one hierarchy, and a controller must be passed on to children by every group on the way down.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const MOUNT: &str = "/sys/fs/cgroup";
/// What kubelet needs on either version; further ones are used where the kernel has them.
pub const NEEDED: &[&str] = &["cpu", "cpuset", "memory", "pids"];

/// The hierarchies of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchies {
    V1 {
        /// Mount points by controller, such as `/sys/fs/cgroup/cpu,cpuacct`.
        controllers: Vec<PathBuf>,
        /// A hybrid machine has a version-2 hierarchy too, without controllers; the runtime makes groups there as well.
        unified: Option<PathBuf>,
    },
    V2(PathBuf),
}

impl Hierarchies {
    pub fn detect() -> Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").context("cannot read this machine's mounts")?;
        Self::parse(&mounts).with_context(|| format!("no control groups are mounted at {MOUNT}; mount cgroup2 there"))
    }

    /// A machine with both (a "hybrid" one) keeps its controllers on version 1.
    fn parse(mounts: &str) -> Option<Self> {
        let of_kind = |kind: &'static str| {
            mounts.lines().filter_map(move |line| {
                let mut fields = line.split(' ').skip(1);
                let (path, found) = (fields.next()?, fields.next()?);
                (found == kind).then(|| PathBuf::from(path))
            })
        };
        let (controllers, unified): (Vec<_>, _) = (of_kind("cgroup").collect(), of_kind("cgroup2").next());
        if controllers.is_empty() { unified.map(Self::V2) } else { Some(Self::V1 { controllers, unified }) }
    }

    /// Controllers in [`NEEDED`] that this machine does not offer.
    pub fn missing(&self) -> Vec<&'static str> {
        let offered: Vec<String> = match self {
            Self::V1 { controllers, .. } => controllers.iter().flat_map(|mount| controllers_of(mount)).collect(),
            Self::V2(mount) => words(&mount.join("cgroup.controllers")),
        };
        NEEDED.iter().filter(|needed| !offered.iter().any(|offer| offer == *needed)).copied().collect()
    }

    /// Makes the group in every hierarchy, usable for pods.
    pub fn create(&self, group: &str) -> Result<()> {
        match self {
            Self::V1 { controllers, .. } => controllers.iter().try_for_each(|mount| create_v1(mount, group)),
            Self::V2(mount) => create_v2(mount, group),
        }
        .with_context(|| format!("cannot make the control group {group}"))
    }

    /// The one folder in which membership of a group is looked up.
    pub fn tracking(&self, group: &str) -> PathBuf {
        match self {
            Self::V2(mount) => mount.join(group),
            Self::V1 { controllers, .. } => {
                let pids = controllers.iter().find(|mount| mount.ends_with("pids")).or_else(|| controllers.first());
                pids.map_or_else(|| Path::new(MOUNT).join(group), |mount| mount.join(group))
            }
        }
    }

    /// The folder in which a group's part of the CPU is set.
    fn cpu(&self, group: &str) -> PathBuf {
        match self {
            Self::V2(mount) => mount.join(group),
            Self::V1 { controllers, .. } => {
                let cpu = controllers.iter().find(|mount| controllers_of(mount).iter().any(|name| name == "cpu"));
                cpu.map_or_else(|| Path::new(MOUNT).join(group), |mount| mount.join(group))
            }
        }
    }

    /// Moves this process into the group until the result is dropped. Whatever it starts meanwhile is in the group too,
    /// from its first instruction on, and stays there.
    pub fn enter(&self, group: &str) -> Result<Stay> {
        let own = std::fs::read_to_string("/proc/self/cgroup")?;
        let mut stay = Stay { before: Vec::new() };
        for (root, folder) in [(self.tracking(""), self.tracking(group)), (self.cpu(""), self.cpu(group))] {
            let before = own_group(&own, &controllers_of(&root)).context("this process is in no control group")?;
            stay.before.push(root.join(before.trim_start_matches('/')));
            join(&folder)?;
        }
        Ok(stay)
    }

    /// Gives a group so much of the CPU when there is not enough for all. A thread that is in no group has 1024.
    pub fn weigh(&self, group: &str, shares: u32) -> Result<()> {
        let (file, value) = match self {
            Self::V1 { .. } => ("cpu.shares", shares),
            Self::V2(_) => ("cpu.weight", (shares * 100 / 1024).clamp(1, 10_000)),
        };
        let file = self.cpu(group).join(file);
        std::fs::write(&file, value.to_string()).with_context(|| format!("cannot write {}", file.display()))
    }

    /// All processes in the group and below it.
    pub fn members(&self, group: &str) -> Vec<u32> {
        let mut found = Vec::new();
        walk(&self.tracking(group), &mut |folder| {
            found.extend(words(&folder.join("cgroup.procs")).iter().filter_map(|pid| pid.parse::<u32>().ok()));
        });
        found
    }

    /// Removes the group and all below it, from every hierarchy. Fails while a process is still in one.
    pub fn remove(&self, group: &str) -> Result<()> {
        let roots: Vec<&PathBuf> = match self {
            Self::V1 { controllers, unified } => controllers.iter().chain(unified).collect(),
            Self::V2(mount) => vec![mount],
        };
        for root in roots {
            let mut folders = Vec::new();
            walk(&root.join(group), &mut |folder| folders.push(folder.to_path_buf()));
            // A child before its parent.
            for folder in folders.iter().rev() {
                match std::fs::remove_dir(folder) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        return Err(error).with_context(|| format!("cannot remove {}", folder.display()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// See [`Hierarchies::enter`].
#[derive(Debug)]
pub struct Stay {
    before: Vec<PathBuf>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        for before in &self.before {
            if let Err(error) = join(before) {
                eprintln!("cannot go back to the control group {}: {error:#}", before.display());
            }
        }
    }
}

fn join(folder: &Path) -> Result<()> {
    let pid = std::process::id().to_string();
    std::fs::write(folder.join("cgroup.procs"), pid).with_context(|| format!("cannot enter {}", folder.display()))
}

/// The group of a process from `/proc/PID/cgroup`: `4:pids:/a/b` on version 1, `0::/a/b` on version 2.
fn own_group<'a>(text: &'a str, controllers: &[String]) -> Option<&'a str> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = lines().find(|(names, _)| names.split(',').any(|name| controllers.iter().any(|wanted| wanted == name)));
    let v2 = || lines().find(|(names, _)| names.is_empty());
    v1.or_else(v2).map(|(_, path)| path)
}

fn controllers_of(mount: &Path) -> Vec<String> {
    let name = mount.file_name().unwrap_or_default().to_string_lossy();
    name.split(',').map(str::to_owned).collect()
}

/// A new cpuset group may use nothing until it is told to: hand down what its parent may use.
fn create_v1(mount: &Path, group: &str) -> Result<()> {
    let mut folder = mount.to_path_buf();
    for part in Path::new(group) {
        let parent = folder.clone();
        folder.push(part);
        make(&folder)?;
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if folder.join(file).exists() && words(&folder.join(file)).is_empty() {
                std::fs::write(folder.join(file), std::fs::read(parent.join(file))?)?;
            }
        }
    }
    Ok(())
}

/// Every group on the way passes its controllers on. (Untried on a real version-2 machine; see docs/local-cluster.md.)
fn create_v2(mount: &Path, group: &str) -> Result<()> {
    let mut folder = mount.to_path_buf();
    for part in Path::new(group) {
        pass_on(&folder)?;
        folder.push(part);
        make(&folder)?;
    }
    Ok(())
}

/// Lets children of the group use the controllers that it has itself. One that we can do without may stay behind.
fn pass_on(folder: &Path) -> Result<()> {
    let control = folder.join("cgroup.subtree_control");
    let passed_on = words(&control);
    for controller in words(&folder.join("cgroup.controllers")).iter().filter(|name| !passed_on.contains(name)) {
        let outcome = std::fs::write(&control, format!("+{controller}"));
        if NEEDED.contains(&controller.as_str()) {
            outcome.with_context(|| {
                let place = folder.display();
                format!(
                    "{place} cannot pass on {controller}; in a container, its processes must leave this group first"
                )
            })?;
        }
    }
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    visit(folder);
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), visit);
        }
    }
}

fn words(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_machine_is_version_one() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Hierarchies::parse(mounts);
        let expected = Hierarchies::V1 {
            controllers: vec!["/sys/fs/cgroup/cpu,cpuacct".into()],
            unified: Some("/sys/fs/cgroup/unified".into()),
        };
        assert_eq!(found, Some(expected));
        assert_eq!(found.unwrap().missing(), ["cpuset", "memory", "pids"]);
    }

    #[test]
    fn a_unified_machine_is_version_two() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(Hierarchies::parse(mounts), Some(Hierarchies::V2("/sys/fs/cgroup".into())));
    }

    #[test]
    fn a_process_knows_its_group_on_either_version() {
        let hybrid = "4:pids:/user\n3:cpu,cpuacct:/other\n0::/unified\n";
        assert_eq!(own_group(hybrid, &["pids".to_owned()]), Some("/user"));
        assert_eq!(own_group(hybrid, &["cpuacct".to_owned()]), Some("/other"));
        assert_eq!(own_group("0::/init.scope\n", &["cgroup".to_owned()]), Some("/init.scope"));
    }

    /// A folder with the files of a version-2 group that matter here; the kernel is not there to act on them.
    #[test]
    fn a_version_two_group_is_asked_to_pass_on_what_it_does_not_yet() {
        let mount = std::env::temp_dir().join(format!("xtask-cgroup2-{}", std::process::id()));
        std::fs::create_dir_all(&mount).unwrap();
        std::fs::write(mount.join("cgroup.controllers"), "cpu memory").unwrap();
        std::fs::write(mount.join("cgroup.subtree_control"), "cpu").unwrap();
        create_v2(&mount, "bench/node").unwrap();
        assert_eq!(std::fs::read_to_string(mount.join("cgroup.subtree_control")).unwrap(), "+memory");
        assert!(mount.join("bench/node").is_dir());
        std::fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn a_machine_without_control_groups_is_told_so() {
        assert_eq!(Hierarchies::parse("proc /proc proc rw 0 0\n"), None);
    }
}
