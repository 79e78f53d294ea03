//! What all duties share.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use valkey_engine::{DEADLINE, Entry, Error, Login, Node, PeerTls, PeerTlsError, Route};
use valkey_model::{NodeReport, Version};
use valkey_planner::guard::Released;
use valkey_rpc::Refusals;

use crate::conf::{self, Listener};
use crate::mounts::Mounts;
use crate::moves::Moves;
use crate::pod::Pod;
use crate::prepare::{Prepared, RunDir};
use crate::reports::Outbox;
use crate::settings::Book;
use crate::view::Board;

#[derive(Debug)]
pub struct Context {
    pub pod: Pod,
    pub mounts: Mounts,
    pub run: RunDir,
    pub data: PathBuf,
    pub board: Board,
    pub outbox: Outbox,
    /// Whether the operator lets a held server start.
    pub released: watch::Sender<Released>,
    /// Who asked for the operator's place and was turned away.
    pub refusals: Refusals,
    /// Slots that we move in the classic way.
    pub moves: Moves,
    /// The settings that the server was given.
    pub settings: Book,
    /// The release of the server in this pod, as its launcher found out. `None` if we were restarted beside it.
    server_version: Mutex<Option<Version>>,
    /// What the server has read. `None` if we were restarted beside it.
    in_use: Mutex<Option<Prepared>>,
}

/// Why a server cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(transparent)]
    Mounts(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] PeerTlsError),
    #[error(transparent)]
    Server(#[from] Error),
}

impl Context {
    pub fn new(pod: Pod, mounts: Mounts, run: RunDir, data: PathBuf, outbox: Outbox) -> Self {
        let released = watch::Sender::new(Released::NotYet);
        let (board, refusals, moves) = (Board::default(), Refusals::default(), Moves::default());
        let settings = Book::default();
        settings.read(&run);
        let (server_version, in_use) = (Mutex::new(None), Mutex::new(None));
        Self { pod, mounts, run, data, board, outbox, released, refusals, moves, settings, server_version, in_use }
    }

    /// A connection to the server of this pod. The password is read anew each time, since it may have been changed.
    pub async fn server(&self) -> Result<Node, ReachError> {
        self.server_within(DEADLINE).await
    }

    /// The same for commands that may take longer.
    pub async fn server_within(&self, deadline: Duration) -> Result<Node, ReachError> {
        let (socket, login) = (self.run.server_socket(), self.mounts.login()?);
        Ok(Node::connect_within(deadline, Route::Socket(&socket), &login).await?)
    }

    /// Where peers reach the server of this pod.
    pub fn address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::new(self.pod.ip, self.listener()?.port()))
    }

    pub fn listener(&self) -> io::Result<Listener> {
        Ok(conf::listener(&self.mounts.valkey_conf()?))
    }

    /// What is needed to talk to other nodes of the cluster.
    pub fn peers(&self) -> Result<Peers, ReachError> {
        let listener = self.listener()?;
        let tls = match listener {
            Listener::Plain(_) => None,
            Listener::Tls(_) => {
                let own = self.mounts.tls()?;
                Some(PeerTls::from_pem(own.ca.as_bytes(), own.chain.as_bytes(), &own.key)?)
            }
        };
        Ok(Peers { login: self.mounts.login()?, listener, tls })
    }

    pub fn server_version(&self) -> Option<Version> {
        *self.server_version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now_of_version(&self, version: Option<Version>) {
        *self.server_version.lock().unwrap_or_else(PoisonError::into_inner) = version;
    }

    pub fn in_use(&self) -> Option<Prepared> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn now_in_use(&self, prepared: Prepared) {
        *self.in_use.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared);
    }
}

/// The way to the other nodes: they have our users, our CA and our port.
#[derive(Clone, Debug)]
pub struct Peers {
    login: Login,
    listener: Listener,
    tls: Option<PeerTls>,
}

impl Peers {
    /// Connects to a node as a table tells where it is.
    pub async fn connect(&self, entry: &Entry) -> Result<Peer, Error> {
        self.connect_within(DEADLINE, entry).await
    }

    /// The same for commands that may take longer.
    pub async fn connect_within(&self, deadline: Duration, entry: &Entry) -> Result<Peer, Error> {
        let ip = entry.ip.ok_or(io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        let told = match self.listener {
            Listener::Plain(_) => entry.port,
            Listener::Tls(_) => entry.tls_port,
        };
        let address = SocketAddr::new(ip, told.unwrap_or(self.listener.port()));
        let route = match &self.tls {
            None => Route::Plain(address),
            Some(tls) => Route::Tls { address, name: entry.hostname.as_deref().unwrap_or_default(), tls },
        };
        Ok(Peer { node: Node::connect_within(deadline, route, &self.login).await?, address })
    }
}

/// Another node of the cluster.
#[derive(Clone, Debug)]
pub struct Peer {
    pub node: Node,
    pub address: SocketAddr,
}

impl Peer {
    pub async fn observe(&mut self) -> Result<NodeReport, Error> {
        self.node.observe(self.address).await
    }
}
