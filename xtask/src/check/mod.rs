//! Rules about this repository that no compiler checks.

mod graph;
mod layers;
mod text;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Crates depend on each other in the allowed direction only, and nothing pulls in a banned crate.
pub fn layers() -> Result<()> {
    let graph = graph::Graph::of_this_workspace()?;
    report("dependency rules", &layers::violations(&graph))
}

/// No file that git knows carries traces of the machine it was written on, leftovers of a merge, or too much code.
pub fn text() -> Result<()> {
    let top = output("git", ["rev-parse", "--show-toplevel"])?;
    let top = Path::new(top.trim_end());
    let files = output("git", ["ls-files", "-z", "--full-name", ":/"])?;
    let mut violations = Vec::new();
    for file in files.split_terminator('\0') {
        let path = top.join(file);
        if path.symlink_metadata().is_ok_and(|m| m.is_file()) {
            let content = std::fs::read(&path).with_context(|| format!("cannot read {file}"))?;
            violations.extend(text::violations(file, &String::from_utf8_lossy(&content)));
        }
    }
    report("text rules", &violations)
}

fn report(rules: &str, violations: &[String]) -> Result<()> {
    ensure!(violations.is_empty(), "the {rules} are broken:\n  {}", violations.join("\n  "));
    Ok(())
}

fn output(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
    let program = program.as_ref();
    let name = program.display();
    let output = Command::new(program).args(args).output().with_context(|| format!("cannot run {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    String::from_utf8(output.stdout).with_context(|| format!("{name} did not answer in UTF-8"))
}
