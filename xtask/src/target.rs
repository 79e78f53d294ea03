//! Where our programs are tried out: the local cluster, or one that the user brings.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::images::Image;
use crate::progress::Step;
use crate::{cluster, shell, tools};

#[derive(Debug)]
pub enum Target {
    Local {
        name: &'static str,
    },
    /// The cluster of the user's kubeconfig; images go through a registry that it can pull from.
    Yours {
        kubeconfig: PathBuf,
        registry: String,
    },
}

impl Target {
    /// A registry means that the user's own cluster is meant; a kubeconfig alone does not, many have one set all day.
    pub fn choose(registry: Option<&str>) -> Result<Self> {
        let Some(registry) = registry else {
            return Ok(Self::Local { name: cluster::DEFAULT_NAME });
        };
        let kubeconfig = std::env::var_os("KUBECONFIG").map(PathBuf::from).with_context(|| {
            format!("REGISTRY={registry} is for a cluster of your own; set KUBECONFIG to its kubeconfig too")
        })?;
        if !kubeconfig.is_file() {
            bail!("KUBECONFIG={} is no file", kubeconfig.display());
        }
        Ok(Self::Yours { kubeconfig, registry: registry.trim_end_matches('/').to_owned() })
    }

    /// Makes sure that there is a cluster to talk to.
    pub fn ensure(&self) -> Result<()> {
        match self {
            Self::Local { name } => cluster::up(name),
            Self::Yours { .. } => shell::run(self.kubectl()?.args(["get", "--raw=/readyz"])),
        }
    }

    /// The prefix of the names of images that we build.
    pub fn registry(&self) -> &str {
        match self {
            Self::Local { .. } => "localhost",
            Self::Yours { registry, .. } => registry,
        }
    }

    pub fn kubeconfig(&self) -> Result<PathBuf> {
        match self {
            Self::Local { name } => cluster::kubeconfig(name),
            Self::Yours { kubeconfig, .. } => Ok(kubeconfig.clone()),
        }
    }

    pub fn kubectl(&self) -> Result<Command> {
        let own = || Ok::<_, anyhow::Error>(tools::KUBERNETES.ensure()?.join("kubectl"));
        let program = match self {
            Self::Local { .. } => own()?,
            Self::Yours { .. } => shell::find("kubectl").map_or_else(own, Ok)?,
        };
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(self.kubeconfig()?);
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
            Self::Yours { registry, .. } => {
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
