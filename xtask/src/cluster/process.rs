//! A process that cannot be mistaken for another one: number and start time.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::wait::{Attempt, until};

/// Numbers of processes are reused; the time since boot at which one started is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    started: u64,
}

/// What `/proc/PID/stat` says, as far as we need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: u32,
    started: u64,
}

impl Process {
    pub fn of(pid: u32) -> Result<Self> {
        let stat = stat(pid).with_context(|| format!("process {pid} is gone"))?;
        Ok(Self { pid, started: stat.started })
    }

    /// Whether this very process runs. One that has ended and only waits to be noticed does not.
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !matches!(stat.state, 'Z' | 'X'))
    }

    /// Sends a signal to this very process; one that is gone already is fine.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        if !self.is_alive() {
            return Ok(());
        }
        match rustix::process::kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot signal process {}", self.pid)),
        }
    }

    /// Waits until the process is gone.
    pub fn wait_gone(&self, limit: Duration) -> Result<()> {
        until(&format!("process {} to end", self.pid), limit, || {
            Ok(if self.is_alive() { Attempt::Pending(name(self.pid)) } else { Attempt::Done(()) })
        })
    }

    /// The process's only child; a wrapper such as `nsenter` has exactly one. Waits until it is there.
    pub fn child(&self, limit: Duration) -> Result<Self> {
        until(&format!("process {} to start its program", self.pid), limit, || {
            let child = all().find(|pid| stat(*pid).is_some_and(|stat| stat.parent == self.pid));
            match child.and_then(|pid| Self::of(pid).ok()) {
                Some(child) => Ok(Attempt::Done(child)),
                None if self.is_alive() => Ok(Attempt::Pending(name(self.pid))),
                None => bail!("process {} ended before it started its program", self.pid),
            }
        })
    }
}

/// The numbers of all processes that this one can see.
fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim().to_owned()).unwrap_or_default()
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The program's name stands in brackets and may itself contain brackets and blanks: count from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, started })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_brackets_does_not_shift_the_fields() {
        let text = "42 (a) S 1) S 7 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 998877 1 2 3";
        assert_eq!(parse_stat(text), Some(Stat { state: 'S', parent: 7, started: 998_877 }));
    }

    #[test]
    fn another_process_with_the_same_number_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let real = Process::of(child.id()).unwrap();
        let impostor = Process { started: real.started - 1, ..real };
        assert!(real.is_alive() && !impostor.is_alive());
        impostor.signal(Signal::KILL).unwrap();
        assert!(real.is_alive());
        real.signal(Signal::KILL).unwrap();
        real.wait_gone(Duration::from_secs(5)).unwrap();
        child.wait().unwrap();
    }
}
