//! Puts together what the server reads when it starts.

use std::io;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use valkey_model::Settings;

use crate::conf::{self, Listener};
use crate::files::{PRIVATE, named, replace};
use crate::mounts::{Keypair, Mounts};
use crate::pod::Pod;

/// The folder that sidecar and server share, in memory.
#[derive(Clone, Debug)]
pub struct RunDir(PathBuf);

const SETTINGS: &str = "settings.conf";

/// What the server was given.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// `None` if it speaks without TLS.
    pub tls: Option<Keypair>,
    pub users: SecretString,
}

impl RunDir {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where the server listens for us.
    pub fn server_socket(&self) -> PathBuf {
        self.0.join("valkey.sock")
    }

    /// Where we listen for the launcher.
    pub fn launcher_socket(&self) -> PathBuf {
        self.0.join("launcher.sock")
    }

    /// Certificate, key and CA, in the names of the settings that point to them.
    pub fn tls_settings(&self) -> [(&'static str, PathBuf); 3] {
        let files = [("tls-cert-file", "tls.crt"), ("tls-key-file", "tls.key"), ("tls-ca-cert-file", "ca.crt")];
        files.map(|(setting, file)| (setting, self.0.join(file)))
    }

    /// Everything for the next start of the server.
    pub fn prepare(&self, mounts: &Mounts, pod: &Pod, data: &Path) -> io::Result<Prepared> {
        let mut common = mounts.valkey_conf()?;
        // An operator that does not tell them apart gives none to a running server.
        let settings = Settings::of_conf(&common).unwrap_or_default();
        let was_in_a_cluster = data.join("nodes.conf").exists();
        if !was_in_a_cluster {
            common += &mounts.first_start_conf()?;
        }
        let tls = match conf::listener(&common) {
            Listener::Plain(_) => None,
            Listener::Tls(_) => Some(mounts.tls()?),
        };
        if let Some(keypair) = &tls {
            self.write_tls(keypair)?;
        }
        let users = mounts.users()?;
        self.write_users(&users)?;
        let text = conf::for_pod(&common, pod, &mounts.replication_password()?);
        self.write("valkey.conf", &text)?;
        self.write_settings(&settings)?;
        Ok(Prepared { tls, users })
    }

    pub fn write_tls(&self, keypair: &Keypair) -> io::Result<()> {
        let Keypair { chain, key, ca } = keypair;
        // The key first: a server that starts in between fails and is started again, rather than serve with a wrong pair.
        self.write("tls.key", key)?;
        self.write("tls.crt", &chain.clone().into())?;
        self.write("ca.crt", &ca.clone().into())
    }

    pub fn write_users(&self, users: &SecretString) -> io::Result<()> {
        self.write("users.acl", users)
    }

    /// What the server was given last of the settings that it takes while it runs.
    pub fn write_settings(&self, settings: &Settings) -> io::Result<()> {
        self.write(SETTINGS, &settings.to_conf().into())
    }

    /// `None` if no server was started yet.
    pub fn settings(&self) -> io::Result<Option<Settings>> {
        let path = self.0.join(SETTINGS);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Settings::of_conf(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named(&path, &error)),
        }
    }

    fn write(&self, name: &str, content: &SecretString) -> io::Result<()> {
        replace(&self.0.join(name), content.expose_secret().as_bytes(), PRIVATE)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;
    use crate::pod::tests::pod;

    fn mounted(conf: &str) -> (TempDir, Mounts, RunDir) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("config/valkey.conf", conf),
            ("config/first-start.conf", "cluster-node-timeout \"1000\"\n"),
            ("users/users.acl", "user default off\n"),
            ("users/admin-password", "admin"),
            ("users/replication-password", "replica\n"),
            ("certs/orders-2-1.tls.crt", "chain"),
            ("certs/orders-2-1.tls.key", "key"),
            ("certs/tls-ca.crt", "ca"),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::create_dir(folder.path().join("run")).unwrap();
        let mounts = Mounts::new(folder.path(), "orders-2-1");
        let run = RunDir::new(folder.path().join("run"));
        (folder, mounts, run)
    }

    #[test]
    fn a_server_with_tls_gets_all_its_files_and_nobody_else_may_read_them() {
        let (folder, mounts, run) = mounted("tls-port 6379\n");
        run.prepare(&mounts, &pod(), folder.path()).unwrap();
        for (name, word) in [
            ("tls.crt", "chain"),
            ("tls.key", "key"),
            ("ca.crt", "ca"),
            ("users.acl", "default off"),
            ("valkey.conf", "primaryauth \"replica\""),
        ] {
            let path = folder.path().join("run").join(name);
            assert!(fs::read_to_string(&path).unwrap().contains(word), "{name}");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_server_without_tls_needs_no_certificate() {
        let (folder, mounts, run) = mounted("port 6379\n");
        fs::remove_dir_all(folder.path().join("certs")).unwrap();
        assert!(run.prepare(&mounts, &pod(), folder.path()).unwrap().tls.is_none());
    }

    #[test]
    fn which_settings_a_server_is_started_with_is_written_down() {
        let settings = Settings { mark: "0123".into(), values: [("maxmemory".into(), "1gb".into())].into() };
        let (folder, mounts, run) = mounted(&format!("port 6379\n{}", settings.to_conf()));
        assert_eq!(run.settings().unwrap(), None);
        run.prepare(&mounts, &pod(), folder.path()).unwrap();
        assert_eq!(run.settings().unwrap(), Some(settings));
        fs::write(folder.path().join("config/valkey.conf"), "port 6379\nmaxmemory 7\n").unwrap();
        run.prepare(&mounts, &pod(), folder.path()).unwrap();
        assert_eq!(run.settings().unwrap(), Some(Settings::default()));
    }

    #[test]
    fn what_is_not_mounted_is_named() {
        let (folder, mounts, run) = mounted("tls-port 6379\n");
        fs::remove_file(folder.path().join("certs/orders-2-1.tls.key")).unwrap();
        let error = run.prepare(&mounts, &pod(), folder.path()).unwrap_err();
        assert!(error.to_string().contains("orders-2-1.tls.key"), "{error}");
    }

    #[test]
    fn a_server_that_was_in_a_cluster_starts_with_the_real_time_out() {
        let (folder, mounts, run) = mounted("cluster-node-timeout 5000\n");
        let conf = || fs::read_to_string(folder.path().join("run/valkey.conf")).unwrap();
        run.prepare(&mounts, &pod(), folder.path()).unwrap();
        assert!(conf().contains("cluster-node-timeout \"1000\""));
        fs::write(folder.path().join("nodes.conf"), "").unwrap();
        run.prepare(&mounts, &pod(), folder.path()).unwrap();
        assert!(!conf().contains("1000"));
    }
}
