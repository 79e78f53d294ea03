//! A real Kubernetes on this machine: three nodes in three zones, each a machine of its own as far as the kernel can
//! make one. See `docs/local-cluster.md` for how it is put together.

mod addons;
mod cgroup;
mod control_plane;
mod layout;
mod lifecycle;
mod machine;
mod node;
mod pki;
mod preflight;
mod process;
mod state;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};

use self::cgroup::Hierarchies;
use self::layout::Layout;
use self::machine::Machine;
use self::process::Process;
use self::state::State;
use crate::tools::Toolbox;

pub use self::addons::{Addon, install as addon};
pub use self::lifecycle::{as_client, down, down_all, environment, is_running, kubeconfig, load, node, status, up};

pub const DEFAULT_NAME: &str = "dev";
const VOLUMES: &str = "bench-volumes";
/// Who gets the CPU when there is not enough for all, in parts of which the pods of each node have 1024. Elsewhere clients, nodes and
/// control plane are machines of their own, and nothing that Kubernetes does keeps a server or its client from running. With equal
/// parts on two cores, servers got nothing for half a second at a time, and clients for up to four.
const SHARES_OF_PROGRAMS: u32 = 128;
const SHARES_OF_CLIENTS: u32 = 32_768;

/// What can be done to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NodeAction {
    /// A clean shutdown: containers are told to end and given time
    Stop,
    /// Switches a stopped or crashed node on again
    Start,
    /// The plug is pulled: every process of the node is gone at once
    Crash,
    /// The network cable is pulled: everything goes on, nothing is heard
    Partition,
    /// The cable is plugged in again
    Heal,
}

/// A cluster that is being worked on: where its things are, and the record of what was started.
#[derive(Debug)]
struct Bench {
    layout: Layout,
    folder: PathBuf,
    tools: Toolbox,
    groups: Hierarchies,
    state: Mutex<State>,
}

impl Bench {
    fn new(layout: Layout, tools: Toolbox, state: State) -> Result<Self> {
        let (folder, groups) = (layout.folder()?, Hierarchies::detect()?);
        Ok(Self { layout, folder, tools, groups, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the record and writes it down before anything else happens.
    fn record(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.state();
        change(&mut state);
        state.save(&self.layout)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    fn kubectl(&self) -> Command {
        let mut command = Command::new(self.tools.kubectl());
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    fn machine_folder(&self, machine: &str) -> PathBuf {
        self.folder.join("machines").join(machine)
    }

    fn log(&self, machine: &str, program: &str) -> PathBuf {
        self.folder.join("log").join(format!("{machine}-{program}.log"))
    }

    /// Puts all that is started from now on into the cluster's own group: it is found there even if we end before its
    /// number is written down.
    fn enter_group(&self) -> Result<cgroup::Stay> {
        let group = self.layout.programs_cgroup()?;
        self.groups.create(&group)?;
        self.groups.weigh(&group, SHARES_OF_PROGRAMS)?;
        self.groups.enter(&group)
    }

    /// The group of those who use the cluster and are not part of it.
    fn enter_as_client(&self) -> Result<cgroup::Stay> {
        let group = self.layout.clients_cgroup()?;
        self.groups.create(&group)?;
        self.groups.weigh(&group, SHARES_OF_CLIENTS)?;
        self.groups.enter(&group)
    }

    fn boot(&self, name: &str) -> Result<Machine> {
        let machine = Machine::boot(name, &self.tools, &self.machine_folder(name))?;
        self.record(|state| {
            state.machines.insert(name.to_owned(), machine.init);
        })?;
        Ok(machine)
    }

    fn start(&self, machine_name: &str, machine: &Machine, program: &str, args: &[String]) -> Result<()> {
        let process = machine.daemon(&self.log(machine_name, program), &self.program(program)?, args)?;
        self.record(|state| {
            state.daemons.insert(format!("{machine_name}/{program}"), process);
        })
    }

    fn program(&self, name: &str) -> Result<PathBuf> {
        let folders = [self.folder.join("bin"), self.tools.kubernetes.clone(), self.tools.containerd.clone()];
        let found = folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        found.with_context(|| format!("the program {name} is not built; run `cargo xtask cluster up`"))
    }

    /// A running machine, or a sentence that says that it does not run.
    fn machine(&self, name: &str) -> Result<Machine> {
        let init = self.state().machines.get(name).copied().filter(Process::is_alive);
        let init =
            init.with_context(|| format!("{name} is off; switch it on with `cargo xtask cluster node {name} start`"))?;
        Ok(Machine::existing(init, &self.tools))
    }

    fn process(&self, machine: &str, program: &str) -> Option<Process> {
        self.state().daemons.get(&format!("{machine}/{program}")).copied()
    }

    fn check_all_alive(&self) -> Result<()> {
        let names: Vec<_> = self.state().daemons.keys().cloned().collect();
        names
            .iter()
            .filter_map(|name| name.split_once('/'))
            .try_for_each(|(machine, program)| self.check_alive(machine, program))
    }

    /// Fails with the last words of a program that should run and does not.
    fn check_alive(&self, machine: &str, program: &str) -> Result<()> {
        if self.process(machine, program).is_some_and(|process| process.is_alive()) {
            return Ok(());
        }
        let log = self.log(machine, program);
        bail!(
            "{program} of {machine} ended; its last lines:\n{}\nthe whole log is {}",
            last_lines(&log),
            log.display()
        );
    }
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(10)..).unwrap_or_default();
    last.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}
