//! Answers the kubelet's probes of the Valkey container, from what was seen last.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use crate::context::Context;
use crate::view::Judgement;

pub fn routes(context: Arc<Context>) -> Router {
    let live = async |State(context): State<Arc<Context>>| answer(context.board.view().live(Instant::now()));
    let ready = async |State(context): State<Arc<Context>>| answer(context.board.view().ready(Instant::now()));
    Router::new().route("/valkey/live", get(live)).route("/valkey/ready", get(ready)).with_state(context)
}

fn answer(judgement: Judgement) -> (StatusCode, &'static str) {
    match judgement {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}
