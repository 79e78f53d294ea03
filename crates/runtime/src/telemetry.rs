//! Logs: one JSON object per line, on standard error.

use std::io;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("log level {given:?} is not understood: use error, warn, info, debug or trace, or target=level,…")]
    Level { given: String, source: ParseError },
    #[error("logs were set up already: call init once, at the start of main")]
    Twice(#[from] TryInitError),
}

/// Sends everything that is logged from here on to standard error.
///
/// `level` is what `RUST_LOG` takes: a level, or a list of `target=level`. Call it once, first thing in `main`; a
/// library or a test must not.
pub fn init(level: &str) -> Result<(), Error> {
    Ok(subscriber(level, io::stderr)?.try_init()?)
}

fn subscriber<W>(level: &str, writer: W) -> Result<impl Subscriber + Send + Sync + 'static, Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder().parse(level).map_err(|source| Error::Level { given: level.into(), source })?;
    Ok(tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(writer)
        .finish())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;

    #[test]
    fn an_event_is_one_json_object_with_its_fields_at_the_top() {
        let lines = logged("info", || {
            tracing::info!(cluster = "orders", shards = 3, "formed");
            tracing::debug!("not asked for");
        });
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["message"], "formed");
        assert_eq!(line["cluster"], "orders");
        assert_eq!(line["shards"], 3);
        assert!(line["timestamp"].is_string());
    }

    #[test]
    fn a_target_can_be_turned_up_alone() {
        let lines = logged("warn,loud=debug", || {
            tracing::info!("quiet");
            tracing::debug!(target: "loud", "heard");
        });
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["message"], "heard");
    }

    #[test]
    fn a_wrong_level_is_refused_with_what_to_write_instead() {
        let error = init("verbose=loud").unwrap_err().to_string();
        assert!(error.contains("verbose=loud") && error.contains("debug"), "{error}");
    }

    fn logged(level: &str, emit: impl FnOnce()) -> Vec<Value> {
        let mut file = tempfile::tempfile().unwrap();
        let writer = Arc::new(file.try_clone().unwrap());
        tracing::subscriber::with_default(subscriber(level, writer).unwrap(), emit);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
