//! Waiting for things that nobody announces.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep, timeout_at};

const BETWEEN: Duration = Duration::from_millis(100);

/// Tries again until it succeeds; the error tells what was waited for and why the last try failed.
///
/// Only for what cannot be watched, such as the state of a Valkey node. For Kubernetes objects there is
/// [`Objects::until`](crate::Objects::until).
pub async fn eventually<T>(what: &str, within: Duration, mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + within;
    let mut last = anyhow!("no try has ended");
    let trying = async {
        loop {
            match attempt().await {
                Ok(value) => return value,
                Err(error) => last = error,
            }
            sleep(BETWEEN).await;
        }
    };
    match timeout_at(end, trying).await {
        Ok(value) => Ok(value),
        Err(_) => Err(last.context(format!("waited {within:.0?} for {what}"))),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[tokio::test]
    async fn waiting_ends_with_the_first_success() {
        let mut tries = 0;
        let third = eventually("the third try", Duration::from_secs(5), async || {
            tries += 1;
            ensure!(tries == 3, "only try {tries}");
            Ok(tries)
        });
        assert_eq!(third.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn giving_up_tells_what_was_waited_for_and_what_was_seen() {
        let never = eventually("better weather", Duration::from_millis(120), async || Err::<(), _>(anyhow!("rain")));
        assert_eq!(format!("{:#}", never.await.unwrap_err()), "waited 120ms for better weather: rain");
    }
}
