//! A file system tree that packs to the same bytes whatever order it was put together in.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// Who owns a file; everything else of a file's history (times, names of owners) is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(pub u64);

pub const ROOT: Owner = Owner(0);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Directory { mode: u32, owner: Owner },
    File { mode: u32, content: Vec<u8> },
    Link { target: PathBuf },
}

#[derive(Debug, Default)]
pub struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Tree {
    pub fn directory(&mut self, path: &str, mode: u32, owner: Owner) {
        self.entries.insert(path.into(), Entry::Directory { mode, owner });
    }

    pub fn file(&mut self, path: impl Into<PathBuf>, mode: u32, content: Vec<u8>) {
        let path = path.into();
        self.make_parents(&path);
        self.entries.insert(path, Entry::File { mode, content });
    }

    pub fn link(&mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) {
        let path = path.into();
        self.make_parents(&path);
        self.entries.insert(path, Entry::Link { target: target.into() });
    }

    /// `None` if there is nothing by the old name.
    pub fn rename(&mut self, from: &str, to: &str) -> Option<()> {
        let entry = self.entries.remove(Path::new(from))?;
        self.entries.insert(to.into(), entry);
        Some(())
    }

    pub fn contains(&self, path: &str) -> bool {
        self.entries.contains_key(Path::new(path))
    }

    fn make_parents(&mut self, path: &Path) {
        for folder in path.ancestors().skip(1).filter(|folder| *folder != Path::new("")) {
            let empty = Entry::Directory { mode: 0o755, owner: ROOT };
            self.entries.entry(folder.to_path_buf()).or_insert(empty);
        }
    }

    /// Puts the files of a tar stream into the tree that `keep` wants, with `bin`, `sbin` and `lib` moved below `usr`,
    /// where the links of [`Tree::merge_usr`] find them.
    pub fn unpack(&mut self, tar: impl Read, keep: impl Fn(&Path) -> bool) -> Result<()> {
        let mut archive = tar::Archive::new(tar);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = usr_merged(&entry.path()?)?;
            if !keep(&path) {
                continue;
            }
            let mode = entry.header().mode()? & 0o777;
            match entry.header().entry_type() {
                tar::EntryType::Regular => {
                    let mut content = Vec::new();
                    entry.read_to_end(&mut content)?;
                    self.file(path, mode, content);
                }
                tar::EntryType::Symlink => {
                    let target = entry.link_name()?.context("a link without a target")?.into_owned();
                    self.link(path, target);
                }
                tar::EntryType::Link => {
                    let target = usr_merged(&entry.link_name()?.context("a link without a target")?)?;
                    let linked = self.entries.get(&target).cloned();
                    let linked = linked.with_context(|| format!("{} links to nothing", path.display()))?;
                    self.make_parents(&path);
                    self.entries.insert(path, linked);
                }
                tar::EntryType::Directory => {}
                other => bail!("{} is a {other:?}, which images here do not carry", path.display()),
            }
        }
        Ok(())
    }

    /// `/bin`, `/lib` and so on as links into `/usr`, as on every current Debian.
    pub fn merge_usr(&mut self) {
        for folder in ["bin", "sbin", "lib", "lib64"] {
            self.link(folder, format!("usr/{folder}"));
        }
    }

    /// Of the bytes that [`Tree::write`] gives.
    pub fn digest(&self) -> Result<String> {
        let mut tar = Vec::new();
        self.write(&mut tar)?;
        Ok(super::hex(&Sha256::digest(&tar)))
    }

    pub fn write(&self, out: impl Write) -> Result<()> {
        let mut tar = tar::Builder::new(out);
        for (path, entry) in &self.entries {
            let mut header = tar::Header::new_ustar();
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(0);
            match entry {
                Entry::Directory { mode, owner } => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_uid(owner.0);
                    header.set_gid(owner.0);
                    tar.append_data(&mut header, path, std::io::empty())?;
                }
                Entry::File { mode, content } => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(u64::try_from(content.len())?);
                    tar.append_data(&mut header, path, content.as_slice())?;
                }
                Entry::Link { target } => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    tar.append_link(&mut header, path, target)?;
                }
            }
        }
        tar.finish()?;
        Ok(())
    }
}

/// `./bin/sh` → `usr/bin/sh`; refuses what would climb out of the tree.
fn usr_merged(path: &Path) -> Result<PathBuf> {
    let mut merged = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => {
                let first = merged.as_os_str().is_empty();
                if first && ["bin", "sbin", "lib", "lib64"].iter().any(|folder| name == *folder) {
                    merged.push("usr");
                }
                merged.push(name);
            }
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => bail!("{} leaves the tree", path.display()),
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(tree: &Tree) -> Vec<u8> {
        let mut out = Vec::new();
        tree.write(&mut out).unwrap();
        out
    }

    #[test]
    fn the_same_files_pack_to_the_same_bytes_in_any_order() {
        let (mut one, mut other) = (Tree::default(), Tree::default());
        one.file("usr/bin/a", 0o755, b"a".to_vec());
        one.merge_usr();
        one.directory("data", 0o755, Owner(999));
        other.directory("data", 0o755, Owner(999));
        other.merge_usr();
        other.file("usr/bin/a", 0o755, b"a".to_vec());
        assert_eq!(bytes(&one), bytes(&other));
    }

    #[test]
    fn packing_and_unpacking_keeps_files_links_and_modes() {
        let mut tree = Tree::default();
        tree.file("usr/bin/a", 0o755, b"a".to_vec());
        tree.link("usr/bin/b", "a");
        let mut again = Tree::default();
        again.unpack(bytes(&tree).as_slice(), |_| true).unwrap();
        assert_eq!(bytes(&tree), bytes(&again));
    }

    #[test]
    fn files_outside_usr_move_below_it() {
        assert_eq!(usr_merged(Path::new("./bin/sh")).unwrap(), Path::new("usr/bin/sh"));
        assert_eq!(usr_merged(Path::new("./lib/x/bin/y")).unwrap(), Path::new("usr/lib/x/bin/y"));
        assert_eq!(usr_merged(Path::new("etc/passwd")).unwrap(), Path::new("etc/passwd"));
        assert!(usr_merged(Path::new("../etc/passwd")).is_err());
    }
}
