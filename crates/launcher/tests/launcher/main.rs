//! The real program, with a sidecar and a server that do as the test says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail like tests")]

mod support;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::{Stage, eventually};

/// Serves until SIGTERM, which it notes.
const SERVER: &str = "trap 'note stopped; exit 0' TERM; note started; while :; do sleep 0.01; done";

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn the_server_never_starts_without_go() {
    let stage = Stage::new();
    let mut launcher = stage.launch(5, SERVER);
    thread::sleep(ms(150)); // nobody listens yet
    let sidecar = stage.sidecar();
    let mut request = sidecar.expect("start");
    request.answer("hold the old primary is still alive");
    request.answer("go ahead");
    request.answer("done");
    thread::sleep(ms(150));
    assert!(launcher.is_running());
    assert!(stage.notes().is_empty());
    request.answer("go");
    stage.wait_for_note("started");
}

#[test]
fn a_sidecar_that_restarts_while_it_holds_is_asked_again() {
    let stage = Stage::new();
    let first = stage.sidecar();
    let mut launcher = stage.launch(5, SERVER);
    first.expect("start").answer("hold no quorum"); // and the connection is closed
    drop(first);
    thread::sleep(ms(150));
    assert!(launcher.is_running() && stage.notes().is_empty());

    let second = stage.sidecar();
    second.let_it_start();
    stage.wait_for_note("started");
}

#[test]
fn a_stop_before_the_start_ends_the_launcher_at_once() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let stage = Stage::new();
        let sidecar = stage.sidecar();
        let mut launcher = stage.launch(5, SERVER);
        let _held = sidecar.expect("start");
        launcher.signal(signal);
        assert_eq!(launcher.exit_code(), 0);
        assert!(stage.notes().is_empty());
    }
}

#[test]
fn mastership_is_handed_over_before_the_server_hears_of_the_stop() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch(5, SERVER);
    sidecar.let_it_start();
    stage.wait_for_note("started");

    launcher.signal(Signal::SIGTERM);
    let mut stop = sidecar.expect("stop");
    stop.answer("wait the replica lags");
    thread::sleep(ms(200));
    stage.note("handed over");
    stop.answer("done");
    sidecar.expect("exited 0");
    assert_eq!(launcher.exit_code(), 0);
    assert_eq!(stage.notes(), ["started", "handed over", "stopped"]);
}

#[test]
fn a_handover_that_takes_too_long_is_not_waited_for() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch(1, SERVER);
    sidecar.let_it_start();
    stage.wait_for_note("started");

    let asked = Instant::now();
    launcher.signal(Signal::SIGTERM);
    let _unanswered = sidecar.expect("stop");
    assert_eq!(launcher.exit_code(), 0);
    assert!((ms(950)..ms(2500)).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    assert_eq!(stage.notes(), ["started", "stopped"]);
}

#[test]
fn a_sidecar_that_is_gone_does_not_hold_up_the_stop() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch(60, SERVER);
    sidecar.let_it_start();
    stage.wait_for_note("started");
    drop(sidecar);

    let asked = Instant::now();
    launcher.signal(Signal::SIGTERM);
    assert_eq!(launcher.exit_code(), 0);
    assert!(asked.elapsed() < ms(2500), "{:?}", asked.elapsed());
    assert_eq!(stage.notes(), ["started", "stopped"]);
    assert!(launcher.log().contains("cannot be reached"));
}

#[test]
fn a_sidecar_that_restarts_during_the_handover_is_asked_again() {
    let stage = Stage::new();
    let first = stage.sidecar();
    let mut launcher = stage.launch(60, SERVER);
    first.let_it_start();
    stage.wait_for_note("started");
    launcher.signal(Signal::SIGTERM);
    drop(first.expect("stop"));
    drop(first);

    let second = stage.sidecar();
    second.expect("stop").answer("done");
    assert_eq!(launcher.exit_code(), 0);
    assert_eq!(stage.notes(), ["started", "stopped"]);
}

#[test]
fn a_second_stop_skips_the_wait() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch(60, SERVER);
    sidecar.let_it_start();
    stage.wait_for_note("started");

    launcher.signal(Signal::SIGTERM);
    let _unanswered = sidecar.expect("stop");
    launcher.signal(Signal::SIGTERM);
    sidecar.expect("exited 0");
    assert_eq!(launcher.exit_code(), 0);
    assert_eq!(stage.notes(), ["started", "stopped"]);
}

#[test]
fn a_server_that_dies_during_the_handover_ends_the_wait() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch(60, "note started; sleep 0.3; exit 5");
    sidecar.let_it_start();
    stage.wait_for_note("started");
    launcher.signal(Signal::SIGTERM);
    let _unanswered = sidecar.expect("stop");
    sidecar.expect("exited 5");
    assert_eq!(launcher.exit_code(), 5);
}

#[test]
fn a_server_that_needs_time_to_stop_gets_it() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let slow = "trap 'sleep 0.5; note saved; exit 0' TERM; note started; while :; do sleep 0.01; done";
    let mut launcher = stage.launch(0, slow);
    sidecar.let_it_start();
    stage.wait_for_note("started");
    launcher.signal(Signal::SIGTERM);
    thread::sleep(ms(100));
    launcher.signal(Signal::SIGTERM); // nor does impatience kill it
    assert_eq!(launcher.exit_code(), 0);
    assert_eq!(stage.notes(), ["started", "saved"]);
}

#[test]
fn kubernetes_and_the_sidecar_see_how_the_server_ended() {
    for (script, told, code) in
        [("exit 0", "exited 0", 0), ("exit 42", "exited 42", 42), ("kill -KILL $$", "exited signal 9", 137)]
    {
        let stage = Stage::new();
        let sidecar = stage.sidecar();
        let mut launcher = stage.launch(5, script);
        sidecar.let_it_start();
        sidecar.expect(told);
        assert_eq!(launcher.exit_code(), code, "{script}");
    }
}

#[test]
fn a_sidecar_that_does_not_listen_to_the_end_delays_it_only_a_little() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch(5, "exit 3");
    sidecar.let_it_start();
    let started = Instant::now(); // and from here on nothing is accepted
    assert_eq!(launcher.exit_code(), 3);
    assert!(started.elapsed() < ms(1000));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch_command(5, &["/nowhere/valkey-server"]);
    sidecar.let_it_start();
    sidecar.expect("exited 127");
    assert_eq!(launcher.exit_code(), 127);
    assert!(launcher.log().contains("/nowhere/valkey-server"));
}

#[test]
fn orphans_are_taken_away_and_not_mistaken_for_the_server() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    // Each inner shell ends at once and leaves its child to the launcher.
    let script = "for i in 1 2 3; do (sh -c 'sleep 0.1; exit 7' &); done; note started; sleep 0.6; exit 3";
    let mut launcher = stage.launch(5, script);
    sidecar.let_it_start();
    stage.wait_for_note("started");
    eventually("all three orphans", || (children(launcher.id()).len() >= 4).then_some(()));
    eventually("only the server", || (children(launcher.id()).len() == 1).then_some(()));
    assert!(launcher.is_running());
    assert_eq!(launcher.exit_code(), 3);
}

/// The ids of a process's children, those that have ended and were not taken away included.
fn children(parent: u32) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    all.filter(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        after_name.split(' ').nth(1) == Some(parent.to_string().as_str())
    })
    .collect()
}

#[test]
fn the_server_starts_with_a_clean_signal_mask() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    // Not through a shell: some clear the mask by themselves.
    let mut launcher = stage.launch_command(5, &["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]);
    sidecar.let_it_start();
    assert_eq!(launcher.exit_code(), 0);
    for mask in launcher.output().lines() {
        let (_, bits) = mask.split_once('\t').unwrap();
        let named = u64::from_str_radix(bits, 16).unwrap() & 0x7fff_ffff; // the C library keeps some others for itself
        assert_eq!(named, 0, "{mask}");
    }
}

#[test]
fn a_server_that_does_nothing_about_signals_ends_by_the_stop() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch_command(5, &["sleep", "60"]);
    sidecar.let_it_start();
    eventually("the server", || (children(launcher.id()).len() == 1).then_some(()));
    launcher.signal(Signal::SIGTERM);
    sidecar.expect("stop").answer("done");
    sidecar.expect("exited signal 15");
    assert_eq!(launcher.exit_code(), 143);
}

#[test]
fn every_log_line_is_json_and_a_reason_is_logged_once() {
    let stage = Stage::new();
    let sidecar = stage.sidecar();
    let mut launcher = stage.launch(5, "exit 0");
    let mut start = sidecar.expect("start");
    for line in ["hold a \"quoted\" reason", "hold a \"quoted\" reason", "hold another", "go"] {
        start.answer(line);
    }
    assert_eq!(launcher.exit_code(), 0);
    let log = launcher.log();
    assert!(log.lines().all(|line| line.starts_with("{\"level\":\"") && line.ends_with('}')), "{log}");
    assert_eq!(log.matches(r#""reason":"a \"quoted\" reason""#).count(), 1, "{log}");
    assert_eq!(log.matches(r#""reason":"another""#).count(), 1, "{log}");
}

#[test]
fn a_wrong_call_is_answered_with_one_sentence_and_code_2() {
    for arguments in [&["valkey-server"][..], &[], &["--"], &["--patience", "x", "--", "true"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_valkey-launcher")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1, "{arguments:?}");
    }
}
