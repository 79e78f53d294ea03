//! Container images as files, in the format of `docker save`: containerd imports it, registries take it.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::hex;
use super::layer::Tree;

/// How a container of the image starts.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub entrypoint: &'static [&'static str],
    /// Numeric, so that Kubernetes can see that it is not root.
    pub user: u32,
    pub folder: &'static str,
}

/// Writes the image and gives its digest: equal inputs, equal digest.
pub fn write(target: &Path, reference: &str, layers: &[&Tree], run: &Run) -> Result<String> {
    let layers = layers
        .iter()
        .map(|tree| {
            let mut tar = Vec::new();
            tree.write(&mut tar)?;
            Ok((hex(&Sha256::digest(&tar)), tar))
        })
        .collect::<Result<Vec<_>>>()?;
    let diff_ids: Vec<_> = layers.iter().map(|(digest, _)| format!("sha256:{digest}")).collect();
    let history: Vec<_> = layers.iter().map(|_| json!({"created": "1970-01-01T00:00:00Z"})).collect();
    let config = serde_json::to_vec(&json!({
        "architecture": architecture(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": run.entrypoint,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"],
            "User": format!("{0}:{0}", run.user),
            "WorkingDir": run.folder,
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": history,
    }))?;
    let digest = hex(&Sha256::digest(&config));
    let names: Vec<_> = layers.iter().map(|(digest, _)| format!("{digest}/layer.tar")).collect();
    let manifest = json!([{"Config": format!("{digest}.json"), "RepoTags": [reference], "Layers": names}]);

    let mut archive = tar::Builder::new(std::io::BufWriter::new(std::fs::File::create(target)?));
    append(&mut archive, &format!("{digest}.json"), &config)?;
    for ((_, tar), name) in layers.iter().zip(&names) {
        append(&mut archive, name, tar)?;
    }
    append(&mut archive, "manifest.json", &serde_json::to_vec(&manifest)?)?;
    archive.into_inner()?.flush()?;
    Ok(format!("sha256:{digest}"))
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(u64::try_from(content.len())?);
    archive.append_data(&mut header, name, content)?;
    Ok(())
}

/// This machine's architecture in the words of container images (and of Debian).
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
}
