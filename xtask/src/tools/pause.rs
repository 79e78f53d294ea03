//! The smallest program of all: the parent of a pod's processes, and of a machine's.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

use super::appear;
use crate::{images, paths, shell};

const SOURCE: &str = include_str!("pause.c");

/// The path of the static `pause` program.
pub fn pause() -> Result<PathBuf> {
    let key: String = images::hex(&Sha256::digest(SOURCE)).chars().take(12).collect();
    let target = paths::cache()?.join("tools").join(format!("pause-{key}")).join("pause");
    if !target.exists() {
        let Some(cc) = ["cc", "gcc", "clang"].iter().find_map(|name| shell::find(name)) else {
            bail!("no C compiler is installed; install gcc or clang");
        };
        appear(&target, |partial| {
            let mut command = Command::new(cc);
            command.args(["-static", "-Os", "-s", "-x", "c", "-", "-o"]).arg(partial);
            shell::feed(&mut command, SOURCE.as_bytes()).map(drop)
        })?;
    }
    Ok(target)
}
