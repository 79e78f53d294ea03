//! Running other programs, with errors that say what was run and what it said.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

const LAST_LINES: usize = 15;

/// The command line as a person would type it.
pub fn display(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs a short command and gives its standard output; its error output becomes the error.
pub fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot run `{}`", display(command)))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let said = if said.trim().is_empty() { String::from_utf8_lossy(&out.stdout) } else { said };
        bail!("`{}` failed ({}): {}", display(command), out.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs a short command for its effect.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Like [`run`], with `input` on its standard input.
pub fn feed(command: &mut Command, input: &[u8]) -> Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run `{}`", display(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that fails early closes its input; its own words below say more than "broken pipe".
        let _ = stdin.write_all(input);
    }
    let out = child.wait_with_output()?;
    if !out.status.success() {
        bail!("`{}` failed ({}): {}", display(command), out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs a command in the foreground, its output on this terminal.
pub fn attached(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run `{}`", display(command)))?;
    ensure_success(command, status)
}

fn ensure_success(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed ({status})", display(command));
    }
    Ok(())
}

/// Runs a long command with both outputs going to a log file, and hands each line to `on_line` for progress.
///
/// On failure the error names the log file and ends with its last lines.
pub fn logged(command: &mut Command, log: &Path, on_line: impl FnMut(&str)) -> Result<()> {
    follow(command, None, log, on_line)
}

/// Like [`logged`] for a command whose standard output is its result: that goes to `result`, and only what it says
/// beside it is logged.
pub fn logged_apart(command: &mut Command, result: &Path, log: &Path, on_line: impl FnMut(&str)) -> Result<()> {
    let result = File::create(result).with_context(|| format!("cannot write {}", result.display()))?;
    follow(command, Some(result), log, on_line)
}

fn follow(command: &mut Command, result: Option<File>, log: &Path, mut on_line: impl FnMut(&str)) -> Result<()> {
    if let Some(folder) = log.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    writeln!(file, "$ {}", display(command))?;
    let (reader, writer) = std::io::pipe()?;
    let stdout = result.map_or_else(|| writer.try_clone().map(Stdio::from), |file| Ok(file.into()))?;
    command.stdin(Stdio::null()).stdout(stdout).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot run `{}`", display(command)))?;
    // `Command` keeps its ends of the pipe until it is told otherwise; the reader would wait for ever.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let mut last = VecDeque::with_capacity(LAST_LINES);
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(file, "{line}")?;
        on_line(&line);
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    let status = child.wait()?;
    if !status.success() {
        let tail = last.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n");
        bail!("`{}` failed ({status}); its last lines:\n{tail}\nthe whole log is {}", display(command), log.display());
    }
    Ok(())
}

/// The file `name` in the first folder of `PATH` (and the system folders that `PATH` may lack) that has it.
pub fn find(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_names_its_log_and_shows_the_last_lines() {
        let folder = tempfile();
        let log = folder.join("step.log");
        let mut seen = Vec::new();
        let error = logged(Command::new("sh").args(["-c", "seq 40; echo broken >&2; exit 3"]), &log, |line| {
            seen.push(line.to_owned());
        })
        .unwrap_err()
        .to_string();
        assert_eq!(seen.len(), 41);
        assert!(error.contains("broken") && error.contains("  | 40") && !error.contains("  | 7\n"), "{error}");
        assert!(error.contains(&log.display().to_string()), "{error}");
        assert!(std::fs::read_to_string(&log).unwrap().contains("\n7\n"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = format!("{:#}", run(&mut Command::new("no-such-program")).unwrap_err());
        assert!(error.contains("no-such-program"), "{error}");
    }

    fn tempfile() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-shell-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
