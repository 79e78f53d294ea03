//! Container images without Docker, the same bytes from the same inputs.

mod archive;
mod broken;
mod debian;
mod layer;
mod programs;
mod valkey;

use std::path::PathBuf;

use anyhow::Result;

pub use broken::{FLAWS, broken};
pub use programs::{Component, binary, compile_all, component, go_program, pause};
pub use valkey::{SERIES, valkey, verify};

use crate::paths;

/// Changes whenever the way images are put together changes, so that cached ones are not taken for new ones.
const RECIPE: &str = "4";

/// An image as a file that containerd can import.
#[derive(Debug, Clone)]
pub struct Image {
    /// With registry, name and tag: `docker.io/valkey/valkey:9.1.2`.
    pub reference: String,
    pub archive: PathBuf,
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn folder() -> Result<PathBuf> {
    Ok(paths::cache()?.join("images"))
}
