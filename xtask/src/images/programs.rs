//! Images of single programs: our own, and the few that the local cluster runs in pods.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::archive::{self, Run};
use super::debian::Suite;
use super::layer::{ROOT, Tree};
use super::valkey::is_library;
use super::{Image, RECIPE, folder, hex};
use crate::progress::Step;
use crate::tools::{self, appear};
use crate::{cargo, paths, shell};

/// The release whose C library our programs run on. Newer than what they are usually built on, which is the direction
/// that works.
const BASE: Suite = Suite { name: "trixie", additions: &[] };
const BASE_PACKAGES: &[&str] = &["libc6", "libgcc-s1"];
const NOBODY: u32 = 65532;
const LAUNCHER: &str = "valkey-launcher";
const STATIC_TARGET: &str = "x86_64-unknown-linux-gnu";

/// A program of this project that ships as an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Component {
    Operator,
    Sidecar,
}

impl Component {
    pub const ALL: [Self; 2] = [Self::Operator, Self::Sidecar];

    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "valkey-operator",
            Self::Sidecar => "valkey-sidecar",
        }
    }

    fn entrypoint(self) -> &'static [&'static str] {
        match self {
            Self::Operator => &["/usr/bin/valkey-operator"],
            Self::Sidecar => &["/usr/bin/valkey-sidecar"],
        }
    }
}

/// Compiles every component, so that packing them takes no time later.
pub fn compile_all() -> Result<()> {
    let mut step = Step::start("compile images");
    Component::ALL.into_iter().try_for_each(|component| component.compile(&mut step).map(drop))?;
    step.done("");
    Ok(())
}

/// Compiles a component and packs it; the tag is the digest of what is inside, so a new build is a new tag.
pub fn component(component: Component, registry: &str) -> Result<Image> {
    let mut step = Step::start(format!("image {}", component.name()));
    let binaries = component.compile(&mut step)?;
    step.say("packing");
    let base = base(&mut step)?;
    let mut inputs = Sha256::new().chain_update(base.digest()?);
    let mut program = Tree::default();
    for binary in binaries {
        let content = std::fs::read(&binary).with_context(|| format!("cannot read {}", binary.display()))?;
        inputs.update(&content);
        let name = binary.file_name().context("a program has a name")?.to_string_lossy();
        program.file(format!("usr/bin/{name}"), 0o755, content);
    }
    let tag: String = hex(&inputs.finalize()).chars().take(12).collect();
    let reference = format!("{registry}/{}:{tag}", component.name());
    let target = folder()?.join(component.name()).join("image.tar");
    let run = Run { entrypoint: component.entrypoint(), user: NOBODY, folder: "/" };
    appear(&target, |partial| archive::write(partial, &reference, &[&base, &program], &run).map(drop))?;
    let megabytes = std::fs::metadata(&target)?.len() / 1_000_000;
    step.done(format!("{reference}, {megabytes} MB"));
    Ok(Image { reference, archive: target })
}

impl Component {
    /// Everything that goes into the image.
    fn compile(self, step: &mut Step) -> Result<Vec<PathBuf>> {
        let own = compile(self, step)?;
        Ok(match self {
            Self::Operator => vec![own],
            // The sidecar brings the launcher into the Valkey container, whatever image that is.
            Self::Sidecar => vec![own, compile_static(LAUNCHER, step)?],
        })
    }
}

/// All of ours in one go, whichever is asked for: what they share is compiled once, with the features that all of them want.
fn compile(component: Component, step: &mut Step) -> Result<PathBuf> {
    let packages = Component::ALL.iter().flat_map(|component| ["--package", component.name()]);
    build(cargo::command().args(["build", "--profile", "image"]).args(packages), component.name(), step)?;
    binary(component)
}

/// The program of a component that was packed before.
pub fn binary(component: Component) -> Result<PathBuf> {
    Ok(cargo::target_folder()?.join("image").join(component.name()))
}

/// With the C library inside, so that it runs beside any other one, or none.
fn compile_static(package: &str, step: &mut Step) -> Result<PathBuf> {
    let mut cargo = cargo::command();
    // Naming the target keeps the flag away from build scripts.
    cargo.args(["build", "--profile", "image", "--package", package, "--target", STATIC_TARGET]);
    build(cargo.env("RUSTFLAGS", "-C target-feature=+crt-static"), package, step)?;
    Ok(cargo::target_folder()?.join(STATIC_TARGET).join("image").join(package))
}

fn build(cargo: &mut Command, package: &str, step: &mut Step) -> Result<()> {
    let log = paths::logs()?.join(format!("cargo-{package}.log"));
    shell::logged(cargo, &log, |line| step.say(line.trim()))
}

/// The root file system below our programs: the C library and who may run there, nothing else.
fn base(step: &mut Step) -> Result<Tree> {
    let cached = folder()?.join(format!("base-{}-{RECIPE}.tar", BASE.name));
    if !cached.exists() {
        let mut packages = BASE.fetch(BASE_PACKAGES, step)?;
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        let mut tree = Tree::default();
        for package in packages {
            package.unpack(&mut tree, is_library)?;
        }
        tree.file("etc/passwd", 0o644, format!("root:x:0:0::/:\nnonroot:x:{NOBODY}:{NOBODY}::/:\n").into());
        tree.file("etc/group", 0o644, format!("root:x:0:\nnonroot:x:{NOBODY}:\n").into());
        appear(&cached, |partial| tree.write(std::fs::File::create(partial)?))?;
    }
    let mut tree = Tree::default();
    tree.unpack(std::fs::File::open(&cached)?, |_| true)?;
    tree.merge_usr();
    tree.directory("tmp", 0o1777, ROOT);
    Ok(tree)
}

/// The image of a static program that the cluster itself needs in a pod.
pub fn go_program(reference: &str, binary: &Path, entrypoint: &'static [&'static str]) -> Result<Image> {
    let Some(path) = entrypoint.first() else { bail!("an image needs an entrypoint") };
    let mut tree = Tree::default();
    tree.file(path.trim_start_matches('/'), 0o755, std::fs::read(binary)?);
    tree.directory("tmp", 0o1777, ROOT);
    let name = reference.replace(['/', ':'], "_");
    let stamp = format!("{RECIPE} {}", binary.display());
    let key: String = hex(&Sha256::digest(stamp)).chars().take(12).collect();
    let archive = folder()?.join(format!("{name}-{key}.tar"));
    if !archive.exists() {
        let run = Run { entrypoint, user: NOBODY, folder: "/" };
        appear(&archive, |partial| archive::write(partial, reference, &[&tree], &run).map(drop))?;
    }
    Ok(Image { reference: reference.to_owned(), archive })
}

/// What holds a pod's namespaces.
pub fn pause() -> Result<Image> {
    go_program("localhost/pause:1", &tools::pause()?, &["/pause"])
}
