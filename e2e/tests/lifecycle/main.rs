//! The local cluster itself: it comes and goes without a trace, also when it is interrupted, and says clearly what it
//! lacks. Each test has a cluster of its own, beside whatever else runs on this machine.

mod traces;

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::traces::Traces;

/// A cluster that is gone when the test is, however that ends.
struct Cluster(&'static str);

impl Cluster {
    fn command(&self, action: &str) -> Command {
        let xtask = std::env::var_os("XTASK").unwrap_or_else(|| "xtask".into());
        let mut command = Command::new(xtask);
        command.args(["cluster", "--name", self.0, action]);
        command
    }

    fn run(&self, action: &str) -> Result<Output> {
        let out = self.command(action).output().context("cannot run xtask; set XTASK to its path")?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "`cluster {action}` of {} failed: {said}", self.0);
        Ok(out)
    }

    /// Starts `up` and comes back when it has started this many machines and programs.
    fn up_until(&self, started: usize) -> Result<Up> {
        let mut up = self.command("up").stderr(Stdio::null()).spawn()?;
        let deadline = Instant::now() + Duration::from_mins(5);
        while traces::started(self.0) < started {
            ensure!(up.try_wait()?.is_none(), "`up` ended before it had started {started}");
            ensure!(Instant::now() < deadline, "`up` has not started {started} in five minutes");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Up(up))
    }
}

/// An `up` that is under way.
struct Up(Child);

impl Up {
    fn kill(mut self) -> Result<()> {
        ensure!(self.0.try_wait()?.is_none(), "`up` ended before it could be killed");
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The test has said what there is to say; this is only so that the next one finds the machine clean.
        let _ = self.command("down").output();
    }
}

#[test]
fn a_cluster_comes_and_goes_twice_without_a_trace() -> Result<()> {
    let cluster = Cluster("life");
    let before = Traces::of_this_machine("life")?;
    for _ in 0..2 {
        cluster.run("up")?;
        let during = Traces::of_this_machine("life")?;
        // Or else the comparison below could not fail.
        during.expect_more_than(&before)?;
        let namespaces = traces::namespaces("life")?;
        ensure!(namespaces.len() >= 4, "four machines have network namespaces: {namespaces:?}");
        cluster.run("down")?;
        Traces::of_this_machine("life")?.expect_no_more_than(&before)?;
        traces::expect_gone(&namespaces)?;
    }
    Ok(())
}

/// From the first machine to the last program: `up` starts four machines and fifteen programs on them, and then waits with
/// `kubectl`, which must not outlive it.
#[test]
fn an_up_that_is_killed_anywhere_leaves_nothing_after_down() -> Result<()> {
    let cluster = Cluster("killed");
    cluster.run("down")?;
    let before = Traces::of_this_machine("killed")?;
    for started in [1, 2, 4, 7, 10, 14, 18, 19] {
        cluster.up_until(started)?.kill()?;
        cluster.run("down")?;
        let after = Traces::of_this_machine("killed")?;
        after.expect_no_more_than(&before).with_context(|| format!("`up` was killed after starting {started}"))?;
    }
    Ok(())
}

#[test]
fn an_interrupted_up_goes_on_when_it_is_called_again_and_twice_is_as_good_as_once() -> Result<()> {
    let cluster = Cluster("again");
    cluster.up_until(6)?.kill()?;
    cluster.run("up")?;
    cluster.run("status")?;
    let second = String::from_utf8(cluster.run("up")?.stderr)?;
    ensure!(second.contains("running already"), "{second}");
    Ok(())
}

#[test]
fn a_second_up_at_the_same_time_says_so() -> Result<()> {
    let cluster = Cluster("twice");
    let first = cluster.up_until(1)?;
    let second = cluster.command("up").output()?;
    first.kill()?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    ensure!(!second.status.success(), "the second one went ahead: {said}");
    ensure!(said.contains("is being changed by `cluster up`, process"), "{said}");
    Ok(())
}

#[test]
fn without_root_rights_one_sentence_says_what_to_do() -> Result<()> {
    let before = Traces::of_this_machine("nobody")?;
    // A copy, because nobody may not look into the folder that it was built in.
    let folder = std::env::temp_dir().join(format!("xtask-nobody-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let xtask = PathBuf::from(std::env::var_os("XTASK").context("set XTASK to the path of xtask")?);
    std::fs::copy(xtask, folder.join("xtask"))?;
    let out = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(folder.join("xtask"))
        .args(["cluster", "--name", "nobody", "up"])
        .env("HOME", &folder)
        .env_remove("VALKEY_OPERATOR_CACHE")
        .output()?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    std::fs::remove_dir_all(&folder)?;
    ensure!(!out.status.success() && said.lines().count() == 1, "{said}");
    ensure!(said.contains("needs root rights") && said.contains("sudo"), "{said}");
    Traces::of_this_machine("nobody")?.expect_no_more_than(&before)
}

/// A network namespace without any link to the outside stands in for a machine that is offline.
#[test]
fn with_a_warm_cache_no_network_is_needed() -> Result<()> {
    let cluster = Cluster("offline");
    cluster.run("down")?;
    let up = cluster.command("up");
    let mut offline = Command::new("unshare");
    offline.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    offline.arg(up.get_program()).args(up.get_args()).env("CARGO_NET_OFFLINE", "true");
    let out = offline.output()?;
    if !out.status.success() {
        bail!("without a network: {}", String::from_utf8_lossy(&out.stderr));
    }
    Ok(())
}
