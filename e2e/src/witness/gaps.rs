//! The longest time between two moments in a row of moments.

use std::time::Duration;

/// A time in which nothing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// When it began, since the start of the run.
    pub began: Duration,
    pub length: Duration,
}

/// Keeps the longest pause of a row of moments. All times are since the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    last: Duration,
    longest: Pause,
}

impl Gaps {
    pub fn starting_at(start: Duration) -> Self {
        Self { last: start, longest: Pause { began: start, length: Duration::ZERO } }
    }

    /// Something happened. Moments may come in slightly the wrong order, from several threads.
    pub fn seen(&mut self, at: Duration) {
        self.longest = self.until(at);
        self.last = self.last.max(at);
    }

    /// The longest pause if the row ends here: the time since the last moment counts too, since whatever has not
    /// happened until now is a pause that is still going on.
    pub fn until(&self, end: Duration) -> Pause {
        let tail = Pause { began: self.last, length: end.saturating_sub(self.last) };
        if tail.length > self.longest.length { tail } else { self.longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(start: u64, moments: &[u64], end: u64) -> (u64, u64) {
        let at = Duration::from_secs;
        let mut gaps = Gaps::starting_at(at(start));
        for moment in moments {
            gaps.seen(at(*moment));
        }
        let pause = gaps.until(at(end));
        (pause.began.as_secs(), pause.length.as_secs())
    }

    #[test]
    fn the_longest_pause_may_be_at_the_start_in_the_middle_or_still_going_on() {
        assert_eq!(longest(0, &[5, 6, 7], 8), (0, 5));
        assert_eq!(longest(0, &[1, 2, 9, 10], 11), (2, 7));
        assert_eq!(longest(0, &[1, 2, 3], 9), (3, 6));
        assert_eq!(longest(2, &[], 9), (2, 7));
        assert_eq!(longest(0, &[5, 4, 6], 6), (0, 5));
    }
}
