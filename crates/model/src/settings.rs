//! Settings that a running server takes.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Member, Version};

/// What the line of `valkey.conf` begins with after which there is nothing but these settings.
const HEADLINE: &str = "# Taken by running servers, too: settings ";

/// All settings of a cluster that a running server takes, under a mark that tells them from others.
///
/// Complete: what is not among them has the server's own default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Settings {
    pub mark: String,
    pub values: BTreeMap<String, String>,
}

impl Settings {
    /// As the last part of a `valkey.conf`. One file for both parts: whoever reads it never sees halves that do not belong
    /// together.
    pub fn to_conf(&self) -> String {
        let lines = self.values.iter().map(|(name, value)| format!("{name} {}\n", quoted(value)));
        format!("{HEADLINE}{}\n{}", self.mark, lines.collect::<String>())
    }

    /// Those of a `valkey.conf`; `None` if it does not say which of its settings they are.
    pub fn of_conf(text: &str) -> Option<Self> {
        let mut lines = text.lines().skip_while(|line| !line.starts_with(HEADLINE));
        let mark = lines.next()?.strip_prefix(HEADLINE)?.trim().to_owned();
        let setting = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), unquoted(value)?))
        };
        let values = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(setting);
        Some(Self { mark, values: values.collect::<Option<_>>()? })
    }
}

/// A value as one argument. Valkey itself takes a list such as the save points apart again, so every value may be quoted.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn unquoted(text: &str) -> Option<String> {
    let mut letters = text.trim_end().strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut value = String::new();
    while let Some(letter) = letters.next() {
        value.push(if letter == '\\' { letters.next()? } else { letter });
    }
    Some(value)
}

/// What a server was given of such settings, as far as its sidecar knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenSettings {
    /// The mark of those that it has, all of them and verified. Empty if nobody can say.
    pub mark: String,
    /// Those that it refused last.
    pub refused: Option<RefusedSettings>,
}

/// Settings that a server did not take. It has none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedSettings {
    pub mark: String,
    /// Why, in the server's own words.
    pub words: String,
}

/// What the servers of a cluster should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSettings {
    /// What the spec asks for.
    pub wanted: Settings,
    /// What every server took last. What pods start with, and what they are given back if one of them refuses the wanted ones.
    pub good: Settings,
    /// Who refused the wanted ones before, and why. That one may be gone by now.
    pub refused: Option<(Member, String)>,
    /// The releases that the settings are made for, if the image says which these are: others may not know all of them.
    pub release: Option<Release>,
}

/// A line of releases with the same settings, such as 9.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub major: u16,
    pub minor: u16,
}

impl From<Version> for Release {
    fn from(Version { major, minor, patch: _ }: Version) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(values: &[(&str, &str)]) -> Settings {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings { mark: "0123abcd".into(), values }
    }

    #[test]
    fn what_is_written_is_read_again_wherever_it_stands_in_the_file() {
        for values in [
            &[][..],
            &[
                ("maxmemory", "0"),
                ("save", ""),
                ("proc-title-template", r#"a "b" \c\"#),
                ("notify-keyspace-events", "# K"),
            ],
        ] {
            let said = settings(values);
            assert_eq!(Settings::of_conf(&said.to_conf()), Some(said.clone()));
            let file = format!("# by us\nport \"6379\"\nmaxmemory \"7\"\n{}", said.to_conf());
            assert_eq!(Settings::of_conf(&file), Some(said));
        }
    }

    #[test]
    fn a_file_that_does_not_tell_or_cannot_be_read_gives_none() {
        assert_eq!(Settings::of_conf("maxmemory \"0\"\n"), None);
        let text = settings(&[("maxmemory", "0")]).to_conf();
        for broken in [text.replace("\"0\"", "0"), text.replace("\"0\"", "\"0\\\""), text.replace(" \"0\"", "")] {
            assert_eq!(Settings::of_conf(&broken), None, "{broken}");
        }
    }
}
