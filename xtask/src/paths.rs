//! Where things lie: the checkout, the cache outside of it, and the clusters' state.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the checkout this program was built from.
pub fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Everything that is worth keeping between checkouts: built tools, images, cargo's target folder, clusters.
///
/// `VALKEY_OPERATOR_CACHE` moves it, for instance to try a cold start without losing the warm one.
pub fn cache() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("VALKEY_OPERATOR_CACHE") {
        return std::path::absolute(&dir)
            .with_context(|| format!("VALKEY_OPERATOR_CACHE is no path: {}", dir.display()));
    }
    let home = std::env::var_os("HOME").context("HOME is not set; set it, or VALKEY_OPERATOR_CACHE")?;
    Ok(Path::new(&home).join(".cache/valkey-operator"))
}

/// Log files of build steps.
pub fn logs() -> Result<PathBuf> {
    Ok(cache()?.join("logs"))
}
