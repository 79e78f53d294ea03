//! Valkey, from the Debian release that carries each series.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::archive::{self, Run};
use super::debian::{Package, Suite};
use super::layer::{Owner, ROOT, Tree};
use super::{Image, RECIPE, folder, hex};
use crate::progress::Step;
use crate::tools::appear;

/// A series of Valkey and where its packages come from. The exact version is read from the package: a release moves
/// on, and an image that is named after what is really in it cannot lie.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    pub name: &'static str,
    suite: Suite,
}

/// Newest first: the first one is the default of everything that does not ask for another.
pub const SERIES: &[Series] = &[
    Series { name: "9.1", suite: Suite { name: "sid", additions: &[] } },
    Series { name: "8.1", suite: Suite { name: "trixie", additions: &[] } },
    Series { name: "8.0", suite: Suite { name: "bookworm", additions: &["bookworm-backports"] } },
];

/// Server, Sentinel and client with TLS; busybox for the people who look inside.
const PACKAGES: &[&str] = &["valkey-server", "valkey-sentinel", "valkey-tools", "busybox-static"];
const APPLETS: &[&str] = &[
    "awk",
    "cat",
    "chmod",
    "chown",
    "cp",
    "cut",
    "date",
    "dd",
    "df",
    "du",
    "echo",
    "env",
    "find",
    "free",
    "grep",
    "head",
    "hostname",
    "id",
    "ip",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "nc",
    "netstat",
    "nslookup",
    "od",
    "ping",
    "printf",
    "ps",
    "pwd",
    "rm",
    "sed",
    "seq",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "sync",
    "tail",
    "tar",
    "tee",
    "test",
    "timeout",
    "top",
    "touch",
    "tr",
    "true",
    "uname",
    "uniq",
    "vi",
    "wc",
    "wget",
    "which",
    "xargs",
];
const USER: u32 = 999;

/// The image of one series, made now if it is not in the cache.
pub fn valkey(series: &Series) -> Result<Image> {
    let folder = series.folder()?;
    let (archive, name) = (folder.join("image.tar"), folder.join("reference"));
    if !name.exists() {
        let mut step = Step::start(format!("image valkey {}", series.name));
        let packages = series.suite.fetch(PACKAGES, &mut step)?;
        let server = packages.iter().find(|package| package.name == "valkey-tools").context("no valkey-tools came")?;
        let reference = format!("docker.io/valkey/valkey:{}", server.upstream_version());
        step.say("packing");
        let digest = pack(&packages, &reference, &archive)?;
        std::fs::write(folder.join("packages"), serde_json::to_vec_pretty(&packages)?)?;
        std::fs::write(folder.join("digest"), &digest)?;
        appear(&name, |partial| Ok(std::fs::write(partial, &reference)?))?;
        step.done(format!("{reference} {}", digest.chars().take(19).collect::<String>()));
    }
    Ok(Image { reference: std::fs::read_to_string(name)?, archive })
}

/// Packs the image once more, from the packages it was made of, and compares the digests.
pub fn verify(series: &Series) -> Result<()> {
    let image = valkey(series)?;
    let folder = series.folder()?;
    let reversed: Vec<_> = packages(series)?.into_iter().rev().collect();
    let again = folder.join("again.tar");
    let digest = pack(&reversed, &image.reference, &again)?;
    std::fs::remove_file(again)?;
    let expected = std::fs::read_to_string(folder.join("digest"))?;
    if digest != expected {
        bail!("{} was packed twice from the same packages: first {expected}, then {digest}", image.reference);
    }
    Ok(())
}

/// What the image of a series is made of.
pub(super) fn packages(series: &Series) -> Result<Vec<Package>> {
    valkey(series)?;
    Ok(serde_json::from_slice(&std::fs::read(series.folder()?.join("packages"))?)?)
}

impl Series {
    fn folder(&self) -> Result<PathBuf> {
        let inputs = format!("{RECIPE} {self:?} {PACKAGES:?} {APPLETS:?}");
        let key: String = hex(&Sha256::digest(inputs)).chars().take(12).collect();
        Ok(folder()?.join(format!("valkey-{}-{key}", self.name)))
    }
}

fn pack(packages: &[Package], reference: &str, target: &Path) -> Result<String> {
    let tree = root(packages)?;
    let mut digest = String::new();
    appear(target, |partial| {
        digest = archive::write(partial, reference, &[&tree], &run())?;
        Ok(())
    })?;
    Ok(digest)
}

pub(super) fn run() -> Run {
    Run { entrypoint: &["/usr/bin/valkey-server"], user: USER, folder: "/data" }
}

pub(super) fn root(packages: &[Package]) -> Result<Tree> {
    let mut tree = Tree::default();
    let mut packages: Vec<_> = packages.iter().collect();
    packages.sort_by_key(|package| &package.name);
    for package in packages {
        let is_ours = PACKAGES.contains(&package.name.as_str());
        package.unpack(&mut tree, |path| is_library(path) || is_ours && path.starts_with("usr/bin"))?;
    }
    tree.merge_usr();
    for applet in APPLETS.iter().filter(|applet| !tree.contains(&format!("usr/bin/{applet}"))).collect::<Vec<_>>() {
        tree.link(format!("usr/bin/{applet}"), "busybox");
    }
    tree.directory("data", 0o755, Owner(USER.into()));
    tree.directory("tmp", 0o1777, ROOT);
    tree.file("etc/passwd", 0o644, format!("root:x:0:0::/:/bin/sh\nvalkey:x:{USER}:{USER}::/data:/bin/sh\n").into());
    tree.file("etc/group", 0o644, format!("root:x:0:\nvalkey:x:{USER}:\n").into());
    Ok(tree)
}

/// A shared library in one of the folders that the loader looks into. The packages also depend on what their install
/// scripts need (adduser, perl, systemd's tools); no script runs here, so of those nothing is taken but libraries.
pub(super) fn is_library(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_looked_into = folder == Path::new("usr/lib64")
        || folder.parent() == Some(Path::new("usr/lib")) && folder.to_string_lossy().ends_with("-linux-gnu");
    is_looked_into && path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"))
}
