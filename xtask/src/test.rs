//! `make test`: everything that CI checks, in its order, with a table at the end of what passed and where the time went.

use std::cmp::Reverse;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::images::Component;
use crate::progress::human;
use crate::target::Target;
use crate::{cargo, check, cluster, dev, generate, images, paths};

/// How much is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    Usual,
    /// The long ones too.
    Full,
}

/// The cluster that tests run on: not the one that a developer may be looking at.
const CLUSTER: &str = "test";
/// Most of a test's time is waiting; more at once than this only makes each of them slower on two cores.
const TOGETHER: &str = "2";
/// Tests that compare the whole machine before and after bear no company.
const ALONE: &str = "1";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

#[derive(Debug)]
struct Stage {
    name: &'static str,
    took: Duration,
    count: Count,
    failure: Option<String>,
}

#[derive(Debug, Default)]
struct Run {
    stages: Vec<Stage>,
}

pub fn run(suite: Suite, only: Option<&str>) -> Result<ExitCode> {
    let mut run = Run::default();
    if only.is_none() {
        run.without_a_cluster();
    }
    if run.is_good() {
        run.on_a_cluster(suite, only)?;
    }
    run.report();
    Ok(if run.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Run {
    fn without_a_cluster(&mut self) {
        self.stage("format", || cargo_stage(&["fmt", "--all", "--check"]));
        self.stage("clippy", || {
            cargo_stage(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])
        });
        self.stage("dependency rules", || check::layers().map(|()| Count::default()));
        self.stage("text rules", || check::text().map(|()| Count::default()));
        self.stage("unit tests", || {
            let units = cargo_stage(&["test", "--workspace", "--exclude", "e2e", "--quiet"])?;
            Ok(units + cargo_stage(&["test", "--package", "e2e", "--lib", "--quiet"])?)
        });
        self.stage("generated files", || generate::run(generate::Mode::Check).map(|()| Count::default()));
        self.stage("images are reproducible", || {
            images::SERIES.iter().try_for_each(images::verify).map(|()| Count::default())
        });
    }

    /// A cluster that was there before is left as it was found.
    fn on_a_cluster(&mut self, suite: Suite, only: Option<&str>) -> Result<()> {
        if only.is_none() {
            // A cluster's life is mostly waiting, a compiler's is not.
            let beside = std::thread::spawn(images::compile_all);
            self.stage("cluster life cycle", || e2e("lifecycle", ALONE, suite, None));
            let compiled = beside.join().unwrap_or_else(|_| Err(anyhow!("the compiler's thread panicked")));
            self.stage("images compiled", || compiled.map(|()| Count::default()));
        }
        let found = cluster::is_running(CLUSTER)?;
        self.stage("cluster up", || cluster::up(CLUSTER).map(|()| Count::default()));
        self.stage("operator installed", || dev::install(&Target::local(CLUSTER)).map(|()| Count::default()));
        self.stage("end-to-end tests", || e2e("e2e", TOGETHER, suite, only));
        if !found {
            self.stage("cluster down", || cluster::down(CLUSTER).map(|()| Count::default()));
        }
        Ok(())
    }

    /// Runs a stage, unless one before it failed. The cluster is taken down in any case.
    fn stage(&mut self, name: &'static str, body: impl FnOnce() -> Result<Count>) {
        if !self.is_good() && name != "cluster down" {
            return;
        }
        println!("\n=== {name}");
        let started = Instant::now();
        let outcome = body();
        let took = started.elapsed();
        let (count, failure) = match outcome {
            Ok(count) if count.failed == 0 => (count, None),
            Ok(count) => (count, Some(format!("{} tests failed", count.failed))),
            Err(error) => (Count { passed: 0, failed: 1 }, Some(format!("{error:#}"))),
        };
        if let Some(failure) = &failure {
            println!("{failure}");
        }
        self.stages.push(Stage { name, took, count, failure });
    }

    fn is_good(&self) -> bool {
        self.stages.iter().all(|stage| stage.failure.is_none())
    }

    /// The last line is the one that machines read.
    fn report(&self) {
        println!("\n=== where the time went");
        for stage in &self.stages {
            let tests = if stage.count.passed > 0 { format!("{} passed", stage.count.passed) } else { String::new() };
            let mark = if stage.failure.is_none() { '✓' } else { '✗' };
            println!("{mark} {:<26} {:>7}  {tests}", stage.name, human(stage.took));
        }
        let total = self.stages.iter().map(|stage| stage.took).sum();
        let count = self.stages.iter().fold(Count::default(), |sum, stage| sum + stage.count);
        println!("  {:<26} {:>7}\n\n{} passed, {} failed", "all", human(total), count.passed, count.failed);
    }
}

impl std::ops::Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

fn e2e(binary: &str, threads: &str, suite: Suite, only: Option<&str>) -> Result<Count> {
    let mut command = cargo::command();
    command.args(["test", "--package", "e2e", "--test", binary, "--", "--test-threads", threads]);
    if suite == Suite::Full {
        command.arg("--include-ignored");
    }
    command.args(only);
    command.env("XTASK", std::env::current_exe()?);
    command.env("OPERATOR", images::binary(Component::Operator)?);
    let _client = if cluster::is_running(CLUSTER)? {
        command.envs(cluster::environment(CLUSTER)?).env("BENCH_CLUSTER", CLUSTER);
        Some(cluster::as_client(CLUSTER)?)
    } else {
        None
    };
    // They name the runner's own functions, and push out of sight what the test had to say.
    command.env("RUST_BACKTRACE", "0");
    let times = paths::logs()?.join(format!("times-{binary}.txt"));
    std::fs::write(&times, "")?;
    let count = counted(command.env("E2E_TIMES", &times));
    for line in longest(&std::fs::read_to_string(&times)?) {
        println!("{line}");
    }
    count
}

/// Which tests took the most time. A line for each of them: milliseconds, a space, its name.
fn longest(times: &str) -> Vec<String> {
    const SHOWN: usize = 10;
    let parse = |line: &str| {
        let (took, name) = line.split_once(' ')?;
        Some((Duration::from_millis(took.parse().ok()?), name.to_owned()))
    };
    let mut tests: Vec<_> = times.lines().filter_map(parse).collect();
    tests.sort_by_key(|(took, _)| Reverse(*took));
    tests.iter().take(SHOWN).map(|(took, name)| format!("{:>8}  {name}", human(*took))).collect()
}

fn cargo_stage(args: &[&str]) -> Result<Count> {
    counted(cargo::command().args(args))
}

/// Runs a command, shows what it prints, and adds up what its test runners say.
fn counted(command: &mut Command) -> Result<Count> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut count = Count::default();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        count = count + parse_result(&line).unwrap_or_default();
    }
    if !child.wait()?.success() && count.failed == 0 {
        anyhow::bail!("`{}` failed", crate::shell::display(command));
    }
    Ok(count)
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; …`
fn parse_result(line: &str) -> Option<Count> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |what: &str| {
        let part = rest.split([';', '.']).map(str::trim).find(|part| part.ends_with(what))?;
        part.split(' ').next()?.parse().ok()
    };
    Some(Count { passed: number(" passed")?, failed: number(" failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runners_own_line_is_what_counts() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.02s";
        assert_eq!(parse_result(line), Some(Count { passed: 12, failed: 3 }));
        assert_eq!(parse_result("12 passed; 3 failed"), None);
    }

    #[test]
    fn the_longest_tests_come_first() {
        assert_eq!(longest("900 quick\n61000 slow\nnonsense\n"), ["   1m01s  slow", "    0.9s  quick"]);
    }

    #[test]
    fn a_failed_stage_stops_those_after_it_but_not_the_clean_up() {
        let mut run = Run::default();
        run.stage("one", || anyhow::bail!("broken"));
        run.stage("two", || Ok(Count { passed: 1, failed: 0 }));
        run.stage("cluster down", || Ok(Count::default()));
        let names: Vec<_> = run.stages.iter().map(|stage| stage.name).collect();
        assert_eq!(names, ["one", "cluster down"]);
        assert!(!run.is_good());
    }
}
