//! The programs that the local cluster is made of, built from pinned Go modules into the cache.
//!
//! Versions live in `xtask/tools/*/go.mod` and nowhere else. A set of programs is built into a folder whose name
//! carries a digest of everything that it is built from: same inputs, nothing to do, no network needed.

mod golang;
mod pause;

use std::path::{Path, PathBuf};

use anyhow::Result;

pub use pause::pause;

use crate::paths;

/// A Go module under `xtask/tools` and the programs built from it.
#[derive(Debug, Clone, Copy)]
pub struct Module {
    pub name: &'static str,
    programs: &'static [Program],
}

#[derive(Debug, Clone, Copy)]
struct Program {
    name: &'static str,
    package: &'static str,
}

const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package }
}

/// One module for all that uses client-go: it is compiled once.
pub const KUBERNETES: Module = Module {
    name: "kube",
    programs: &[
        program("etcd", "go.etcd.io/etcd/server/v3"),
        program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        program("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
        program("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
        program("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        program("coredns", "./coredns"),
        program("helm", "helm.sh/helm/v4/cmd/helm"),
    ],
};

pub const CONTAINERD: Module = Module {
    name: "containerd",
    programs: &[
        program("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
        program("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
        program("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
    ],
};

pub const CERT_MANAGER: Module = Module {
    name: "cert-manager",
    programs: &[
        program("cert-manager-controller", "github.com/cert-manager/cert-manager/cmd/controller"),
        program("cert-manager-webhook", "github.com/cert-manager/cert-manager/cmd/webhook"),
        program("cert-manager-cainjector", "github.com/cert-manager/cert-manager/cmd/cainjector"),
    ],
};

/// Pushes images to a registry; only for those who bring a cluster of their own.
pub const CRANE: Module =
    Module { name: "crane", programs: &[program("crane", "github.com/google/go-containerregistry/cmd/crane")] };

/// What a running cluster needs at hand.
#[derive(Debug, Clone)]
pub struct Toolbox {
    pub kubernetes: PathBuf,
    pub containerd: PathBuf,
    pub pause: PathBuf,
}

impl Toolbox {
    /// Builds what is not in the cache yet.
    pub fn ensure() -> Result<Self> {
        Ok(Self { kubernetes: KUBERNETES.ensure()?, containerd: CONTAINERD.ensure()?, pause: pause()? })
    }

    /// Whether everything is there already, so that the cheap preconditions apply.
    pub fn is_built() -> bool {
        [KUBERNETES, CONTAINERD].iter().all(Module::is_built)
    }

    pub fn kubectl(&self) -> PathBuf {
        self.kubernetes.join("kubectl")
    }

    /// `PATH` with these tools first.
    pub fn path(&self) -> String {
        let inherited = std::env::var("PATH").unwrap_or_default();
        // runc, nft and ip are in the system folders, which a user's PATH may lack.
        format!("{}:{}:{inherited}:/usr/sbin:/sbin", self.kubernetes.display(), self.containerd.display())
    }
}

impl Module {
    /// The folder with the module's programs, built now if they are not there yet.
    pub fn ensure(&self) -> Result<PathBuf> {
        let folder = self.folder()?;
        for program in self.programs {
            let target = folder.join(program.name);
            if !target.exists() {
                golang::build(self, program, &target)?;
            }
        }
        Ok(folder)
    }

    fn is_built(&self) -> bool {
        self.folder().is_ok_and(|folder| self.programs.iter().all(|program| folder.join(program.name).exists()))
    }

    fn folder(&self) -> Result<PathBuf> {
        let key = golang::key(self)?;
        Ok(paths::cache()?.join("tools").join(format!("{}-{key}", self.name)))
    }

    /// Where the module's `go.mod` lies.
    pub fn source(&self) -> PathBuf {
        paths::workspace().join("xtask/tools").join(self.name)
    }

    /// The version that `go.mod` pins for one of its requirements, such as `v1.36.4` for `k8s.io/kubernetes`.
    pub fn pinned(&self, requirement: &str) -> Result<String> {
        golang::pinned(&std::fs::read_to_string(self.source().join("go.mod"))?, requirement)
    }

    /// The module cache's copy of a requirement, for what is shipped as source (charts, CRDs).
    pub fn checkout(&self, requirement: &str) -> Result<PathBuf> {
        golang::checkout(&self.source(), requirement)
    }
}

/// Makes `target` appear whole or not at all: `write` fills a file beside it, which is then renamed.
pub fn appear(target: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = target.with_file_name(name);
    write(&partial)?;
    std::fs::rename(&partial, target)?;
    Ok(())
}
