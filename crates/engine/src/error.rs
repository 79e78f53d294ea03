use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::observe::ObserveError;

/// Why a server did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    #[error("the server cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    #[error("the connection to the server broke: {0}")]
    Broken(String),
    /// Valkey's own words.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Unreadable(#[from] ObserveError),
}

impl Error {
    /// Whether a server process is there: it said something, even if that was no.
    pub fn is_a_reply(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Unreadable(_) => true,
            Self::Deadline(_) | Self::Unreachable(_) | Self::Broken(_) => false,
        }
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let words = [error.code(), error.detail()].into_iter().flatten();
                Self::Refused(words.collect::<Vec<_>>().join(" "))
            }
            ErrorKind::AuthenticationFailed => Self::Refused(error.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
}
