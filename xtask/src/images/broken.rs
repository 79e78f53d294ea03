//! Valkey, broken on purpose: what an upgrade has to find its way back from.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::archive;
use super::valkey::{SERIES, packages, root, run};
use super::{Image, RECIPE, folder, hex};
use crate::tools::appear;

/// What is wrong with it.
#[derive(Debug, Clone, Copy)]
pub struct Flaw {
    pub name: &'static str,
    /// No release has it, and it looks like one that an upgrade may lead to.
    version: &'static str,
    /// Stands in front of the server.
    script: &'static str,
}

const SERVER: &str = "usr/bin/valkey-server";
const WHOLE: &str = "usr/bin/valkey-server-whole";

pub const FLAWS: &[Flaw] = &[
    Flaw {
        name: "valkey-crashing",
        version: "9.1.91",
        script: "#!/bin/sh\n\
                 [ \"$1\" = --version ] && exec /usr/bin/valkey-server-whole --version\n\
                 echo 'this image crashes on purpose' >&2\n\
                 exit 1\n",
    },
    Flaw {
        name: "valkey-lonely",
        version: "9.1.92",
        // Its primary does not know this user, so it never gets a copy of the data.
        script: "#!/bin/sh\nexec /usr/bin/valkey-server-whole \"$@\" --primaryuser nobody\n",
    },
];

pub fn broken(flaw: &Flaw) -> Result<Image> {
    let series = SERIES.first().context("no series of Valkey is known")?;
    let packages = packages(series)?;
    let inputs = format!("{RECIPE} {flaw:?} {packages:?}");
    let key: String = hex(&Sha256::digest(inputs)).chars().take(12).collect();
    let archive = folder()?.join(format!("{}-{key}.tar", flaw.name));
    let reference = format!("docker.io/valkey/valkey:{}", flaw.version);
    if !archive.exists() {
        let mut tree = root(&packages)?;
        tree.rename(SERVER, WHOLE).with_context(|| format!("the packages have no {SERVER}"))?;
        tree.file(SERVER, 0o755, flaw.script.into());
        appear(&archive, |partial| archive::write(partial, &reference, &[&tree], &run()).map(drop))?;
    }
    Ok(Image { reference, archive })
}
