//! Our programs as the kubelet sees them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A program of ours and what it needs to run.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    pub path: &'a str,
    pub version: &'a str,
    pub arguments: &'a [&'a str],
    pub environment: &'a [(&'a str, &'a str)],
}

/// Starts the program and expects that it says where it listens, answers probes, and ends cleanly when told to.
pub fn expect_good_manners(program: Program<'_>) -> Result<()> {
    let Program { path: program, version, arguments, environment } = program;
    let mut process = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .args(["--health-addr", "127.0.0.1:0"])
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let mut log = BufReader::new(process.stderr.take().context("no log")?).lines();
    let started: serde_json::Value = serde_json::from_str(&log.next().context("it says nothing")??)?;
    let says = |field: &str| started.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
    ensure!(says("message") == "started" && says("version") == version, "its first words: {started}");

    for path in ["/healthz", "/readyz"] {
        let answer = get(says("health"), path)?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{path} answers {answer}");
    }

    let told = Command::new("kill").args(["-TERM", &process.id().to_string()]).status()?;
    ensure!(told.success(), "it cannot be told to end");
    let end = process.wait()?;
    ensure!(end.code() == Some(0), "it ends with {end}");
    let last = log.last().context("no last words")??;
    ensure!(last.contains("stopped"), "its last words: {last}");
    Ok(())
}

fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("nobody listens at {address:?}"))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
