//! One line per step: it moves while the step runs and ends with how long it took.
//!
//! On a terminal the line is rewritten in place; in a log file a step prints a line when it starts and another one
//! every few seconds, so that a reader of CI output sees that it lives.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const NAME_WIDTH: usize = 34;
const LOG_INTERVAL: Duration = Duration::from_secs(15);
const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);

/// A step that is under way. Dropping it unfinished leaves its line standing, marked as failed.
#[derive(Debug)]
pub struct Step {
    name: String,
    started: Instant,
    shown: Option<Instant>,
    terminal: bool,
    finished: bool,
}

impl Step {
    pub fn start(name: impl Into<String>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let mut step = Self { name: name.into(), started: Instant::now(), shown: None, terminal, finished: false };
        if terminal {
            step.say("");
        } else {
            step.shown = Some(Instant::now());
        }
        step
    }

    /// Shows what the step is doing now, at most a few times per second.
    pub fn say(&mut self, what: impl Display) {
        let interval = if self.terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL };
        if self.shown.is_some_and(|shown| shown.elapsed() < interval) {
            return;
        }
        self.shown = Some(Instant::now());
        self.line('·', &what.to_string(), if self.terminal { "" } else { "\n" });
    }

    /// Ends the step; `note` says what came of it.
    pub fn done(mut self, note: impl Display) {
        self.finished = true;
        self.line('✓', &note.to_string(), "\n");
    }

    fn line(&self, mark: char, what: &str, end: &str) {
        let clear = if self.terminal { "\r\x1b[2K" } else { "" };
        let text = format!("{mark} {:<NAME_WIDTH$} {:>7}  {what}", self.name, human(self.started.elapsed()));
        let shown: String = if self.terminal { text.chars().take(110).collect() } else { text };
        let mut out = std::io::stderr().lock();
        // A closed stderr must not end a boot half way.
        let _ = write!(out, "{clear}{}{end}", shown.trim_end());
        let _ = out.flush();
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.finished {
            self.line('✗', "failed", "\n");
        }
    }
}

/// A duration as people say it: `0.4s`, `12s`, `3m07s`.
pub fn human(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds}s"),
        seconds => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        assert_eq!(human(Duration::from_millis(420)), "0.4s");
        assert_eq!(human(Duration::from_secs(59)), "59s");
        assert_eq!(human(Duration::from_secs(187)), "3m07s");
    }
}
