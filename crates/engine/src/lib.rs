//! Talks to one Valkey server: typed commands with a deadline each, and readers for what it answers.

mod connect;
mod error;
mod info;
mod node;
mod nodes_table;
mod observe;

pub use connect::{Login, PeerTls, PeerTlsError, Route};
pub use error::Error;
pub use info::{Info, InfoError};
pub use node::{DEADLINE, Node};
pub use nodes_table::{Entry, Table, TableError};
pub use observe::{Answers, ObserveError, report};
