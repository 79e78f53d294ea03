//! Talks to one Valkey server: typed commands with a deadline each, and readers for what it answers.

mod connect;
mod defaults;
mod error;
mod info;
mod migrations;
mod node;
mod nodes_table;
mod observe;
mod slots;

pub use connect::{Login, PeerTls, PeerTlsError, Route};
pub use defaults::{default_of, present_name};
pub use error::Error;
pub use info::{Info, InfoError};
pub use migrations::{Migration, MigrationState, MigrationsError};
pub use node::{DEADLINE, Node};
pub use nodes_table::{Entry, Table, TableError};
pub use observe::{Answers, ObserveError, report};
pub use slots::SlotMark;
