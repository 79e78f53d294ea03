//! What is known of a cluster between two commands: a small file, written after every process that is started.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::layout::{Layout, Slot};
use super::process::Process;
use crate::paths;
use crate::tools::appear;

/// Which processes belong to the cluster. Never consulted to find out whether something works, only what to end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    pub slot: Slot,
    /// `up` came to its end.
    pub complete: bool,
    /// Where the programs of the running cluster lie; the checkout may have moved on since.
    pub tools: Vec<PathBuf>,
    /// The parent of each machine's processes: `control`, `node-1`, …
    pub machines: BTreeMap<String, Process>,
    /// The programs that `up` started on the machines: `node-1/kubelet`, …
    pub daemons: BTreeMap<String, Process>,
}

impl State {
    pub fn new(slot: Slot) -> Self {
        Self { slot, complete: false, tools: Vec::new(), machines: BTreeMap::new(), daemons: BTreeMap::new() }
    }

    /// `None` if there is no such cluster.
    pub fn load(name: &str) -> Result<Option<Self>> {
        let file = file(name)?;
        match std::fs::read(&file) {
            Ok(text) => {
                let state = serde_json::from_slice(&text);
                Ok(Some(state.with_context(|| format!("{} is damaged", file.display()))?))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    pub fn save(&self, layout: &Layout) -> Result<()> {
        appear(&file(&layout.name)?, |partial| Ok(std::fs::write(partial, serde_json::to_vec_pretty(self)?)?))
    }
}

fn file(name: &str) -> Result<PathBuf> {
    Ok(clusters()?.join(name).join("state.json"))
}

fn clusters() -> Result<PathBuf> {
    Ok(paths::cache()?.join("clusters"))
}

/// Names of all clusters that left a trace.
pub fn names() -> Result<Vec<String>> {
    let Ok(entries) = std::fs::read_dir(clusters()?) else {
        return Ok(Vec::new());
    };
    let folders = entries.flatten().filter(|entry| entry.path().join("state.json").exists());
    Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// The slot of a cluster that exists, or the first free one. A slot whose link is there belongs to somebody, perhaps to
/// a cluster in another cache.
pub fn slot_for(name: &str) -> Result<Slot> {
    if let Some(state) = State::load(name)? {
        return Ok(state.slot);
    }
    let mut taken = Vec::new();
    for other in names()? {
        let state = State::load(&other)?;
        // One that ended with the machine it ran on holds nothing any more.
        let is_there = |state: &State| state.machines.values().any(Process::is_alive) || Lock::is_held(&other);
        taken.extend(state.filter(is_there).map(|state| state.slot));
    }
    let has_link = |slot: &Slot| Path::new("/sys/class/net").join(Layout::new(name, *slot).host_link()).exists();
    let free = Slot::all().find(|slot| !taken.contains(slot) && !has_link(slot));
    free.context("no address range is left for one more cluster; end one with `cargo xtask cluster --name NAME down`")
}

/// Takes a slot for a cluster that is about to be booted. Two clusters that are booted at once do not get the same one.
pub fn reserve(name: &str) -> Result<Layout> {
    let _lock = Lock::wait("slots")?;
    let layout = Layout::new(name, slot_for(name)?);
    State::new(layout.slot).save(&layout)?;
    Ok(layout)
}

/// How long a lock may outlive the process that took it.
const ORPHANED: Duration = Duration::from_secs(5);

/// Whether the process that a lock names is gone.
fn is_dead(holder: &str) -> bool {
    let process = holder.rsplit(' ').next().and_then(|id| id.parse::<u32>().ok());
    process.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists())
}

/// Held while a command changes the cluster. The lock goes with the process, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    fn open(name: &str) -> Result<(PathBuf, File)> {
        std::fs::create_dir_all(clusters()?)?;
        let path = clusters()?.join(format!("{name}.lock"));
        let file = File::options().create(true).append(true).open(&path)?;
        Ok((path, file))
    }

    /// For what takes no time worth telling anybody about.
    fn wait(name: &str) -> Result<Self> {
        let (_, file) = Self::open(name)?;
        file.lock()?;
        Ok(Self { _file: file })
    }

    fn is_held(name: &str) -> bool {
        Self::open(name).is_ok_and(|(_, file)| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    pub fn take(name: &str, what: &str) -> Result<Self> {
        let (path, mut file) = Self::open(name)?;
        let asked = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the cluster's folder"),
            }
            let holder = std::fs::read_to_string(&path).unwrap_or_default();
            // A child that was just being started when its parent was killed has the lock until it becomes another program.
            if !is_dead(&holder) || asked.elapsed() > ORPHANED {
                bail!("the cluster {name:?} is being changed by {holder}; wait until that has ended, or end it");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        file.set_len(0)?;
        write!(file, "`cluster {what}`, process {}", std::process::id())?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_the_process_that_took_it() {
        assert!(!is_dead(&format!("`cluster up`, process {}", std::process::id())));
        assert!(is_dead("`cluster up`, process 4294967294"));
        assert!(!is_dead(""), "one that has just taken it has not said so yet");
    }
}
