//! Files that are made from code and committed: written here, compared in CI.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;

use crate::cli::Cli;
use crate::{cargo, dev, paths, shell, tools};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Write,
    Check,
}

/// Every generated file and its content.
/// What comes from the types of the API and of the contract with the sidecar. They are compiled into a program of their own,
/// since they need Kubernetes' types, which xtask does without.
fn from_types() -> Result<Vec<(PathBuf, String)>> {
    let folder = tempfile::tempdir()?;
    shell::attached(
        cargo::command().args(["run", "--quiet", "--package", "codegen", "--", "--out"]).arg(folder.path()),
    )?;
    let mut files = Vec::new();
    let mut open = vec![folder.path().to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?);
            continue;
        }
        let name = path.strip_prefix(folder.path())?;
        files.push((paths::workspace().join(name), std::fs::read_to_string(&path)?));
    }
    files.sort();
    Ok(files)
}

/// The chart with its default values, for those who do not use Helm.
fn install_manifest() -> Result<(PathBuf, String)> {
    let chart = paths::workspace().join("charts/valkey-operator");
    let mut helm = Command::new(tools::KUBERNETES.ensure()?.join("helm"));
    helm.args(["template", "valkey-operator"]).arg(&chart).args(["--namespace", dev::NAMESPACE, "--include-crds"]);
    let rendered = shell::output(&mut helm)?;
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {}\n---\n", dev::NAMESPACE);
    let header =
        "# Made by `cargo xtask generate` from charts/valkey-operator: definitions, rights and the operator.\n";
    Ok((
        paths::workspace().join("deploy/install.yaml"),
        format!("{header}{namespace}{}", rendered.trim_start_matches("---\n")),
    ))
}

pub fn run(mode: Mode) -> Result<()> {
    let mut stale = settle(mode, from_types()?)?;
    // Rendered from definitions that have just been written.
    let others = vec![(paths::workspace().join("docs/xtask.md"), command_reference()), install_manifest()?];
    stale.extend(settle(mode, others)?);
    if !stale.is_empty() {
        bail!("not up to date: {}; run `cargo xtask generate` and commit the result", stale.join(", "));
    }
    Ok(())
}

/// Writes the files that differ, or gives their names.
fn settle(mode: Mode, files: Vec<(PathBuf, String)>) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (path, content) in files {
        if std::fs::read_to_string(&path).is_ok_and(|current| current == content) {
            continue;
        }
        match mode {
            Mode::Write => {
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
                println!("wrote {}", path.display());
            }
            Mode::Check => stale.push(path.display().to_string()),
        }
    }
    Ok(stale)
}

/// `cargo xtask --help`, all levels on one page.
fn command_reference() -> String {
    let mut page = String::from("# cargo xtask\n\nMade by `cargo xtask generate` from the commands' own help.\n");
    describe(&mut page, &mut Cli::command(), "cargo xtask");
    page
}

fn describe(page: &mut String, command: &mut clap::Command, path: &str) {
    let help = command.clone().bin_name(path).term_width(100).render_help().to_string();
    // Lines without blanks at their ends, so that editors leave the file alone.
    let help: Vec<_> = help.trim().lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## `{path}`\n\n```text\n{}\n```\n", help.join("\n"));
    for child in command.get_subcommands_mut().filter(|child| child.get_name() != "help") {
        let path = format!("{path} {}", child.get_name());
        describe(page, child, &path);
    }
}
