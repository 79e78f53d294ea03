use std::fmt;

use nix::sys::signal::Signal;

/// How the server ended. Its text is what the sidecar is told: `0`, or `signal 9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(u8),
    Signal(u8),
}

impl Exit {
    pub const CLEAN: Self = Self::Code(0);
    /// What a shell says when there is no such program.
    pub const NOT_FOUND: Self = Self::Code(127);
    /// What a shell says when a program is there and cannot be run.
    pub const NOT_RUNNABLE: Self = Self::Code(126);
    pub const UNKNOWN: Self = Self::Code(u8::MAX);

    pub fn with_code(code: i32) -> Self {
        u8::try_from(code).map_or(Self::UNKNOWN, Self::Code)
    }

    pub fn by_signal(signal: Signal) -> Self {
        let number = (1..=64_u8).find(|number| Signal::try_from(i32::from(*number)) == Ok(signal));
        number.map_or(Self::UNKNOWN, Self::Signal)
    }

    /// As the launcher's own exit code, so that Kubernetes sees what happened to the server.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
