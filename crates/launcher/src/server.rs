use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::exit::Exit;

/// The running valkey-server.
#[derive(Debug)]
pub struct Server {
    pid: Pid,
}

impl Server {
    /// The server gets our environment and output, but not our signal mask, or it would never hear its SIGTERM.
    ///
    /// Not by the standard library's `Command`: that one lets the mask be inherited. To unblock here for a moment is no way
    /// either: a SIGTERM in that moment would be lost, or be the end of us.
    pub fn start(program: &OsStr, parameters: &[OsString]) -> io::Result<Self> {
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
        attributes.set_sigmask(&SigSet::empty())?;
        attributes.set_sigdefault(&SigSet::all())?; // Rust ignores SIGPIPE, which would be inherited too
        let program = CString::new(program.as_bytes())?;
        let mut command = vec![program.clone()];
        for parameter in parameters {
            command.push(CString::new(parameter.as_bytes())?);
        }
        let pid = posix_spawnp(&program, &PosixSpawnFileActions::init()?, &attributes, &command, &environment()?)?;
        Ok(Self { pid })
    }

    pub fn terminate(&self) -> io::Result<()> {
        Ok(kill(self.pid, Signal::SIGTERM)?)
    }

    /// Takes away every child that has ended, and says so if the server is among them.
    ///
    /// Others become our children when their parent ends: as the first process of a container we must take them away, or
    /// they fill up the process table.
    pub fn reap(&self) -> Option<Exit> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.pid => return Some(Exit::with_code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => return Some(Exit::by_signal(signal)),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
                Ok(_) | Err(Errno::EINTR) => {} // an orphan: how it ended is nobody's concern
                // A child was taken away that ended by a signal without a name. Was it the server?
                Err(_) if self.is_gone() => return Some(Exit::UNKNOWN),
                Err(_) => {}
            }
        }
    }

    fn is_gone(&self) -> bool {
        kill(self.pid, None) == Err(Errno::ESRCH)
    }
}

fn environment() -> io::Result<Vec<CString>> {
    let assignment = |(name, value): (OsString, OsString)| {
        let parts = [name.as_bytes(), b"=", value.as_bytes()];
        Ok(CString::new(parts.concat())?)
    };
    env::vars_os().map(assignment).collect()
}
