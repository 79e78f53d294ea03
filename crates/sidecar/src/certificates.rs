//! Gives the running server what was mounted anew: certificates and users, without a restart.

use std::io;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::time::sleep;
use tracing::{info, warn};
use valkey_engine::Node;
use valkey_model::{NodeReport, Role};
use valkey_rpc::{Credentials, CredentialsError, Reloadable};

use crate::conf;
use crate::context::{Context, ReachError};
use crate::mounts::Keypair;
use crate::prepare::Prepared;

/// Kubernetes itself takes up to a minute to refresh a mount.
const LOOK: Duration = Duration::from_secs(10);
const UNTIL_IT_ANSWERS: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum MtlsError {
    #[error(transparent)]
    Mounts(#[from] io::Error),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

pub fn credentials(keypair: &Keypair) -> Result<Credentials, CredentialsError> {
    Credentials::from_pem(keypair.chain.as_bytes(), &keypair.key, keypair.ca.as_bytes())
}

/// Waits until there is a certificate to show to the operator.
pub async fn first_credentials(context: &Context) -> (Keypair, Credentials) {
    let mut said = String::new();
    loop {
        let loaded = context.mounts.mtls().map_err(MtlsError::from).and_then(|keypair| {
            let credentials = credentials(&keypair)?;
            Ok((keypair, credentials))
        });
        match loaded {
            Ok(loaded) => return loaded,
            Err(error) if error.to_string() == said => {}
            Err(error) => {
                warn!(%error, "the operator cannot be talked to");
                said = error.to_string();
            }
        }
        sleep(LOOK).await;
    }
}

/// Shows the operator a new certificate as soon as it is mounted.
pub async fn keep_credentials(context: &Context, mut shown: Keypair, credentials: Reloadable<Credentials>) {
    loop {
        sleep(LOOK).await;
        match context.mounts.mtls() {
            Ok(mounted) if mounted.is_like(&shown) => {}
            Ok(mounted) => match self::credentials(&mounted) {
                Ok(new) => {
                    credentials.replace(new);
                    shown = mounted;
                    info!("a new certificate is shown to the operator");
                }
                Err(error) => warn!(%error, "the new certificate cannot be used: the old one stays"),
            },
            Err(error) => warn!(%error, "the certificate cannot be read: the old one stays"),
        }
    }
}

/// Has the server read what changed. What does not work is tried again.
pub async fn keep_server(context: &Context) {
    loop {
        let report = context.board.view().report.filter(|report| !report.loading);
        if let Some(report) = &report
            && let Err(error) = refresh(context, report).await
        {
            warn!(%error, "the server cannot be given its new certificates or users");
        }
        sleep(if report.is_some() { LOOK } else { UNTIL_IT_ANSWERS }).await;
    }
}

async fn refresh(context: &Context, report: &NodeReport) -> Result<(), ReachError> {
    let before = context.in_use();
    let tls = match conf::listener(&context.mounts.valkey_conf()?) {
        conf::Listener::Plain(_) => None,
        conf::Listener::Tls(_) => Some(context.mounts.tls()?),
    };
    let users = context.mounts.users()?;
    let had = before.as_ref();
    let new_tls = tls.as_ref().filter(|tls| !had.and_then(|had| had.tls.as_ref()).is_some_and(|had| had.is_like(tls)));
    let same_users = had.is_some_and(|had| had.users.expose_secret() == users.expose_secret());
    if new_tls.is_none() && same_users {
        return Ok(());
    }
    let mut server = context.server().await?;
    if let Some(tls) = new_tls {
        reload_tls(context, &mut server, tls).await?;
    }
    // Until they can be loaded the old ones stay in use, and are compared with the new ones again.
    let users = match before.map(|before| before.users) {
        Some(old) if !same_users && !can_reload_users(report) => old,
        _ => {
            if !same_users {
                reload_users(context, &mut server, &users).await?;
            }
            users
        }
    };
    context.now_in_use(Prepared { tls, users });
    Ok(())
}

async fn reload_tls(context: &Context, server: &mut Node, tls: &Keypair) -> Result<(), ReachError> {
    context.run.write_tls(tls)?;
    let settings = context.run.tls_settings().map(|(name, path)| (name, path.to_string_lossy().into_owned()));
    // All three in one command, with the paths they had: Valkey reads the files again, and takes all or none.
    server.config_set(&settings.each_ref().map(|(name, path)| (*name, path.as_str()))).await?;
    info!("the server has a new certificate");
    Ok(())
}

async fn reload_users(context: &Context, server: &mut Node, users: &secrecy::SecretString) -> Result<(), ReachError> {
    context.run.write_users(users)?;
    server.reload_users().await?;
    let password = context.mounts.replication_password()?;
    server.config_set(&conf::replication(&password)).await?;
    info!("the server has new users");
    Ok(())
}

/// A replica of 8.0 crashes when it loads users.
fn can_reload_users(report: &NodeReport) -> bool {
    let old = (report.version.major, report.version.minor) <= (8, 0);
    !(old && report.role == Role::Replica)
}

#[cfg(test)]
mod tests {
    use valkey_model::Version;

    use super::*;
    use crate::view::tests::report;

    #[test]
    fn a_replica_of_8_0_keeps_its_users() {
        let can = |version, role| can_reload_users(&NodeReport { version, role, ..report() });
        assert!(!can(Version::new(8, 0, 1), Role::Replica));
        assert!(can(Version::new(8, 0, 1), Role::Primary));
        assert!(can(Version::new(8, 1, 1), Role::Replica));
    }
}
