//! Data that a newer release has written: how it is recognised, and how it is put aside.
//!
//! Valkey refuses a snapshot of a newer format and ends, again and again. The format is in the first bytes of the file: `REDIS0011` up to
//! 8.1, `VALKEY080` from 9.0 on. With a log of writes the snapshot at its beginning counts, which its manifest names.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use valkey_model::Version;

use crate::conf;
use crate::files::named;

/// The format of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Format(u16);

const LOGS: &str = "appendonlydir";
const SNAPSHOT: &str = "dump.rdb";
/// What was put aside, with the time in seconds behind it.
const ASIDE: &str = "set-aside-";
/// What is being put aside.
const UNFINISHED: &str = "set-aside.new";

/// Whether the data that this server would read was written by a newer release.
pub fn is_too_new(folder: &Path, conf: &str, server: Version) -> io::Result<bool> {
    let Some(readable) = newest_readable(server) else { return Ok(false) };
    let file = match conf::logs_writes(conf) {
        true => base_of_log(folder)?,
        // This setting of 8.1 lets it try; it does not do so for the snapshot in a log.
        false if conf::ignores_format(conf) => None,
        false => Some(folder.join(SNAPSHOT)),
    };
    let format = file.map(|file| format_of(&file)).transpose()?.flatten();
    Ok(format.is_some_and(|format| format > readable))
}

/// `None` for releases that nobody knows yet.
fn newest_readable(server: Version) -> Option<Format> {
    match server.major {
        ..=8 => Some(Format(11)),
        9 => Some(Format(80)),
        10.. => None,
    }
}

/// The snapshot with which the log of writes begins, if there is one.
fn base_of_log(folder: &Path) -> io::Result<Option<PathBuf>> {
    let logs = folder.join(LOGS);
    let manifest = match fs::read_dir(&logs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?,
    };
    let is_manifest = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "manifest");
    let Some(manifest) = manifest.iter().find(is_manifest) else { return Ok(None) };
    let text = fs::read_to_string(manifest).map_err(|error| named(manifest, &error))?;
    Ok(text.lines().find_map(base_in).map(|name| logs.join(name)))
}

/// `file appendonly.aof.2.base.rdb seq 2 type b`.
fn base_in(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let after = |key| words.iter().skip_while(|word| **word != key).nth(1).copied();
    (after("type") == Some("b")).then(|| after("file")).flatten()
}

/// `None` for what is no snapshot: a log in plain text, or nothing at all.
fn format_of(file: &Path) -> io::Result<Option<Format>> {
    let mut head = String::new();
    let opened = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| named(file, &error))?,
    };
    match opened.take(9).read_to_string(&mut head) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
        Err(error) => return Err(named(file, &error)),
    }
    let number = head.strip_prefix("REDIS").or_else(|| head.strip_prefix("VALKEY"));
    Ok(number.and_then(|number| number.parse().ok()).map(Format))
}

/// Moves the data into a folder of its own on the same volume. Nothing is deleted but what was put aside before.
///
/// May be interrupted anywhere: what was moved already stays in the unfinished folder, and the next attempt goes on there.
pub fn set_aside(folder: &Path) -> io::Result<PathBuf> {
    let unfinished = folder.join(UNFINISHED);
    let collides = |name: &str| folder.join(name).exists() && unfinished.join(name).exists();
    if collides(SNAPSHOT) || collides(LOGS) {
        finish(folder)?; // left behind complete: what lies here now is newer
    }
    fs::create_dir_all(&unfinished).map_err(|error| named(&unfinished, &error))?;
    // The log last: as long as it is here, the next look finds that there is something to put aside.
    for name in [SNAPSHOT, LOGS] {
        let path = folder.join(name);
        if path.exists() {
            fs::rename(&path, unfinished.join(name)).map_err(|error| named(&path, &error))?;
        }
    }
    finish(folder)
}

/// Gives what was put aside its name, and takes away what was put aside before it: two copies more than needed may not fit.
fn finish(folder: &Path) -> io::Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let aside = folder.join(format!("{ASIDE}{seconds}"));
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(|error| named(&aside, &error))?;
    }
    fs::rename(folder.join(UNFINISHED), &aside).map_err(|error| named(&aside, &error))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ours = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(ASIDE));
        if ours && path != aside {
            fs::remove_dir_all(&path).map_err(|error| named(&path, &error))?;
        }
    }
    Ok(aside)
}

#[cfg(test)]
#[path = "set_aside_tests.rs"]
mod tests;
