//! `go build` with a progress line.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::{Module, Program, appear};
use crate::progress::Step;
use crate::{images, paths, shell};

/// Paths of this machine do not get into the programs, so equal sources give equal programs everywhere.
const FLAGS: &[&str] = &["-trimpath", "-v"];
/// Go's linker wants the version of Kubernetes from outside; everything else here ignores it.
const VERSION_PACKAGE: &str = "k8s.io/component-base/version";

/// A digest of everything that the module's programs are built from.
pub fn key(module: &Module) -> Result<String> {
    let source = module.source();
    let mut digest = Sha256::new();
    for file in sources(&source)? {
        digest.update(file.strip_prefix(&source)?.to_string_lossy().as_bytes());
        digest.update(std::fs::read(&file)?);
    }
    digest.update(FLAGS.join(" "));
    digest.update(ldflags(module)?);
    digest.update(std::env::consts::ARCH);
    Ok(images::hex(&digest.finalize()).chars().take(12).collect())
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn ldflags(module: &Module) -> Result<String> {
    let go_mod = std::fs::read_to_string(module.source().join("go.mod"))?;
    let Ok(version) = pinned(&go_mod, "k8s.io/kubernetes") else {
        return Ok("-s -w".to_owned());
    };
    let minor = version.split('.').nth(1).unwrap_or_default();
    let v = VERSION_PACKAGE;
    Ok(format!("-s -w -X {v}.gitVersion={version} -X {v}.gitMajor=1 -X {v}.gitMinor={minor}"))
}

pub fn pinned(go_mod: &str, requirement: &str) -> Result<String> {
    go_mod
        .lines()
        .map(|line| line.trim().trim_start_matches("require "))
        .filter(|line| !line.contains("=>"))
        .find_map(|line| line.strip_prefix(requirement)?.strip_prefix(' '))
        .and_then(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .with_context(|| format!("{requirement} is not required in this go.mod"))
}

pub fn checkout(source: &Path, requirement: &str) -> Result<PathBuf> {
    let folder = shell::output(go(source)?.args(["list", "-m", "-f", "{{.Dir}}", requirement]))?;
    if folder.trim().is_empty() {
        shell::run(go(source)?.args(["mod", "download", requirement]))?;
        return Ok(shell::output(go(source)?.args(["list", "-m", "-f", "{{.Dir}}", requirement]))?.trim().into());
    }
    Ok(folder.trim().into())
}

/// Builds one program to `target`. Packages that were compiled before are taken from Go's own cache.
pub fn build(module: &Module, program: &Program, target: &Path) -> Result<()> {
    let mut step = Step::start(format!("build {}", program.name));
    let source = module.source();
    step.say("reading the module");
    let log = paths::logs()?.join(format!("go-{}.log", program.name));
    let listing = log.with_extension("list");
    std::fs::create_dir_all(paths::logs()?)?;
    let mut list = go(&source)?;
    shell::logged_apart(list.args(["list", "-deps", program.package]), &listing, &log, |line| step.say(line))?;
    let total = std::fs::read_to_string(&listing)?.lines().count();
    let mut compiled = 0_usize;
    appear(target, |partial| {
        let mut command = go(&source)?;
        command.arg("build").args(FLAGS).args(["-ldflags", &ldflags(module)?]).arg("-o").arg(partial);
        shell::logged(command.arg(program.package), &log, |line| {
            if line.starts_with("go: ") {
                step.say(line);
            } else {
                compiled += 1;
                step.say(format!("{compiled} of at most {total} packages, now {line}"));
            }
        })
    })?;
    step.done(format!("{compiled} packages compiled"));
    Ok(())
}

fn go(source: &Path) -> Result<Command> {
    let Some(go) =
        shell::find("go").or_else(|| Some("/usr/local/go/bin/go".into()).filter(|go: &PathBuf| go.is_file()))
    else {
        bail!("Go is not installed; install Go 1.26 or later and see that `go` is on the PATH");
    };
    let mut command = Command::new(go);
    command.current_dir(source).env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_read_from_requirements_and_never_from_replacements() {
        let go_mod = "require (\n\tk8s.io/api v0.36.4 // indirect\n\tk8s.io/kubernetes v1.36.4\n)\n\
                      replace k8s.io/api => k8s.io/api v9.9.9\n";
        assert_eq!(pinned(go_mod, "k8s.io/kubernetes").unwrap(), "v1.36.4");
        assert_eq!(pinned(go_mod, "k8s.io/api").unwrap(), "v0.36.4");
        assert!(pinned(go_mod, "k8s.io/kube").is_err());
    }
}
