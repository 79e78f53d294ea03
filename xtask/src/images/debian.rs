//! Debian packages as building blocks of images, fetched by apt into a private corner of the cache.
//!
//! Nothing is installed on this machine and no right of root is needed: apt resolves and verifies, `dpkg-deb` unpacks.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::layer::Tree;
use crate::progress::Step;
use crate::{paths, shell};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A place to take packages from: one Debian release, or one with additions.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    pub name: &'static str,
    pub additions: &'static [&'static str],
}

/// A package file, verified by apt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    file: PathBuf,
}

impl Suite {
    /// The packages and everything that they depend on, downloaded.
    pub fn fetch(&self, wanted: &[&str], step: &mut Step) -> Result<Vec<Package>> {
        for tool in ["apt-get", "dpkg-deb"] {
            if shell::find(tool).is_none() {
                bail!(
                    "images are made from Debian packages, but {tool} is not installed; use a Debian or Ubuntu machine"
                );
            }
        }
        let corner = paths::cache()?.join("debian").join(self.name);
        let packages = corner.join("archives");
        std::fs::create_dir_all(packages.join("partial"))?;
        std::fs::create_dir_all(corner.join("lists/partial"))?;
        std::fs::write(corner.join("status"), "")?;
        std::fs::write(corner.join("sources.list"), self.sources(&mirror()?))?;
        let log = paths::logs()?.join(format!("apt-{}.log", self.name));
        shell::logged(apt(&corner).arg("update"), &log, |line| step.say(line))?;
        // apt names only what it would still have to fetch: ask as if nothing was there.
        let nothing = corner.join("nothing");
        std::fs::create_dir_all(nothing.join("partial"))?;
        let mut resolve = apt(&corner);
        resolve.arg("-o").arg(format!("Dir::Cache::archives={}", nothing.display()));
        resolve.args(["--yes", "--no-install-recommends", "--print-uris", "install"]).args(wanted);
        let uris = shell::output(&mut resolve)?;
        let mut download = apt(&corner);
        download.args(["--yes", "--no-install-recommends", "--download-only", "install"]).args(wanted);
        shell::logged(&mut download, &log.with_extension("download.log"), |line| step.say(line))?;
        file_names(&uris).map(|name| Package::read(packages.join(name))).collect()
    }

    fn sources(&self, mirror: &str) -> String {
        // The newest Release file may be past its date on a mirror that is itself a snapshot.
        let line = |suite: &&str| format!("deb [signed-by={KEYRING} check-valid-until=no] {mirror} {suite} main");
        let lines: Vec<_> = std::iter::once(&self.name).chain(self.additions).map(line).collect();
        lines.join("\n") + "\n"
    }
}

/// `'http://…/x_1%3a2_amd64.deb' x_1%3a2_amd64.deb 1234 SHA256:…` → `x_1%3a2_amd64.deb`.
fn file_names(uris: &str) -> impl Iterator<Item = &str> {
    uris.lines().filter(|line| line.starts_with('\'')).filter_map(|line| line.split_whitespace().nth(1))
}

fn apt(corner: &Path) -> Command {
    let mut command = Command::new("apt-get");
    let option = |name: &str, value: String| format!("{name}={value}");
    let within = |name: &str| corner.join(name).display().to_string();
    for option in [
        option("Dir::State::lists", within("lists")),
        option("Dir::State::status", within("status")),
        option("Dir::State::extended_states", within("extended")),
        option("Dir::Cache", within("")),
        option("Dir::Cache::archives", within("archives")),
        option("Dir::Etc::sourcelist", within("sources.list")),
        option("Dir::Etc::sourceparts", "/dev/null".to_owned()),
        option("Dir::Etc::preferencesparts", "/dev/null".to_owned()),
        option("APT::Sandbox::User", "root".to_owned()),
        option("Debug::NoLocking", "true".to_owned()),
    ] {
        command.arg("-o").arg(option);
    }
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    command
}

/// The mirror that this machine's apt uses already, or the one in `DEBIAN_MIRROR`.
fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var("DEBIAN_MIRROR") {
        return Ok(mirror);
    }
    let parts = std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let files = std::iter::once(PathBuf::from("/etc/apt/sources.list")).chain(parts);
    let texts: Vec<_> = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    texts
        .iter()
        .find_map(|text| find_mirror(text))
        .context("no Debian mirror is named in this machine's apt sources; set DEBIAN_MIRROR to one")
}

fn find_mirror(sources: &str) -> Option<String> {
    sources
        .lines()
        .filter(|line| line.starts_with("URIs:") || line.starts_with("deb "))
        .flat_map(str::split_whitespace)
        .find(|word| word.trim_end_matches('/').ends_with("/debian"))
        .map(str::to_owned)
}

impl Package {
    fn read(file: PathBuf) -> Result<Self> {
        let shown = shell::output(
            Command::new("dpkg-deb").args(["--showformat", "${Package} ${Version}", "--show"]).arg(&file),
        )?;
        let (name, version) = shown.split_once(' ').with_context(|| format!("{} has no version", file.display()))?;
        Ok(Self { name: name.to_owned(), version: version.trim().to_owned(), file })
    }

    /// The version of the program inside: `1:9.1.2+dfsg1-1` → `9.1.2`.
    pub fn upstream_version(&self) -> &str {
        let version = self.version.split_once(':').map_or(self.version.as_str(), |(_, version)| version);
        version.split(['+', '-', '~']).next().unwrap_or(version)
    }

    /// Adds those of the package's files to `tree` that `keep` wants.
    pub fn unpack(&self, tree: &mut Tree, keep: impl Fn(&Path) -> bool) -> Result<()> {
        let mut command = Command::new("dpkg-deb");
        let mut child = command.arg("--fsys-tarfile").arg(&self.file).stdout(Stdio::piped()).spawn()?;
        let mut stream = child.stdout.take().context("dpkg-deb has no output")?;
        tree.unpack(&mut stream, keep).with_context(|| format!("cannot unpack {}", self.file.display()))?;
        std::io::copy(&mut stream, &mut std::io::sink())?;
        if !child.wait()?.success() {
            bail!("dpkg-deb cannot read {}", self.file.display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_either_kind_of_sources_file_is_found() {
        let deb822 = "Types: deb\n# URIs: nowhere\nURIs: http://mirror/debian-security\n\nTypes: deb\nURIs: http://mirror/debian\n";
        assert_eq!(find_mirror(deb822).as_deref(), Some("http://mirror/debian"));
        assert_eq!(
            find_mirror("deb [arch=amd64] http://m/debian/ bookworm main\n").as_deref(),
            Some("http://m/debian/")
        );
        assert_eq!(find_mirror("deb http://m/ubuntu noble main\n"), None);
    }

    #[test]
    fn the_upstream_version_is_what_stands_between_epoch_and_revision() {
        let package =
            |version: &str| Package { name: String::new(), version: version.to_owned(), file: PathBuf::new() };
        assert_eq!(package("9.1.2+dfsg1-1").upstream_version(), "9.1.2");
        assert_eq!(package("8.0.1+dfsg1-1~bpo12+1").upstream_version(), "8.0.1");
        assert_eq!(package("1:2.36-9").upstream_version(), "2.36");
    }

    #[test]
    fn only_lines_with_addresses_name_packages() {
        let printed = "Reading package lists...\n'http://m/pool/libc6_2_amd64.deb' libc6_2_amd64.deb 12 SHA256:0\n";
        assert_eq!(file_names(printed).collect::<Vec<_>>(), ["libc6_2_amd64.deb"]);
    }
}
