//! The folder of a report.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Debug)]
pub struct Folder {
    pub path: PathBuf,
}

impl Folder {
    pub fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path: path.to_owned() })
    }

    /// Keeps a part of the report, or the reason why there is none. Files are small and this is the last thing a test
    /// does, so writing them need not be asynchronous.
    pub fn keep(&self, file: &str, content: Result<String>) {
        let text = content.unwrap_or_else(|error| format!("this part could not be collected: {error:#}\n"));
        let path = self.path.join(file);
        let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) = parent.and_then(|()| fs::write(&path, text)) {
            eprintln!("cannot write {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_fails_leaves_its_reason_behind() {
        let folder = Folder::create(&std::env::temp_dir().join(format!("e2e-report-{}", std::process::id()))).unwrap();
        folder.keep("logs/a.log", Ok("fine".into()));
        folder.keep("b.txt", Err(anyhow::anyhow!("not today")));
        assert_eq!(fs::read_to_string(folder.path.join("logs/a.log")).unwrap(), "fine");
        let reason = fs::read_to_string(folder.path.join("b.txt")).unwrap();
        assert_eq!(reason, "this part could not be collected: not today\n");
        fs::remove_dir_all(&folder.path).unwrap();
    }
}
