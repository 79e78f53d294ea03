//! The code of the contract between operator and sidecar, from `proto/`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const CONTRACT: &str = "valkey/sidecar/v1/sidecar.proto";
const MODULE: &str = "valkey.sidecar.v1.rs";

/// Every file made from protobuf, and its content.
pub fn files() -> Result<Vec<(PathBuf, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let descriptors = protox::compile([CONTRACT], [root.join("proto")]).context("the contract does not compile")?;
    let folder = tempfile::tempdir().context("no folder for the generated code")?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .out_dir(folder.path())
        .compile_fds(descriptors)
        .context("no code could be made from the contract")?;
    let code = std::fs::read_to_string(folder.path().join(MODULE)).context("the generated code is missing")?;
    Ok(vec![(Path::new("crates/rpc/src/generated").join(MODULE), code)])
}
