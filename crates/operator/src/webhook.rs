//! What the API server asks before it lets somebody act. Only the leader answers, and where nobody answers Kubernetes goes on
//! without (`failurePolicy: Ignore`): a webhook that is away must not stop anybody.

mod eviction;
mod tls;

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use valkey_pki::Authority;

pub use tls::{WebhookTls, certificate};

const HANDSHAKE: Duration = Duration::from_secs(5);

/// Answers for as long as this future lives.
pub async fn serve(listener: &TcpListener, tls: &WebhookTls, client: Client) {
    let routes = Router::new().route("/pods/eviction", post(eviction::answer)).with_state(client);
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(converse(stream, TlsAcceptor::from(tls.get()), routes.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "the webhook cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, tls: TlsAcceptor, routes: Router) {
    let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a conversation with the API server ended badly");
    }
}

/// Tells the API server whom to believe. Without it, or without the configuration, evictions are merely noticed later.
pub async fn announce(client: &Client, name: &str, root: &Authority) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let bundle = ByteString(root.certificate_pem().into_bytes());
    let patch =
        Patch::Strategic(json!({"webhooks": [{"name": "evictions.valkey.io", "clientConfig": {"caBundle": bundle}}]}));
    match configurations.patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            tracing::info!(
                name,
                "no webhook is configured: pods on cordoned nodes are let go, evictions elsewhere wait"
            );
        }
        Err(error) => tracing::warn!(name, %error, "the webhook cannot be announced"),
    }
}
