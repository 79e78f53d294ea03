//! The operator's side of the contract.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use valkey_model::{Action, SlotKeys};

use crate::Reloadable;
use crate::convert::Malformed;
use crate::message::{Observed, Outcome};
use crate::proto::sidecar_client;
use crate::proto::{ExecuteRequest, ObserveRequest, WeighRequest};
use crate::tls::{Credentials, HTTP2, TlsError, client_config};

const CONNECT: Duration = Duration::from_secs(1);
const OBSERVE: Duration = Duration::from_secs(1);
const EXECUTE: Duration = Duration::from_secs(3);
/// A sidecar waits for four seconds until its server leads.
const HAND_OVER: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the sidecar at {address} cannot be reached: {reason}")]
    Unreachable { address: SocketAddr, reason: String },
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the sidecar did not answer within {0:?}")]
    Deadline(Duration),
    #[error("the sidecar cannot be asked: {0}")]
    Failed(String),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Opens connections to sidecars.
#[derive(Clone, Debug)]
pub struct Dialer {
    credentials: Reloadable<Credentials>,
}

impl Dialer {
    pub fn new(credentials: Reloadable<Credentials>) -> Self {
        Self { credentials }
    }

    /// Connects to whoever is at `address`, if that is the one whose certificate carries the URI `expected`.
    pub async fn connect(&self, address: SocketAddr, expected: &str) -> Result<SidecarClient, ConnectError> {
        let config = client_config(&self.credentials.get(), expected, HTTP2)?;
        let unreachable = |reason: String| ConnectError::Unreachable { address, reason };
        let endpoint =
            Endpoint::from_shared(format!("https://{address}")).map_err(|error| unreachable(words(&error)))?;
        let connector = service_fn(move |_| {
            let config = config.clone();
            async move { connect_tls(address, config).await.map(TokioIo::new) }
        });
        let connecting = timeout(CONNECT, endpoint.connect_with_connector(connector));
        let channel = connecting.await.map_err(|_| unreachable(format!("no answer within {CONNECT:?}")))?;
        let channel = channel.map_err(|error| unreachable(words(&error)))?;
        Ok(SidecarClient { stub: sidecar_client::SidecarClient::new(channel) })
    }
}

/// A TCP connection with TLS on top. The other side is told from its certificate, so there is no name to ask for.
pub(crate) async fn connect_tls(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(config).connect(ServerName::from(address.ip()), stream).await
}

/// One sidecar. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct SidecarClient {
    stub: sidecar_client::SidecarClient<Channel>,
}

impl SidecarClient {
    pub async fn observe(&mut self) -> Result<Observed, CallError> {
        let answer = within(OBSERVE, self.stub.observe(ObserveRequest {})).await?;
        Ok(answer.try_into()?)
    }

    pub async fn weigh(&mut self) -> Result<SlotKeys, CallError> {
        let answer = within(OBSERVE, self.stub.weigh(WeighRequest {})).await?;
        Ok(answer.try_into()?)
    }

    /// Has the actions carried out, in their order, on this sidecar's server whatever member they name. One outcome for each.
    pub async fn execute(&mut self, actions: &[Action]) -> Result<Vec<Outcome>, CallError> {
        let request = ExecuteRequest { commands: actions.iter().map(Into::into).collect() };
        let answer = within(deadline(actions), self.stub.execute(request)).await?;
        Ok(answer.outcomes.into_iter().map(Outcome::try_from).collect::<Result<_, _>>()?)
    }
}

fn deadline(actions: &[Action]) -> Duration {
    let waits = actions.iter().any(|action| matches!(action, Action::HandOver { .. }));
    if waits { HAND_OVER } else { EXECUTE }
}

async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, CallError> {
    let answer = timeout(deadline, call).await.map_err(|_| CallError::Deadline(deadline))?;
    Ok(answer.map_err(|status| CallError::Failed(reason(&status)))?.into_inner())
}

/// What the sidecar said, or what kept it from saying anything.
fn reason(status: &tonic::Status) -> String {
    match status.source() {
        None => status.message().to_owned(),
        Some(cause) => format!("{}: {}", status.message(), words(cause)),
    }
}

/// An error with all its causes: the cause that matters here is the last one ("certificate expired").
fn words(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use valkey_model::Member;

    use super::*;

    #[test]
    fn only_an_action_that_waits_for_others_gets_more_time() {
        let on = Member::new(0, 1);
        assert_eq!(deadline(&[Action::TakeOver { on }]), EXECUTE);
        assert_eq!(deadline(&[Action::TakeOver { on }, Action::HandOver { on }]), HAND_OVER);
    }
}
