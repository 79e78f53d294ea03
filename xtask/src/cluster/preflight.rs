//! Everything that can be known to stand in the way before anything is changed.
//!
//! The facts are gathered in one place and judged in another, so that each sentence is tested without having to break a
//! machine for it. Ports are no fact here: the cluster's programs listen in namespaces of their own, where none is busy.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cgroup::Hierarchies;
use super::layout::{Layout, Range};
use crate::progress::Step;
use crate::tools::Toolbox;
use crate::{paths, shell};

/// Bits of the capability sets in `/proc/self/status`.
#[derive(Debug, Clone, Copy)]
pub struct Capability {
    name: &'static str,
    bit: u32,
}

pub const SYS_RESOURCE: Capability = Capability { name: "CAP_SYS_RESOURCE", bit: 24 };
const NEEDED_CAPABILITIES: &[Capability] = &[
    Capability { name: "CAP_SYS_ADMIN", bit: 21 },
    Capability { name: "CAP_NET_ADMIN", bit: 12 },
    Capability { name: "CAP_NET_RAW", bit: 13 },
    Capability { name: "CAP_SYS_CHROOT", bit: 18 },
    Capability { name: "CAP_SYS_PTRACE", bit: 19 },
    Capability { name: "CAP_MKNOD", bit: 27 },
];

/// kube-proxy's nftables mode needs this much.
const OLDEST_KERNEL: (u32, u32) = (5, 13);
const GIB: u64 = 1 << 30;
const DISK_TO_BUILD: u64 = 12 * GIB;
const DISK_TO_RUN: u64 = 3 * GIB;
const MEMORY: u64 = 3 * GIB;
/// Kubelets and containerds watch files; a cluster at rest has 28 inotify instances, one more pod may add one.
const WATCHERS: u64 = 40;

/// Programs (and a file) that must be on the machine, and the Debian package that brings each.
const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setsid", "util-linux"),
    ("mount", "mount"),
    ("hostname", "hostname"),
    ("sysctl", "procps"),
    ("nft", "nftables"),
    ("runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    // What the packages that images are made of are signed with; Ubuntu does not have it by itself.
    ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
];

#[derive(Debug, Clone)]
struct Facts {
    user: u32,
    capabilities: u64,
    kernel: (u32, u32),
    /// Controllers that are missing, or why there are no control groups.
    control_groups: Result<Vec<&'static str>, String>,
    cache: PathBuf,
    free_disk: u64,
    tools_built: bool,
    memory: u64,
    /// How many more inotify instances this user may have.
    watchers: u64,
    /// Routes of this machine with the link that they lead to, our own links left out.
    routes: Vec<(Range, String)>,
    missing_packages: Vec<&'static str>,
    has_apt: bool,
}

/// Fails with a sentence for each thing that stands in the way.
pub fn check(layout: &Layout) -> Result<()> {
    let problems = judge(&gather(layout)?, layout);
    if !problems.is_empty() {
        bail!("{}", problems.join("\n       "));
    }
    Ok(())
}

/// Installs the Debian packages that are missing.
pub fn install() -> Result<()> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    let mut step = Step::start("install Debian packages");
    let log = paths::logs()?.join("apt-install.log");
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    shell::logged(&mut apt(&["update"]), &log, |line| step.say(line))?;
    let mut install = apt(&["install", "--yes", "--no-install-recommends"]);
    shell::logged(install.args(&missing), &log, |line| step.say(line))?;
    step.done(missing.join(" "));
    Ok(())
}

fn judge(facts: &Facts, layout: &Layout) -> Vec<String> {
    if facts.user != 0 {
        // Without root nothing else can be judged well.
        return vec![
            "a local Kubernetes needs root rights (it makes namespaces, links and mounts); run the same command with sudo".into(),
        ];
    }
    let mut problems = Vec::new();
    let lacking: Vec<_> = NEEDED_CAPABILITIES
        .iter()
        .filter(|capability| facts.capabilities >> capability.bit & 1 == 0)
        .map(|capability| capability.name)
        .collect();
    if !lacking.is_empty() {
        problems
            .push(format!("this root lacks {}; inside a container, start it with --privileged", lacking.join(", ")));
    }
    if facts.kernel < OLDEST_KERNEL {
        problems.push(format!(
            "Linux {}.{} is too old for kube-proxy's nftables mode; use {}.{} or later",
            facts.kernel.0, facts.kernel.1, OLDEST_KERNEL.0, OLDEST_KERNEL.1
        ));
    }
    match &facts.control_groups {
        Err(reason) => problems.push(reason.clone()),
        Ok(missing) if !missing.is_empty() => problems.push(format!(
            "the control group controllers {} are not available; enable them on the kernel's command line",
            missing.join(", ")
        )),
        Ok(_) => {}
    }
    let needed = if facts.tools_built { DISK_TO_RUN } else { DISK_TO_BUILD };
    if facts.free_disk < needed {
        problems.push(format!(
            "{} has {:.1} GiB free, but {} GiB are needed; free some, or set VALKEY_OPERATOR_CACHE to a folder on a larger disk",
            facts.cache.display(),
            gib(facts.free_disk),
            needed / GIB
        ));
    }
    if facts.memory < MEMORY {
        problems.push(format!(
            "{:.1} GiB of memory are available, but the cluster needs {} GiB; end something first",
            gib(facts.memory),
            MEMORY / GIB
        ));
    }
    if facts.watchers < WATCHERS {
        problems.push(format!(
            "{} inotify instances are left, but a cluster needs {WATCHERS}; end another cluster, or run `sysctl -w fs.inotify.max_user_instances=1024`",
            facts.watchers
        ));
    }
    if let Some(hidden) = ["/var/lib", "/var/log", "/run"].iter().find(|folder| facts.cache.starts_with(folder)) {
        problems.push(format!(
            "{} lies below {hidden}, which each node has for itself; set VALKEY_OPERATOR_CACHE to a folder elsewhere",
            facts.cache.display()
        ));
    }
    for range in [layout.machines(), layout.pods(), layout.services()] {
        // A default route covers everything and is in nobody's way.
        if let Some((taken, link)) = facts.routes.iter().find(|(route, _)| route.prefix > 0 && route.overlaps(range)) {
            problems.push(format!(
                "the addresses {range} that the cluster would use are taken: {taken} leads to {link}; end what uses them, or choose others with --name"
            ));
        }
    }
    if !facts.missing_packages.is_empty() && !facts.has_apt {
        problems.push(format!(
            "programs are missing and there is no apt-get to install them with; install what Debian has in {}",
            facts.missing_packages.join(", ")
        ));
    }
    problems
}

fn gib(bytes: u64) -> f64 {
    let tenths = u32::try_from(bytes / (GIB / 10)).unwrap_or(u32::MAX);
    f64::from(tenths) / 10.0
}

fn gather(layout: &Layout) -> Result<Facts> {
    let cache = paths::cache()?;
    let existing = cache.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let disk = rustix::fs::statvfs(existing).with_context(|| format!("cannot look at {}", existing.display()))?;
    let own_link = layout.host_link();
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    Ok(Facts {
        user: rustix::process::geteuid().as_raw(),
        capabilities: capabilities(),
        kernel: parse_kernel(&rustix::system::uname().release().to_string_lossy()),
        control_groups: Hierarchies::detect().map(|found| found.missing()).map_err(|error| error.to_string()),
        cache,
        free_disk: disk.f_bavail.saturating_mul(disk.f_frsize),
        tools_built: Toolbox::is_built(),
        memory: parse_memory(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        watchers: watchers_left(),
        routes: parse_routes(&routes).into_iter().filter(|(_, link)| *link != own_link).collect(),
        missing_packages: missing_packages(),
        has_apt: shell::find("apt-get").is_some(),
    })
}

fn watchers_left() -> u64 {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap_or_default();
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path().join("fd"));
    let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let used = links.filter(|link| link.as_os_str() == "anon_inode:inotify").count();
    // A kernel that does not say has no limit that we know of.
    limit.trim().parse::<u64>().map_or(u64::MAX, |limit| limit.saturating_sub(u64::try_from(used).unwrap_or(u64::MAX)))
}

fn missing_packages() -> Vec<&'static str> {
    let mut missing: Vec<_> = PROGRAMS
        .iter()
        .filter(|(program, _)| !Path::new(program).is_file() && shell::find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    missing
}

pub fn has_capability(capability: Capability) -> bool {
    capabilities() >> capability.bit & 1 == 1
}

fn capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// `6.18.44-fc` → (6, 18).
fn parse_kernel(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn parse_memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// `/proc/net/route`: link, then destination and mask as hexadecimal numbers in network byte order.
fn parse_routes(table: &str) -> Vec<(Range, String)> {
    let address = |hex: &str| u32::from_str_radix(hex, 16).ok().map(u32::swap_bytes);
    let parse = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (link, base, mask) = (fields.first()?, address(fields.get(1)?)?, address(fields.get(7)?)?);
        let prefix = u8::try_from(mask.leading_ones()).ok()?;
        Some((Range { base: base.into(), prefix }, (*link).to_owned()))
    };
    table.lines().skip(1).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::super::layout::Slot;
    use super::*;

    fn layout() -> Layout {
        Layout::new("dev", Slot::all().next().unwrap())
    }

    fn fine() -> Facts {
        Facts {
            user: 0,
            capabilities: u64::MAX,
            kernel: (6, 1),
            control_groups: Ok(Vec::new()),
            cache: "/srv/cache".into(),
            free_disk: 100 * GIB,
            tools_built: false,
            memory: 8 * GIB,
            watchers: 128,
            routes: vec![(Range { base: [0, 0, 0, 0].into(), prefix: 0 }, "eth0".into())],
            missing_packages: vec!["runc"],
            has_apt: true,
        }
    }

    /// The one sentence that `facts` get.
    fn sentence(facts: &Facts) -> String {
        let problems = judge(facts, &layout());
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.concat()
    }

    #[test]
    fn a_machine_with_everything_passes() {
        assert!(judge(&fine(), &layout()).is_empty());
    }

    #[test]
    fn without_root_the_advice_is_sudo() {
        assert!(sentence(&Facts { user: 1000, ..fine() }).contains("sudo"));
    }

    #[test]
    fn a_missing_capability_is_named_but_sys_resource_can_be_done_without() {
        let without = |bit: u32| Facts { capabilities: !(1 << bit), ..fine() };
        assert!(sentence(&without(21)).contains("CAP_SYS_ADMIN"));
        assert!(judge(&without(SYS_RESOURCE.bit), &layout()).is_empty());
    }

    #[test]
    fn an_old_kernel_is_told_which_one_to_use() {
        let said = sentence(&Facts { kernel: (5, 4), ..fine() });
        assert!(said.contains("5.4") && said.contains("5.13"), "{said}");
    }

    #[test]
    fn control_groups_that_lack_a_controller_are_named() {
        assert!(sentence(&Facts { control_groups: Ok(vec!["memory"]), ..fine() }).contains("memory"));
        assert!(sentence(&Facts { control_groups: Err("no cgroups".into()), ..fine() }).contains("no cgroups"));
    }

    #[test]
    fn a_full_disk_counts_more_while_there_is_something_to_build() {
        let said = sentence(&Facts { free_disk: 5 * GIB, ..fine() });
        assert!(said.contains("5.0 GiB free") && said.contains("12 GiB"), "{said}");
        assert!(judge(&Facts { free_disk: 5 * GIB, tools_built: true, ..fine() }, &layout()).is_empty());
    }

    #[test]
    fn too_little_memory_is_said_in_numbers() {
        assert!(sentence(&Facts { memory: GIB, ..fine() }).contains("1.0 GiB"));
    }

    #[test]
    fn a_machine_full_of_watchers_is_told_how_to_allow_more() {
        assert!(sentence(&Facts { watchers: 12, ..fine() }).contains("sysctl -w fs.inotify.max_user_instances"));
    }

    #[test]
    fn a_cache_where_nodes_cannot_see_it_is_refused() {
        assert!(sentence(&Facts { cache: "/var/lib/ci/.cache".into(), ..fine() }).contains("/var/lib"));
    }

    #[test]
    fn addresses_in_use_are_named_with_their_link() {
        let vpn = (Range { base: [10, 201, 0, 0].into(), prefix: 16 }, "tun0".to_owned());
        let said = sentence(&Facts { routes: vec![vpn], ..fine() });
        assert!(said.contains("tun0") && said.contains("10.201.0.0/16"), "{said}");
    }

    #[test]
    fn missing_programs_matter_only_where_they_cannot_be_installed() {
        assert!(sentence(&Facts { has_apt: false, ..fine() }).contains("runc"));
    }

    #[test]
    fn a_route_table_is_read_in_network_byte_order() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                     eth0\t00000000\t0100000A\t3\t0\t0\t0\t00000000\n\
                     tun0\t0000C90A\t00000000\t1\t0\t0\t0\t0000FFFF\n";
        let found = parse_routes(table);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], (Range { base: [10, 201, 0, 0].into(), prefix: 16 }, "tun0".into()));
    }
}
