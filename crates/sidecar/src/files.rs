//! Files that others read while we write them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Only for the user that sidecar and server run as.
pub const PRIVATE: u32 = 0o600;

/// Puts the whole content there at once: a reader sees the old file or the new one, never a part.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace_by(path, mode, |file| file.write_all(content)).map_err(|error| named(path, &error))
}

/// The same with a content that is written piece by piece.
pub fn replace_by(path: &Path, mode: u32, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let temporary = path.with_added_extension("new");
    let _ = fs::remove_file(&temporary); // left behind by one of us that was killed
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    write(&mut file)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?; // whatever the umask took away
    drop(file); // a program that is open for writing cannot be started
    fs::rename(&temporary, path)
}

/// An error that says which file it is about.
pub fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tls.key");
        fs::write(folder.path().join("tls.key.new"), "left behind").unwrap();
        for content in ["old", "new"] {
            replace(&path, content.as_bytes(), PRIVATE).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_file() {
        let error = replace(Path::new("/nowhere/tls.key"), b"", PRIVATE).unwrap_err();
        assert!(error.to_string().contains("/nowhere/tls.key"), "{error}");
    }
}
