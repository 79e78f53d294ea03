//! Being asked to stop.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first SIGTERM (Kubernetes) or SIGINT (a terminal).
///
/// From the moment that this returns, the signals no longer end the process: whoever holds the token must come to an end
/// when it is cancelled. Call it before the first thing that must not be cut short.
pub fn on_signal() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        let signal = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal, "stopping");
        cancel.cancel();
    });
    Ok(token)
}
