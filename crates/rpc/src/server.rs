//! The sidecar's side of the contract.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};
use tracing::debug;
use valkey_model::{Action, Member, SlotKeys};

use crate::accept::{Admitted, accept};
use crate::convert::action;
use crate::message::{Observed, Outcome};
use crate::proto::sidecar_server::{self, SidecarServer};
use crate::proto::{ExecuteRequest, ExecuteResponse, ObserveRequest, ObserveResponse, WeighRequest, WeighResponse};
use crate::tls::{HTTP2, ServerTls};

/// Notices an operator that is gone without a word, so that its connections do not pile up.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The server was up and gives no answer now, and why. The operator must not take that for a server that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered(pub String);

/// What a sidecar does when the operator asks.
pub trait Sidecar: Send + Sync + 'static {
    /// Whom it looks after.
    fn member(&self) -> Member;
    fn observe(&self) -> impl Future<Output = Result<Observed, Unanswered>> + Send;
    /// Carries the actions out one after the other, stops at the first that fails, and says what became of each.
    fn execute(&self, actions: Vec<Action>) -> impl Future<Output = Vec<Outcome>> + Send;
    /// How many keys are in each slot.
    fn weigh(&self) -> impl Future<Output = Result<SlotKeys, Unanswered>> + Send;
}

/// Answers the operator for as long as the future lives.
pub async fn serve(listener: &TcpListener, tls: &ServerTls, sidecar: Arc<impl Sidecar>) {
    let service = SidecarServer::new(Desk(sidecar));
    let serve = move |Admitted { stream, peer }: Admitted| {
        let service = TowerToHyperService::new(service.clone());
        async move {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE);
            if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                debug!(%peer, %error, "connection broke");
            }
        }
    };
    accept(listener, tls, HTTP2, serve).await;
}

struct Desk<S>(Arc<S>);

#[tonic::async_trait]
impl<S: Sidecar> sidecar_server::Sidecar for Desk<S> {
    async fn observe(&self, _request: Request<ObserveRequest>) -> Result<Response<ObserveResponse>, Status> {
        let observed = self.0.observe().await.map_err(|Unanswered(reason)| Status::unavailable(reason))?;
        Ok(Response::new(observed.into()))
    }

    async fn execute(&self, request: Request<ExecuteRequest>) -> Result<Response<ExecuteResponse>, Status> {
        let on = self.0.member();
        let commands = request.into_inner().commands.into_iter();
        let actions: Result<Vec<_>, _> = commands.map(|command| action(command, on)).collect();
        let actions = actions.map_err(|malformed| Status::invalid_argument(malformed.to_string()))?;
        let outcomes = self.0.execute(actions).await;
        Ok(Response::new(ExecuteResponse { outcomes: outcomes.into_iter().map(Into::into).collect() }))
    }

    async fn weigh(&self, _request: Request<WeighRequest>) -> Result<Response<WeighResponse>, Status> {
        let keys = self.0.weigh().await.map_err(|Unanswered(reason)| Status::unavailable(reason))?;
        Ok(Response::new(keys.into()))
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
