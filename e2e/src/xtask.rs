//! The bench's own program.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::time::timeout;

/// Has the bench do something, `cluster load valkey-8.1` for example.
pub async fn xtask(words: &[&str], limit: Duration) -> Result<()> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let xtask = std::env::var_os("XTASK");
    let mut command = Command::new(xtask.as_deref().unwrap_or("cargo".as_ref()));
    if xtask.is_none() {
        command.arg("xtask");
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("e2e lies in no workspace")?;
    command.current_dir(workspace).args(words);
    // Into a file: a pipe would be held open by what the command leaves running.
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("e2e-{}-{call}", std::process::id()));
    let output = File::create(&file)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
    let what = format!("`xtask {}`", words.join(" "));
    let status = timeout(limit, command.status()).await;
    let said = std::fs::read_to_string(&file).unwrap_or_default();
    std::fs::remove_file(&file)?;
    let status = status.with_context(|| format!("{what} ran for {limit:?}: {said}"))?;
    let status = status.with_context(|| format!("cannot run {what}; is XTASK set to the xtask program?"))?;
    ensure!(status.success(), "{what} failed ({status}): {said}");
    Ok(())
}
