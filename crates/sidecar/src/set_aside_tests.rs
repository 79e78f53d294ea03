use tempfile::TempDir;

use super::*;

const LOG: &str = "appendonly yes";
const SNAPSHOTS: &str = "appendonly no";
const V8_1: Version = Version::new(8, 1, 4);
const V9_1: Version = Version::new(9, 1, 2);

/// As real servers write it: the bytes after the format are not text.
fn snapshot(format: &str) -> Vec<u8> {
    [format.as_bytes(), b"\xfa\x0avalkey-ver"].concat()
}

fn volume(log: &str, dump: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join(LOGS);
    fs::create_dir(&logs).unwrap();
    let manifest = "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.3.incr.aof seq 3 type i\n";
    fs::write(logs.join("appendonly.aof.manifest"), manifest).unwrap();
    fs::write(logs.join("appendonly.aof.1.base.rdb"), snapshot("VALKEY080")).unwrap(); // not in use any more
    fs::write(logs.join("appendonly.aof.2.base.rdb"), snapshot(log)).unwrap();
    fs::write(logs.join("appendonly.aof.3.incr.aof"), "*2\r\n").unwrap();
    fs::write(folder.path().join(SNAPSHOT), snapshot(dump)).unwrap();
    fs::write(folder.path().join("nodes.conf"), "who I am").unwrap();
    folder
}

fn too_new(folder: &TempDir, conf: &str, server: Version) -> bool {
    is_too_new(folder.path(), conf, server).unwrap()
}

#[test]
fn only_what_the_server_will_read_must_be_readable() {
    let folder = volume("VALKEY080", "REDIS0011");
    assert!(too_new(&folder, LOG, V8_1));
    assert!(!too_new(&folder, SNAPSHOTS, V8_1));
    let folder = volume("REDIS0011", "VALKEY080");
    assert!(!too_new(&folder, LOG, V8_1));
    assert!(too_new(&folder, SNAPSHOTS, V8_1));
}

#[test]
fn a_newer_server_reads_what_older_ones_wrote_and_its_own() {
    for format in ["REDIS0009", "REDIS0011", "VALKEY080"] {
        let folder = volume(format, format);
        assert!(!too_new(&folder, LOG, V9_1) && !too_new(&folder, SNAPSHOTS, V9_1), "{format}");
    }
    let folder = volume("VALKEY999", "VALKEY999");
    assert!(too_new(&folder, LOG, V9_1));
    assert!(!too_new(&folder, LOG, Version::new(10, 0, 0)), "what that one reads is not known");
    assert!(too_new(&volume("VALKEY080", ""), LOG, Version::new(8, 0, 3)));
}

#[test]
fn a_server_that_was_told_not_to_look_at_the_format_of_snapshots_does_so_for_snapshots_only() {
    let folder = volume("VALKEY080", "VALKEY080");
    assert!(!too_new(&folder, "appendonly no\nrdb-version-check relaxed", V8_1));
    assert!(too_new(&folder, "appendonly yes\nrdb-version-check relaxed", V8_1));
}

#[test]
fn what_is_no_snapshot_has_no_format() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!too_new(&folder, LOG, V8_1) && !too_new(&folder, SNAPSHOTS, V8_1), "nothing there");
    let folder = volume("*2\r\n$6\r\nSELECT", "");
    assert!(!too_new(&folder, LOG, V8_1) && !too_new(&folder, SNAPSHOTS, V8_1), "a log in plain text, an empty file");
    let folder = volume("VALKEYxyz", "");
    assert!(!too_new(&folder, LOG, V8_1));
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn data_is_moved_and_the_servers_name_stays() {
    let folder = volume("VALKEY080", "VALKEY080");
    let aside = set_aside(folder.path()).unwrap();
    assert_eq!(names(&aside), [LOGS, SNAPSHOT]);
    assert_eq!(names(&aside.join(LOGS)).len(), 4, "all of the log");
    assert_eq!(fs::read(aside.join(SNAPSHOT)).unwrap(), snapshot("VALKEY080"));
    assert_eq!(names(folder.path()), ["nodes.conf", aside.file_name().unwrap().to_str().unwrap()]);
}

#[test]
fn only_the_newest_is_kept() {
    let folder = volume("VALKEY080", "first");
    fs::create_dir(folder.path().join("set-aside-1")).unwrap();
    fs::write(folder.path().join("set-aside-1/dump.rdb"), "older").unwrap();
    let aside = set_aside(folder.path()).unwrap();
    assert_eq!(names(folder.path()), ["nodes.conf", aside.file_name().unwrap().to_str().unwrap()]);
    assert_eq!(fs::read(aside.join(SNAPSHOT)).unwrap(), snapshot("first"));
}

#[test]
fn an_attempt_that_was_interrupted_is_finished_and_nothing_of_it_is_lost() {
    let folder = volume("VALKEY080", "VALKEY080");
    let unfinished = folder.path().join(UNFINISHED);
    fs::create_dir(&unfinished).unwrap();
    fs::rename(folder.path().join(SNAPSHOT), unfinished.join(SNAPSHOT)).unwrap();
    let aside = set_aside(folder.path()).unwrap();
    assert_eq!(names(&aside), [LOGS, SNAPSHOT]);
    assert!(!unfinished.exists());
}

#[test]
fn data_that_came_after_an_interrupted_attempt_does_not_mix_with_it() {
    let folder = volume("VALKEY080", "second");
    let unfinished = folder.path().join(UNFINISHED);
    fs::create_dir_all(unfinished.join(LOGS)).unwrap();
    fs::write(unfinished.join(SNAPSHOT), "first").unwrap();
    let aside = set_aside(folder.path()).unwrap();
    assert_eq!(fs::read(aside.join(SNAPSHOT)).unwrap(), snapshot("second"));
}
