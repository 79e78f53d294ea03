//! Where the operator receives reports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tracing::debug;

use super::{PATH, Report};
use crate::accept::{Admitted, accept};
use crate::tls::{HTTP1, Refusals, ServerTls};

const LARGEST: usize = 16 * 1024;
/// A report is posted and answered at once: who stays longer is not sending reports.
const VISIT: Duration = Duration::from_secs(10);

/// Who posted a report: the certificate was verified by the handshake.
#[derive(Clone, Debug)]
pub struct Sender {
    pub certificate: CertificateDer<'static>,
    pub address: SocketAddr,
}

/// Why a report is not taken, for the sender's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turned {
    pub away: String,
}

/// Whoever takes reports. It must check that a pod speaks for itself only.
pub trait ReportDesk: Send + Sync + 'static {
    fn take(&self, sender: Sender, report: Report) -> impl Future<Output = Result<(), Turned>> + Send;
}

/// Takes reports for as long as the future lives. Who is turned away by the desk counts as refused, too.
pub async fn serve_reports(listener: &TcpListener, tls: &ServerTls, desk: Arc<impl ReportDesk>) {
    let refusals = tls.refusals.clone();
    let serve = move |Admitted { stream, peer }: Admitted| {
        let (desk, refusals) = (desk.clone(), refusals.clone());
        async move {
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first().cloned());
            let Some(certificate) = shown.map(CertificateDer::into_owned) else { return };
            let sender = Sender { certificate, address: peer };
            let service = service_fn(|request| answer(request, sender.clone(), desk.clone(), refusals.clone()));
            let http = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = timeout(VISIT, http).await {
                debug!(%peer, %error, "connection broke");
            }
        }
    };
    accept(listener, tls, HTTP1, serve).await;
}

async fn answer(
    request: Request<Incoming>,
    sender: Sender,
    desk: Arc<impl ReportDesk>,
    refusals: Refusals,
) -> Result<Response<Full<Bytes>>, http::Error> {
    let (status, words) = match judge(request, sender, desk, refusals).await {
        Ok(()) => (StatusCode::NO_CONTENT, String::new()),
        Err(refused) => refused,
    };
    Response::builder().status(status).body(Full::from(words))
}

async fn judge(
    request: Request<Incoming>,
    sender: Sender,
    desk: Arc<impl ReportDesk>,
    refusals: Refusals,
) -> Result<(), (StatusCode, String)> {
    if request.uri().path() != PATH {
        return Err((StatusCode::NOT_FOUND, format!("post reports to {PATH}")));
    }
    if request.method() != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, format!("post reports to {PATH}")));
    }
    let body = Limited::new(request.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?.to_bytes();
    let report = serde_json::from_slice(&body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    desk.take(sender, report).await.map_err(|Turned { away }| {
        refusals.add();
        (StatusCode::FORBIDDEN, away)
    })
}
