//! What both sides say, in the words of the domain.

use valkey_model::{Held, NodeReport, Sighting};

/// Raised with every change that the other side can notice.
pub const CONTRACT_VERSION: u32 = 4;

/// What a sidecar answers when it is asked about its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    pub state: State,
    pub sidecar_version: String,
    pub contract_version: u32,
    pub certificates: Certificates,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The server is not up yet, and why.
    Starting(String),
    /// The launch guard keeps it from starting.
    Held(Held),
    Known(Box<NodeReport>),
}

impl From<State> for Sighting {
    fn from(state: State) -> Self {
        match state {
            State::Starting(_) => Self::Starting,
            State::Held(held) => Self::Held(held),
            State::Known(report) => Self::Known(report),
        }
    }
}

/// The certificates that the pod presents now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    pub mtls: Option<Certificate>,
    /// `None` if the server speaks without TLS.
    pub tls: Option<Certificate>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// SHA-256 in lower-case hex.
    pub thumbprint: String,
    /// Seconds since 1970.
    pub expires_at: i64,
}

/// What became of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Why not, in Valkey's own words.
    Refused(String),
    /// An earlier one failed, so this one was not tried.
    Skipped,
}
