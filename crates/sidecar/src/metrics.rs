//! `/metrics`: what Prometheus reads about the sidecar itself.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

use crate::context::Context;

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub fn routes(context: Arc<Context>) -> Router {
    let metrics =
        async |State(context): State<Arc<Context>>| ([(CONTENT_TYPE, TEXT_FORMAT)], text(context.refusals.count()));
    Router::new().route("/metrics", get(metrics)).with_state(context)
}

fn text(refused: u64) -> String {
    format!(
        "# HELP valkey_sidecar_refused_peers_total Connections of somebody who is not the operator.\n\
         # TYPE valkey_sidecar_refused_peers_total counter\n\
         valkey_sidecar_refused_peers_total {refused}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_one_that_prometheus_reads() {
        let text = text(7);
        let (comments, samples): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("# "));
        assert_eq!(samples, ["valkey_sidecar_refused_peers_total 7"]);
        assert!(comments.contains(&"# TYPE valkey_sidecar_refused_peers_total counter"), "{comments:?}");
    }
}
