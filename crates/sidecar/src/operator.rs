//! Both directions of the talk with the operator.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use valkey_pki::{SpiffeId, identity_of};
use valkey_rpc::{Event, Refusal, Reloadable, ReportUrl, Reporter, ServerTls, serve};

use crate::certificates::{first_credentials, keep_credentials};
use crate::commands::Commands;
use crate::context::Context;
use crate::reports::report;

/// What the talk needs.
pub struct Wire {
    pub listener: TcpListener,
    /// Who may give orders, and whom reports go to.
    pub operator: SpiffeId,
    pub reports: Option<(ReportUrl, UnboundedReceiver<Event>)>,
}

/// Talks to the operator from the moment on at which there is a certificate to show.
pub async fn talk(context: Arc<Context>, wire: Wire) {
    let Wire { listener, operator, reports } = wire;
    let (keypair, credentials) = first_credentials(&context).await;
    let credentials = Reloadable::new(credentials);
    let name = operator.to_string();
    let tls = ServerTls::new(credentials.clone(), move |leaf| match identity_of(leaf) {
        Ok(caller) if caller == operator => Ok(()),
        Ok(caller) => Err(Refusal(format!("{caller} is not the operator"))),
        Err(error) => Err(Refusal(error.to_string())),
    })
    .counting(context.refusals.clone());
    let commands = Arc::new(Commands { context: context.clone(), credentials: credentials.clone() });
    if let Some((url, events)) = reports {
        tokio::spawn(report(context.clone(), Reporter::new(url, credentials.clone(), name), events));
    }
    tokio::join!(serve(&listener, &tls, commands), keep_credentials(&context, keypair, credentials));
}
