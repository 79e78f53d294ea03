//! Files that are made from code and committed: written here, compared in CI.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;

use crate::cli::Cli;
use crate::paths;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Write,
    Check,
}

/// Every generated file and its content.
fn files() -> Vec<(PathBuf, String)> {
    vec![(paths::workspace().join("docs/xtask.md"), command_reference())]
}

pub fn run(mode: Mode) -> Result<()> {
    let mut stale = Vec::new();
    for (path, content) in files() {
        if std::fs::read_to_string(&path).is_ok_and(|current| current == content) {
            continue;
        }
        match mode {
            Mode::Write => {
                std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
                println!("wrote {}", path.display());
            }
            Mode::Check => stale.push(path.display().to_string()),
        }
    }
    if !stale.is_empty() {
        bail!("not up to date: {}; run `cargo xtask generate` and commit the result", stale.join(", "));
    }
    Ok(())
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
