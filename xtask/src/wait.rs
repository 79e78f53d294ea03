//! Waiting for what cannot be watched.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const BETWEEN: Duration = Duration::from_millis(20);

/// How an attempt ended that was not a failure for good.
#[derive(Debug)]
pub enum Attempt<T> {
    Done(T),
    /// Not yet, and why.
    Pending(String),
}

/// Tries until it is done. An error ends the waiting at once; the limit ends it with what was said last.
pub fn until<T>(what: &str, limit: Duration, mut attempt: impl FnMut() -> Result<Attempt<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match attempt()? {
            Attempt::Done(result) => return Ok(result),
            Attempt::Pending(why) if Instant::now() > deadline => bail!("waited {limit:?} for {what}: {why}"),
            Attempt::Pending(_) => std::thread::sleep(BETWEEN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reason_is_told_when_the_limit_is_reached() {
        let mut count = 0;
        let error = until::<()>("rain", Duration::from_millis(50), || {
            count += 1;
            Ok(Attempt::Pending(format!("look {count}: dry")))
        });
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("waited 50ms for rain: look ") && count > 1, "{error}");
    }

    #[test]
    fn an_error_ends_the_waiting_at_once() {
        let mut count = 0;
        let outcome = until::<()>("rain", Duration::from_mins(1), || {
            count += 1;
            bail!("no sky")
        });
        assert_eq!((outcome.unwrap_err().to_string().as_str(), count), ("no sky", 1));
    }
}
