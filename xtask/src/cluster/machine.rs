//! A machine of the cluster: a set of namespaces, held by one small process that is the first in them.
//!
//! The network, the mounts and the processes of a machine exist in its namespaces only. Ending the first process ends
//! the machine: the kernel kills all others at once and takes network and mounts away with them, just as pulling the
//! plug does. So there is nothing to clean up by name, and nothing that a crash of our own can leave behind.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::process::Process;
use crate::shell;
use crate::tools::Toolbox;

const START: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct Machine {
    /// First process of the namespaces, seen from outside.
    pub init: Process,
    /// `PATH` on the machine.
    path: String,
}

impl Machine {
    /// Starts an empty machine.
    pub fn boot(name: &str, tools: &Toolbox, folder: &Path) -> Result<Self> {
        let mut command = Command::new("setsid");
        command
            .args(["unshare", "--net", "--mount", "--pid", "--ipc", "--uts"])
            .args(["--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
            .arg(&tools.pause);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let outer = command.spawn().with_context(|| format!("cannot start the machine {name}"))?;
        let init = Process::of(outer.id()).and_then(|outer| outer.child(START));
        let init = init.with_context(|| format!("the machine {name} did not start; are namespaces allowed here?"))?;
        let machine = Self { init, path: tools.path() };
        machine.furnish(name, folder)?;
        Ok(machine)
    }

    /// A machine that runs already.
    pub fn existing(init: Process, tools: &Toolbox) -> Self {
        Self { init, path: tools.path() }
    }

    /// Gives the machine its own `/run` (gone with it), and its own `/var/lib` and `/var/log` (kept for its next start).
    fn furnish(&self, name: &str, folder: &Path) -> Result<()> {
        self.run(["mount", "--make-rshared", "/"])?;
        self.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
        for shared in ["lib", "log"] {
            let own = folder.join(shared);
            std::fs::create_dir_all(&own)?;
            self.run([OsStr::new("mount"), "--bind".as_ref(), own.as_ref(), Path::new("/var").join(shared).as_ref()])?;
        }
        self.run(["hostname", name])?;
        self.run(["ip", "link", "set", "lo", "up"])?;
        // Packets for pods and services pass through.
        self.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"])
    }

    /// A command that will run on the machine.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        self.enter(&mut command);
        command.arg(program);
        command
    }

    fn enter(&self, command: &mut Command) {
        command
            .arg(format!("--target={}", self.init.pid))
            .args(["--net", "--mount", "--pid", "--ipc", "--uts", "--"])
            .env_clear()
            .envs([("PATH", self.path.as_str()), ("HOME", "/root")]);
    }

    pub fn run<S: AsRef<OsStr>, const N: usize>(&self, words: [S; N]) -> Result<()> {
        let mut command = Command::new("nsenter");
        self.enter(&mut command);
        shell::run(command.args(words))
    }

    /// Starts a program that goes on after us, in a session of its own, its output in `log`.
    pub fn daemon(&self, log: &Path, program: &Path, args: &[String]) -> Result<Process> {
        if let Some(folder) = log.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let out = std::fs::File::options().create(true).append(true).open(log)?;
        let mut command = Command::new("setsid");
        command.arg("nsenter");
        self.enter(&mut command);
        command.arg(program).args(args).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let wrapper = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Process::of(wrapper.id())
            .and_then(|wrapper| wrapper.child(START))
            .with_context(|| format!("{} did not start; its log is {}", program.display(), log.display()))
    }

    /// Pulls the plug.
    pub fn kill(&self) -> Result<()> {
        self.init.signal(Signal::KILL)?;
        self.init.wait_gone(END)
    }

    /// Lays a cable: `name` on this machine, `peer_name` on the other one.
    pub fn connect(&self, name: &str, peer: &Self, peer_name: &str) -> Result<()> {
        let (here, there) = (self.init.pid.to_string(), peer.init.pid.to_string());
        shell::run(
            Command::new("ip").args([
                "link", "add", name, "netns", &here, "type", "veth", "peer", "name", peer_name, "netns", &there,
            ]),
        )
    }

    pub fn address(&self, link: &str, address: Ipv4Addr, prefix: u8) -> Result<()> {
        self.run(["ip", "addr", "add", &format!("{address}/{prefix}"), "dev", link])?;
        self.run(["ip", "link", "set", link, "up"])
    }

    pub fn route(&self, range: &str, via: Ipv4Addr) -> Result<()> {
        self.run(["ip", "route", "replace", range, "via", &via.to_string()])
    }
}
