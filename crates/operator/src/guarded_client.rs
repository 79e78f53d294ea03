//! A Kubernetes client that writes only for the leader.
//!
//! The check sits below every controller, so no write can forget it. A fail-point sits here as well: tests end the process
//! after its nth write to show that any instruction may be the last one.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{BoxError, Layer, Service};

use crate::leadership::Leadership;

/// Ends the process after so many writes, to the API server and to sidecars together.
#[derive(Clone, Debug, Default)]
pub struct CrashPoint(Option<Arc<AtomicU64>>);

impl CrashPoint {
    pub fn after(writes: Option<u64>) -> Self {
        Self(writes.map(|writes| Arc::new(AtomicU64::new(writes))))
    }

    /// Call it after each write.
    pub fn written(&self) {
        let Some(left) = &self.0 else { return };
        if left.fetch_sub(1, Ordering::SeqCst) <= 1 {
            tracing::warn!("ending here, as --crash-after-writes asks");
            std::process::abort();
        }
    }
}

/// How often the API server was asked, the Lease apart. A quiet cluster must not move these numbers.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    watches: AtomicU64,
}

impl Tally {
    fn add<B>(&self, request: &Request<B>) {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let Counts { reads, writes, watches } = &*self.0;
        let count = match *request.method() {
            _ if is_watch => watches,
            Method::GET | Method::HEAD => reads,
            _ => writes,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// As Prometheus reads it.
    pub fn metrics(&self) -> String {
        let Counts { reads, writes, watches } = &*self.0;
        let line = |kind, count: &AtomicU64| {
            format!("valkey_operator_api_requests_total{{kind=\"{kind}\"}} {}\n", count.load(Ordering::Relaxed))
        };
        let head = "# HELP valkey_operator_api_requests_total Requests to the API server, the Lease apart.\n\
                    # TYPE valkey_operator_api_requests_total counter\n";
        [head.to_owned(), line("read", reads), line("write", writes), line("watch", watches)].concat()
    }
}

/// A client whose writes fail while this process does not lead.
pub fn client(config: Config, leadership: Leadership, crash: CrashPoint, tally: Tally) -> kube::Result<Client> {
    Ok(ClientBuilder::try_from(config)?.with_layer(&Gate { leadership, crash, tally }).build())
}

#[derive(Clone, Debug)]
struct Gate {
    leadership: Leadership,
    crash: CrashPoint,
    tally: Tally,
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { inner, gate: self.clone() }
    }
}

#[derive(Clone, Debug)]
struct Gated<S> {
    inner: S,
    gate: Gate,
}

#[derive(Debug, thiserror::Error)]
#[error("this replica does not lead (any more), so it writes nothing; another one does")]
struct NotLeading;

impl<S, B> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.gate.tally.add(&request);
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            let answer = self.inner.call(request);
            return Box::pin(async move { answer.await.map_err(Into::into) });
        }
        if !self.gate.leadership.holds() {
            return Box::pin(ready(Err(NotLeading.into())));
        }
        let (answer, crash) = (self.inner.call(request), self.gate.crash.clone());
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into);
            crash.written();
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_writes_and_watches_are_told_apart() {
        let tally = Tally::default();
        for (method, uri) in [
            (Method::GET, "/api/v1/pods"),
            (Method::GET, "/api/v1/pods?watch=true&resourceVersion=1"),
            (Method::PATCH, "/api/v1/pods/a"),
            (Method::DELETE, "/api/v1/pods/a"),
        ] {
            tally.add(&Request::builder().method(method).uri(uri).body(()).unwrap());
        }
        let told = tally.metrics();
        for (kind, count) in [("read", 1), ("write", 2), ("watch", 1)] {
            assert!(told.contains(&format!("{{kind=\"{kind}\"}} {count}\n")), "{told}");
        }
    }

    #[test]
    fn without_a_number_nothing_crashes() {
        CrashPoint::after(None).written();
        CrashPoint::after(Some(2)).written();
    }
}
