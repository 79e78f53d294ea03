//! `/healthz` and `/readyz`, for the kubelet's probes.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Whether this process may be sent work. Cheap to clone; every clone speaks about the same process.
///
/// A process starts as not ready. Not for liveness: a process that is alive but not ready must not be killed for it.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<Option<Cow<'static, str>>>>);

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Some(Cow::Borrowed("starting")))))
    }
}

impl Readiness {
    pub fn ready(&self) {
        self.0.send_replace(None);
    }

    /// `reason` is what `/readyz` answers, so what somebody sees who asks why.
    pub fn not_ready(&self, reason: impl Into<Cow<'static, str>>) {
        self.0.send_replace(Some(reason.into()));
    }

    fn answer(&self) -> (StatusCode, Cow<'static, str>) {
        match &*self.0.borrow() {
            None => (StatusCode::OK, Cow::Borrowed("ok")),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason.clone()),
        }
    }
}

/// A bound but not yet answering health server: binding early makes a taken port an error of the start, not of a task.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let taken = |error: io::Error| io::Error::new(error.kind(), format!("health address {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(taken)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it really listens, which matters if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `end`, then returns at once: a probe in flight is not worth waiting for, and a client that keeps its
    /// connection open must not hold up the process.
    pub async fn serve(self, readiness: Readiness, end: impl Future<Output = ()>) -> io::Result<()> {
        self.serve_with(Router::new(), readiness, end).await
    }

    /// The same with more `routes`, for a process that answers for another one too.
    pub async fn serve_with(
        self,
        routes: Router,
        readiness: Readiness,
        end: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let routes = Router::new()
            .route("/healthz", get(async || "ok"))
            .route("/readyz", get(async |State(readiness): State<Readiness>| readiness.answer()))
            .with_state(readiness)
            .merge(routes);
        tokio::select! {
            result = axum::serve(self.listener, routes) => result,
            () = end => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;
    use tokio_util::sync::CancellationToken;

    use super::*;

    struct Running {
        address: SocketAddr,
        readiness: Readiness,
        end: CancellationToken,
        task: JoinHandle<io::Result<()>>,
    }

    async fn running() -> Running {
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let (address, readiness, end) = (server.address(), Readiness::default(), CancellationToken::new());
        let task = tokio::spawn(server.serve(readiness.clone(), end.clone().cancelled_owned()));
        Running { address, readiness, end, task }
    }

    impl Running {
        /// Status and body of a GET, over a connection of its own as the kubelet does it.
        async fn get(&self, path: &str) -> (u16, String) {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            (status, body.into())
        }
    }

    #[tokio::test]
    async fn a_process_is_alive_from_the_start_and_ready_when_it_says_so() {
        let server = running().await;
        assert_eq!(server.get("/healthz").await, (200, "ok".into()));
        assert_eq!(server.get("/readyz").await, (503, "starting".into()));
        server.readiness.ready();
        assert_eq!(server.get("/readyz").await, (200, "ok".into()));
        server.readiness.not_ready("lost the lease");
        assert_eq!(server.get("/readyz").await, (503, "lost the lease".into()));
        assert_eq!(server.get("/healthz").await, (200, "ok".into()));
        assert_eq!(server.get("/anything").await.0, 404);
    }

    #[tokio::test]
    async fn an_open_connection_does_not_hold_up_the_end() {
        let server = running().await;
        let _idle = TcpStream::connect(server.address).await.unwrap();
        assert_eq!(server.get("/healthz").await.0, 200); // so the idle one is accepted too
        server.end.cancel();
        tokio::time::timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap().unwrap();
        assert!(TcpStream::connect(server.address).await.is_err(), "the port is still open");
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let server = running().await;
        let error = Server::bind(server.address).await.unwrap_err();
        assert!(error.to_string().contains(&server.address.to_string()), "{error}");
    }
}
