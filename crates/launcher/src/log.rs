//! One JSON object per line on stderr, like the logs of the operator and the sidecar.

use std::fmt::Write as _;
use std::io::{self, Write as _};

#[derive(Clone, Copy, Debug)]
pub enum Level {
    Info,
    Warn,
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// Never fails: a closed stderr must not end the parent of a healthy server.
pub fn line(level: Level, message: &str, fields: &[(&str, &str)]) {
    let text = render(level, message, fields);
    let _ = io::stderr().write_all(text.as_bytes()); // in one write, so that the server's lines do not tear it
}

fn render(level: Level, message: &str, fields: &[(&str, &str)]) -> String {
    let mut text = String::from("{");
    let own = [("level", level.as_str()), ("target", "valkey_launcher"), ("message", message)];
    for (place, (name, value)) in own.iter().chain(fields).enumerate() {
        if place > 0 {
            text.push(',');
        }
        quote(&mut text, name);
        text.push(':');
        quote(&mut text, value);
    }
    text.push_str("}\n");
    text
}

fn quote(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(c)); // writing to a String cannot fail
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object() {
        assert_eq!(
            render(Level::Warn, "held back", &[("reason", "syncing")]),
            "{\"level\":\"WARN\",\"target\":\"valkey_launcher\",\"message\":\"held back\",\"reason\":\"syncing\"}\n"
        );
    }

    #[test]
    fn nothing_in_a_value_can_end_the_line_or_the_string() {
        let mut text = String::new();
        quote(&mut text, "a\"b\\c\nd\te\u{1b}f\rgö");
        assert_eq!(text, r#""a\"b\\c\nd\te\u001bf\u000dgö""#);
    }
}
