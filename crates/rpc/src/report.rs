//! What a sidecar tells the operator by itself: small JSON messages over HTTP/1.1.
//!
//! Only hints. They wake the operator, which then looks for itself; a lost one costs time, never correctness.

mod desk;
mod reporter;

use serde::{Deserialize, Serialize};
use valkey_model::{NodeId, ReplicaLink, Role};

pub use desk::{ReportDesk, Sender, Turned, serve_reports};
pub use reporter::{ReportError, ReportUrl, Reporter};

/// Where reports are posted to.
const PATH: &str = "/v1/report";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub namespace: String,
    pub cluster: String,
    pub pod: String,
    pub event: Event,
    /// The server, if it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// Why this report was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Event {
    Heartbeat,
    /// The launcher was allowed to start the server.
    ServerStarted,
    /// The server answered for the first time since its start.
    ServerUp,
    ServerExited {
        code: i32,
    },
    /// The launch guard does not let the server start.
    Held {
        reason: String,
    },
    RoleChanged,
    LinkChanged,
    StateChanged,
    /// The pod was told to end.
    Stopping,
    /// Sent by a newer sidecar. Wakes the operator like any other.
    #[serde(other)]
    Unknown,
}

/// The server in a few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub id: String,
    pub role: NodeRole,
    pub state_ok: bool,
    pub loading: bool,
    pub link: Link,
    pub config_epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeRole {
    Primary,
    Replica,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Link {
    Up,
    Syncing,
    Down,
}

impl Summary {
    pub fn id(&self) -> Option<NodeId> {
        self.id.parse().ok()
    }
}

impl From<Role> for NodeRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Primary => Self::Primary,
            Role::Replica => Self::Replica,
        }
    }
}

impl From<ReplicaLink> for Link {
    fn from(link: ReplicaLink) -> Self {
        match link {
            ReplicaLink::Up => Self::Up,
            ReplicaLink::Syncing => Self::Syncing,
            ReplicaLink::Down => Self::Down,
        }
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
