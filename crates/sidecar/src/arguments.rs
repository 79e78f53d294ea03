use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use valkey_pki::TrustDomain;
use valkey_rpc::ReportUrl;
use valkey_runtime::process::Options;

/// Looks after one Valkey server, from inside its pod
#[derive(Debug, Parser)]
#[command(version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look after the server of this pod, until told to end
    Run(Box<RunArguments>),
    /// Put the launcher where the Valkey container finds it
    InstallLauncher(InstallArguments),
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// The cluster that this pod belongs to
    #[arg(long)]
    pub cluster: String,
    /// The shard that this pod belongs to
    #[arg(long)]
    pub shard: u16,
    /// Where the operator lives: only that one may give orders
    #[arg(long)]
    pub operator_namespace: String,
    /// The realm of the identities in certificates
    #[arg(long)]
    pub trust_domain: TrustDomain,
    /// Where the operator takes reports, as in https://host:port
    #[arg(long)]
    pub report_url: Option<ReportUrl>,
    /// Where orders of the operator are taken
    #[arg(long, default_value = "0.0.0.0:7380")]
    pub grpc_addr: SocketAddr,
    /// Shared with the Valkey container, in memory
    #[arg(long, default_value = "/run/valkey")]
    pub run_dir: PathBuf,
    /// The server's data
    #[arg(long, default_value = "/data")]
    pub data_dir: PathBuf,
    /// Where configuration, users and certificates are mounted, in the folders config, users and certs
    #[arg(long, default_value = "/etc/valkey-operator")]
    pub mounts: PathBuf,
    #[arg(long, env = "POD_NAME")]
    pub pod_name: String,
    #[arg(long, env = "POD_NAMESPACE")]
    pub pod_namespace: String,
    #[arg(long, env = "POD_IP")]
    pub pod_ip: IpAddr,
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub node_name: String,
    #[command(flatten)]
    pub process: Options,
}

#[derive(Debug, Args)]
pub struct InstallArguments {
    /// Where to put it
    pub target: PathBuf,
    /// Where it is
    #[arg(long, default_value = "/usr/bin/valkey-launcher")]
    pub from: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Arguments::command().debug_assert();
    }
}
