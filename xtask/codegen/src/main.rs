//! Makes the committed files that come from types.
//!
//! A program of its own, so that `cargo xtask` does not have to build Kubernetes' types before it can do anything.

mod api_reference;
mod crds;
mod proto;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

/// A file by its path in the repository, and what belongs into it.
type Generated = (PathBuf, String);

/// Everything that makes files. Whoever adds a source of files adds it here.
const GENERATORS: &[fn() -> Result<Vec<Generated>>] = &[crds::files, api_reference::files, proto::files];

/// Makes the committed files that come from types.
#[derive(Debug, Parser)]
struct Cli {
    /// The folder below which the files are written, each by its path in the repository.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    for generate in GENERATORS {
        for (path, content) in generate()? {
            let path = cli.out.join(path);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            }
            std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}
