//! Which release the server is of. Only this container has it, and the sidecar must know before the start: a server that cannot
//! read its data has to be helped, or it ends for ever.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long the answer may take. Without one the server starts as if it had not been asked.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: u64 = 4096;

/// What the server says about itself, such as `9.1.2`. Nobody but a Valkey server is asked: another program may do anything
/// when it is started.
pub fn of(program: &OsStr) -> Option<String> {
    if Path::new(program).file_name()? != "valkey-server" {
        return None;
    }
    let mut command = Command::new(program);
    let asked = command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut asked = asked.ok()?;
    let output = asked.stdout.take()?;
    let (told, wait) = mpsc::channel();
    // Read elsewhere: somebody who inherited the pipe may keep it open for ever.
    thread::spawn(move || {
        let mut text = String::new();
        let _ = output.take(LONGEST).read_to_string(&mut text);
        let _ = told.send(text); // no listener means that it took too long
    });
    let text = wait.recv_timeout(PATIENCE);
    let _ = asked.kill(); // it has ended, unless it took too long
    let _ = asked.wait();
    parse(&text.ok()?)
}

/// `Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=9108e8f1788612b`.
fn parse(text: &str) -> Option<String> {
    let number = text.split_ascii_whitespace().find_map(|word| word.strip_prefix("v="))?;
    let plain =
        !number.is_empty() && number.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-+_".contains(letter));
    plain.then(|| number.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_version_is_found_in_the_servers_words() {
        let text = "Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.1 bits=64 build=9108e8f1788612b\n";
        assert_eq!(parse(text).as_deref(), Some("9.1.2"));
        for text in ["", "Valkey server", "v=", "v=9.1.2;rm"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    fn script(content: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valkey-server");
        fs::write(&path, format!("#!/bin/sh\n{content}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[test]
    fn the_server_is_asked() {
        let (_folder, path) = script("echo Valkey server v=8.1.4 $1");
        assert_eq!(of(path.as_os_str()).as_deref(), Some("8.1.4"));
    }

    #[test]
    fn a_program_that_does_not_answer_is_not_waited_for() {
        let (_folder, path) = script("sleep 60 & exit 0");
        let begun = Instant::now();
        assert_eq!(of(path.as_os_str()), None);
        assert!(begun.elapsed() < 3 * PATIENCE);
        assert_eq!(of(OsStr::new("/nowhere/valkey-server")), None);
    }

    #[test]
    fn nobody_but_a_valkey_server_is_asked() {
        assert_eq!(of(OsStr::new("sh")), None);
    }
}
