//! Settings that the running server takes: which of them it has, and giving it others.
//!
//! What it was given is written down in the run directory, so that one of us that is restarted beside a running server knows
//! it, too, and can take back what is not wanted any more.

mod give;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;
use valkey_engine::Error;
use valkey_model::{RefusedSettings, Settings, TakenSettings};

use self::give::{GiveError, Given, give};
use crate::context::{Context, ReachError};
use crate::prepare::RunDir;

/// Below the operator's own, so that it hears from us what is wrong. Switching the log of writes on forks a large process.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    #[error(transparent)]
    Files(#[from] io::Error),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Give(#[from] GiveError),
    #[error("the server was restarted meanwhile: it has the settings that it was started with")]
    Restarted,
}

/// What the server was given. Nobody can say which of it the server has if there is no mark.
#[derive(Debug, Default)]
pub struct Book {
    page: Mutex<Page>,
    /// One order after the other.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Page {
    given: Settings,
    refused: Option<RefusedSettings>,
}

impl Book {
    /// What was written down last, by the start of the server or by one of us who is gone.
    pub fn read(&self, run: &RunDir) {
        let given = run.settings().unwrap_or_else(|error| {
            warn!(%error, "nobody knows which settings the server has");
            None
        });
        self.page().given = given.unwrap_or_default();
    }

    pub fn taken(&self) -> TakenSettings {
        let Page { given, refused } = self.page().clone();
        TakenSettings { mark: given.mark, refused }
    }

    fn given(&self) -> Settings {
        self.page().given.clone()
    }

    fn write(&self, run: &RunDir, given: Settings) -> io::Result<()> {
        run.write_settings(&given)?;
        self.page().given = given;
        Ok(())
    }

    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the server these settings, all or none, and takes back what it was given before and is not among them.
pub async fn configure(context: &Context, settings: &Settings) -> Result<(), ConfigureError> {
    let book = &context.settings;
    let _turn = book.turn.lock().await;
    let life = context.board.view().life;
    let before = book.given();
    let mut server = context.server_within(PATIENCE).await?;
    // Until it is over nobody can say what the server has, only what has to be taken back some day.
    let mut touched = before.values.clone();
    touched.extend(settings.values.clone());
    book.write(&context.run, Settings { mark: String::new(), values: touched })?;
    let given = give(&mut server, &before, settings).await;
    if context.board.view().life != life {
        book.read(&context.run);
        return Err(ConfigureError::Restarted);
    }
    match given {
        Ok(Given::Wholly) => {
            book.page().refused = None;
            book.write(&context.run, settings.clone())?;
        }
        // The next order finds it done.
        Ok(Given::LogNotWhole) => {
            book.write(&context.run, Settings { mark: String::new(), values: settings.values.clone() })?;
        }
        Err(error) => {
            if error.is_about_the_settings() {
                let words = error.to_string();
                book.page().refused = Some(RefusedSettings { mark: settings.mark.clone(), words });
            }
            if error.changed_nothing() {
                book.write(&context.run, before)?;
            }
            return Err(error.into());
        }
    }
    Ok(())
}

impl GiveError {
    /// The server has an opinion about the values; it is not merely busy or gone.
    fn is_about_the_settings(&self) -> bool {
        match self {
            Self::Server(Error::Refused(words)) => words.starts_with("ERR"),
            Self::Server(_) => false,
            Self::Ignored { .. } | Self::NoDefault { .. } => true,
        }
    }

    fn changed_nothing(&self) -> bool {
        match self {
            Self::Server(error) => matches!(error, Error::Refused(_)),
            Self::Ignored { .. } | Self::NoDefault { .. } => true,
        }
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
