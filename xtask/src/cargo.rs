//! Calling cargo from within what cargo runs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{paths, shell};

/// `cargo`, in the workspace, as whoever called us set it up.
pub fn command() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(paths::workspace());
    // What cargo tells the program it runs about its package would look to build scripts like a changed input.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"]
            .iter()
            .any(|p| text.starts_with(p))
        {
            cargo.env_remove(&name);
        }
    }
    cargo.env_remove("LD_LIBRARY_PATH");
    cargo
}

/// Where cargo puts what it builds, as cargo itself says.
pub fn target_folder() -> Result<PathBuf> {
    let metadata = shell::output(command().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let folder = metadata.get("target_directory").and_then(serde_json::Value::as_str);
    Ok(folder.context("cargo metadata names no target directory")?.into())
}
