//! Where our programs are tried out: the local cluster, or one that the user brings.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::images::Image;
use crate::progress::Step;
use crate::{cluster, shell, tools};

#[derive(Debug)]
pub enum Target {
    Local {
        name: String,
    },
    /// The cluster of the user's kubeconfig; images go through a registry that it can pull from.
    Yours {
        registry: String,
    },
}

impl Target {
    /// A registry means that the user's own cluster is meant; a kubeconfig alone does not, many have one set all day.
    pub fn choose(registry: Option<&str>) -> Result<Self> {
        let Some(registry) = registry else {
            return Ok(Self::local(cluster::DEFAULT_NAME));
        };
        if std::env::var_os("KUBECONFIG").is_none_or(|kubeconfig| kubeconfig.is_empty()) {
            bail!("REGISTRY={registry} is for a cluster of your own; set KUBECONFIG to its kubeconfig too");
        }
        Ok(Self::Yours { registry: registry.trim_end_matches('/').to_owned() })
    }

    pub fn local(name: &str) -> Self {
        Self::Local { name: name.to_owned() }
    }

    /// Makes sure that there is a cluster to talk to.
    pub fn ensure(&self) -> Result<()> {
        match self {
            Self::Local { name } => cluster::up(name),
            Self::Yours { .. } => shell::run(self.kubectl()?.args(["get", "--raw=/readyz"]))
                .context("the cluster in KUBECONFIG does not answer; try `kubectl get nodes`"),
        }
    }

    /// The prefix of the names of images that we build.
    pub fn registry(&self) -> &str {
        match self {
            Self::Local { .. } => "localhost",
            Self::Yours { registry } => registry,
        }
    }

    pub fn kubectl(&self) -> Result<Command> {
        let own = || Ok::<_, anyhow::Error>(tools::KUBERNETES.ensure()?.join("kubectl"));
        match self {
            Self::Local { name } => {
                let mut command = Command::new(own()?);
                command.arg("--kubeconfig").arg(cluster::kubeconfig(name)?);
                Ok(command)
            }
            // It finds KUBECONFIG by itself, which may be a list.
            Self::Yours { .. } => Ok(Command::new(shell::find("kubectl").map_or_else(own, Ok)?)),
        }
    }

    pub fn helm(&self) -> Result<Command> {
        let mut command = Command::new(tools::KUBERNETES.ensure()?.join("helm"));
        if let Self::Local { name } = self {
            command.arg("--kubeconfig").arg(cluster::kubeconfig(name)?);
        }
        Ok(command)
    }

    /// Makes an image available to the cluster's nodes.
    pub fn provide(&self, image: &Image) -> Result<()> {
        let short = image.reference.rsplit('/').next().unwrap_or_default();
        match self {
            Self::Local { name } => {
                let step = Step::start(format!("load {short}"));
                cluster::load(name, image)?;
                step.done("");
            }
            Self::Yours { registry } => {
                let crane = tools::CRANE.ensure()?.join("crane");
                let step = Step::start(format!("push {short}"));
                shell::run(Command::new(crane).arg("push").arg(&image.archive).arg(&image.reference)).with_context(
                    || format!("cannot push to {registry}; log in with `docker login` or `crane auth login`"),
                )?;
                step.done(&image.reference);
            }
        }
        Ok(())
    }

    pub fn apply(&self, manifest: &str) -> Result<()> {
        shell::feed(self.kubectl()?.args(["apply", "--server-side", "--filename=-"]), manifest.as_bytes()).map(drop)
    }
}
