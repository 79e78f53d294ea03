//! Connections of those who may connect.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

use crate::tls::ServerTls;

const HANDSHAKE: Duration = Duration::from_secs(5);
/// Out of file descriptors, most likely: they come back when somebody leaves.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A connection whose other side was verified and let in.
pub(crate) struct Admitted {
    pub stream: TlsStream<TcpStream>,
    pub peer: SocketAddr,
}

/// Serves every connection in a task of its own, for as long as this future lives. Who never finishes a handshake costs
/// nobody else anything.
pub(crate) async fn accept<S, F>(listener: &TcpListener, tls: &ServerTls, protocol: &'static [u8], serve: S)
where
    S: Fn(Admitted) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (tls, serve) = (tls.clone(), serve.clone());
                tasks.spawn(async move {
                    if let Some(stream) = admit(stream, peer, &tls, protocol).await {
                        serve(Admitted { stream, peer }).await;
                    }
                });
            }
            Err(error) => {
                warn!(%error, "no connection can be accepted");
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

async fn admit(stream: TcpStream, peer: SocketAddr, tls: &ServerTls, protocol: &[u8]) -> Option<TlsStream<TcpStream>> {
    let config = tls.config(protocol).inspect_err(|error| warn!(%error, "nobody can be let in")).ok()?;
    match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) if is_refusal(&error) => {
            tls.refusals.add();
            warn!(%peer, reason = %error, "refused");
            None
        }
        Ok(Err(error)) => {
            debug!(%peer, %error, "left during the handshake");
            None
        }
        Err(_) => {
            debug!(%peer, "did not finish the handshake");
            None
        }
    }
}

/// Whether we did not want them, rather than they us.
fn is_refusal(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    tls.is_some_and(|error| !matches!(error, rustls::Error::AlertReceived(_)))
}
