//! Gives the Valkey container its first process.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::files::{named, replace_by};

const RUNNABLE: u32 = 0o755;

/// Copies the launcher. Works while an older one runs at `target`: that one keeps its file, which only loses its name.
pub fn install(from: &Path, target: &Path) -> io::Result<()> {
    let mut launcher = File::open(from).map_err(|error| named(from, &error))?;
    let copy = |file: &mut File| io::copy(&mut launcher, file).map(drop);
    replace_by(target, RUNNABLE, copy).map_err(|error| named(target, &error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_launcher_that_runs_is_replaced_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("launcher");
        install(Path::new("/bin/sleep"), &target).unwrap();
        let mut running = Command::new(&target).arg("30").spawn().unwrap();
        install(Path::new("/bin/true"), &target).unwrap();
        assert!(Command::new(&target).status().unwrap().success());
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = install(Path::new("/nowhere/launcher"), Path::new("/tmp")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/launcher"), "{error}");
    }
}
