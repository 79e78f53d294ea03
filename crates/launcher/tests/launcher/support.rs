//! A sidecar and a server that do as the test says.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Nothing in these tests takes longer, unless it never happens.
const LONGEST: Duration = Duration::from_secs(10);

/// A place for the socket and for what the server writes down.
pub struct Stage {
    directory: TempDir,
}

impl Stage {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn sidecar(&self) -> Sidecar {
        let socket = self.path("socket");
        let _ = fs::remove_file(&socket); // left behind by a sidecar that went away
        Sidecar { listener: UnixListener::bind(socket).unwrap() }
    }

    /// A launcher whose server is a shell script; `note WORD` in it adds a line to the notes.
    pub fn launch(&self, patience: u32, script: &str) -> Launcher {
        let script = format!("note() {{ echo \"$*\" >> {}; }}\n{script}", self.path("notes").display());
        self.launch_command(patience, &["/bin/sh", "-c", &script])
    }

    pub fn launch_command(&self, patience: u32, command: &[&str]) -> Launcher {
        let child = Command::new(env!("CARGO_BIN_EXE_valkey-launcher"))
            .arg("--socket")
            .arg(self.path("socket"))
            .args(["--patience", &patience.to_string(), "--"])
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        Launcher { child }
    }

    pub fn note(&self, word: &str) {
        let mut notes = fs::OpenOptions::new().create(true).append(true).open(self.path("notes")).unwrap();
        writeln!(notes, "{word}").unwrap();
    }

    pub fn notes(&self) -> Vec<String> {
        fs::read_to_string(self.path("notes")).unwrap_or_default().lines().map(Into::into).collect()
    }

    pub fn wait_for_note(&self, word: &str) {
        eventually(&format!("note {word:?}"), || self.notes().iter().any(|note| note == word).then_some(()));
    }
}

pub struct Sidecar {
    listener: UnixListener,
}

impl Sidecar {
    /// The next request, which must be `line`.
    pub fn expect(&self, line: &str) -> Request {
        let request = self.accept();
        assert_eq!(request.line, line);
        request
    }

    /// The next request, or `None` if nobody asks anything within `time`.
    pub fn request_within(&self, time: Duration) -> Option<Request> {
        self.listener.set_nonblocking(true).unwrap();
        let end = Instant::now() + time;
        while Instant::now() < end {
            if let Ok((stream, _)) = self.listener.accept() {
                return Some(Request::read(stream));
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub fn let_it_start(&self) {
        self.expect("start").answer("go");
    }

    fn accept(&self) -> Request {
        self.request_within(LONGEST).expect("the launcher asks nothing")
    }
}

pub struct Request {
    pub line: String,
    stream: UnixStream,
}

impl Request {
    fn read(stream: UnixStream) -> Self {
        stream.set_nonblocking(false).unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        Self { line: line.trim_end_matches('\n').into(), stream }
    }

    pub fn answer(&mut self, line: &str) {
        writeln!(self.stream, "{line}").unwrap();
    }
}

pub struct Launcher {
    child: Child,
}

impl Launcher {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.id().try_into().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn exit_code(&mut self) -> i32 {
        let status = eventually("end of the launcher", || self.child.try_wait().unwrap());
        status.code().expect("the launcher was killed")
    }

    /// Everything the server has printed. Only after its end.
    pub fn output(&mut self) -> String {
        std::io::read_to_string(self.child.stdout.take().unwrap()).unwrap()
    }

    /// Everything it has logged. Only after its end.
    pub fn log(&mut self) -> String {
        std::io::read_to_string(self.child.stderr.take().unwrap()).unwrap()
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // The server too: a test leaves no process behind, wherever it ends.
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONGEST;
    while Instant::now() < end {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("waited in vain for: {what}");
}
