//! The program as the kubelet sees it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

#[test]
fn the_program_says_where_it_listens_answers_probes_and_ends_cleanly_when_told_to() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_valkey-sidecar"))
        .args(["--health-addr", "127.0.0.1:0"])
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap()).lines();
    let started: serde_json::Value = serde_json::from_str(&log.next().unwrap().unwrap()).unwrap();
    assert_eq!(started["message"], "started");
    assert_eq!(started["version"], env!("CARGO_PKG_VERSION"));

    let address = started["health"].as_str().unwrap();
    for path in ["/healthz", "/readyz"] {
        assert!(get(address, path).unwrap().starts_with("HTTP/1.1 200"), "{path}");
    }

    let told = Command::new("kill").args(["-TERM", &program.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert_eq!(program.wait().unwrap().code(), Some(0));
    assert!(log.last().unwrap().unwrap().contains("stopped"));
}

fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
