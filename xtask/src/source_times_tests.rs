//! `.ci/source-times`, which decides what cargo takes for changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// Checkouts with a few sources, and a folder that builds of all of them go to.
struct Machine(TempDir);

impl Machine {
    fn new() -> Result<Self> {
        Ok(Self(TempDir::new()?))
    }

    fn target(&self) -> PathBuf {
        self.0.path().join("target")
    }

    fn checkout(&self, name: &str) -> Result<PathBuf> {
        let root = self.0.path().join(name);
        for folder in [".ci", "crates", "e2e", "xtask", "proto", "charts", "deploy"] {
            fs::create_dir_all(root.join(folder))?;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/source-times");
        fs::copy(script, root.join(".ci/source-times"))?;
        for (file, content) in [
            ("Cargo.toml", "[workspace]"),
            ("Cargo.lock", ""),
            ("crates/lib.rs", "fn one() {}"),
            ("crates/path.rs", "env!(\"CARGO_MANIFEST_DIR\")"),
        ] {
            fs::write(root.join(file), content)?;
        }
        Ok(root)
    }

    fn say(&self, checkout: &Path, word: &str) -> Result<()> {
        let status = Command::new(checkout.join(".ci/source-times")).arg(word).arg(self.target()).status()?;
        ensure!(status.success(), "{word} failed");
        Ok(())
    }

    /// What a compiler leaves behind.
    fn build(&self) -> Result<()> {
        let unit = self.target().join("debug/.fingerprint/unit");
        fs::create_dir_all(&unit)?;
        // Long enough ago or after for the clock of any file system.
        std::thread::sleep(Duration::from_millis(20));
        fs::write(unit.join("dep-lib"), "")?;
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }
}

/// Whether cargo would compile a file again that it has built.
fn counts_as_changed(checkout: &Path, file: &str, built: SystemTime) -> Result<bool> {
    Ok(fs::metadata(checkout.join(file))?.modified()? > built)
}

/// Builds once in a first checkout, then begins in a second one, with whatever happens in between.
fn begun_again(between: impl Fn(&Machine, &Path) -> Result<()>) -> Result<(bool, bool)> {
    let machine = Machine::new()?;
    let first = machine.checkout("first")?;
    machine.say(&first, "begin")?;
    machine.build()?;
    let built = SystemTime::now();
    machine.say(&first, "end")?;
    let second = machine.checkout("second")?;
    between(&machine, &second)?;
    machine.say(&second, "begin")?;
    let changed = |file| counts_as_changed(&second, file, built);
    Ok((changed("crates/lib.rs")?, changed("crates/path.rs")?))
}

#[test]
fn a_clone_with_the_same_content_is_as_old_as_what_was_built() -> Result<()> {
    let (same, with_its_path) = begun_again(|_, _| Ok(()))?;
    ensure!(!same, "it would be compiled again");
    ensure!(with_its_path, "another checkout's path would be compiled in");
    Ok(())
}

#[test]
fn other_content_counts_as_changed() -> Result<()> {
    let (changed, _) =
        begun_again(|_, second| fs::write(second.join("crates/lib.rs"), "fn two() {}").context("write"))?;
    ensure!(changed, "an old build would pass for the new content");
    Ok(())
}

#[test]
fn after_a_build_that_we_do_not_know_of_everything_counts_as_changed() -> Result<()> {
    let (changed, _) = begun_again(|machine, _| machine.build())?;
    ensure!(changed, "somebody else's build would pass for ours");
    Ok(())
}

#[test]
fn what_changed_during_a_build_is_not_trusted() -> Result<()> {
    let machine = Machine::new()?;
    let checkout = machine.checkout("only")?;
    machine.say(&checkout, "begin")?;
    fs::write(checkout.join("crates/lib.rs"), "fn two() {}")?;
    machine.build()?;
    let built = SystemTime::now();
    machine.say(&checkout, "end")?;
    fs::write(checkout.join("crates/lib.rs"), "fn one() {}")?;
    machine.say(&checkout, "begin")?;
    ensure!(counts_as_changed(&checkout, "Cargo.toml", built)?, "nothing may be trusted after that");
    Ok(())
}
