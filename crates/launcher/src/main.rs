//! Parent of valkey-server: asks before it starts, hands over before it stops.
//!
//! The sidecar copies this program into a volume that it shares with the Valkey container, and there it is the first
//! process, in whatever image the user has chosen. So it is linked statically and needs nothing from that image. It is also
//! the first to hear that the pod must go: a native sidecar is told only after this container is gone.

mod arguments;
mod exit;
mod lifecycle;
mod log;
mod server;
mod sidecar;
mod signals;
mod supervisor;
mod version;

use std::env;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::log::Level;
use crate::supervisor::Supervisor;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            log::line(Level::Error, &error.to_string(), &[]);
            return ExitCode::from(2);
        }
    };
    match Supervisor::new(arguments).and_then(Supervisor::run) {
        Ok(exit) => exit.code().into(),
        Err(error) => {
            log::line(Level::Error, "cannot watch over the server", &[("error", &error.to_string())]);
            ExitCode::FAILURE
        }
    }
}
