//! Calling cargo from within what cargo runs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{paths, shell};

/// `cargo`, in the workspace, as whoever called us set it up.
pub fn command() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(paths::workspace());
    cargo
}

/// Where cargo puts what it builds, as cargo itself says.
pub fn target_folder() -> Result<PathBuf> {
    let metadata = shell::output(command().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let folder = metadata.get("target_directory").and_then(serde_json::Value::as_str);
    Ok(folder.context("cargo metadata names no target directory")?.into())
}
