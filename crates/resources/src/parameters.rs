//! The parameters that a Valkey server knows, and what their values look like.
//!
//! The tables were made by asking real servers: every name that `CONFIG GET *` gives, and the complaint about a senseless
//! value of each. An unknown parameter or a bad value would stop a server at its start, so both are refused before.

use std::ops::RangeInclusive;

use crate::amount::Bytes;
use crate::series::Series;

const V8_0: &str = include_str!("parameters/8.0.txt");
const V8_1: &str = include_str!("parameters/8.1.txt");
const V9_1: &str = include_str!("parameters/9.1.txt");

/// In the table of 9.1, which serves for 9.0 too, but not in 9.0.
const SINCE_9_1: [&str; 3] = ["cluster-config-save-behavior", "hash-seed", "tls-auto-reload-interval"];

/// One parameter of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    values: Values,
    /// The server reads it only when it starts.
    pub needs_restart: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Values {
    YesOrNo,
    Whole(RangeInclusive<i128>),
    Memory,
    OneOf(Vec<&'static str>),
    Text,
}

/// The parameter of this name; `None` if servers of the series do not know it.
pub fn parameter(series: Series, name: &str) -> Option<Parameter> {
    if series == Series::V9_0 && SINCE_9_1.contains(&name) {
        return None;
    }
    let line = table(series).lines().find(|line| line.split(' ').next() == Some(name))?;
    parse(line)
}

/// The series that know this parameter.
pub fn known_in(name: &str) -> Vec<Series> {
    Series::ALL.into_iter().filter(|series| parameter(*series, name).is_some()).collect()
}

fn table(series: Series) -> &'static str {
    match series {
        Series::V8_0 => V8_0,
        Series::V8_1 => V8_1,
        Series::V9_0 | Series::V9_1 => V9_1,
    }
}

/// A line such as `databases int 1 2147483647 restart`.
fn parse(line: &'static str) -> Option<Parameter> {
    let (line, needs_restart) = line.strip_suffix(" restart").map_or((line, false), |line| (line, true));
    let mut words = line.split(' ').skip(1);
    let values = match words.next()? {
        "bool" => Values::YesOrNo,
        "int" => Values::Whole(words.next()?.parse().ok()?..=words.next()?.parse().ok()?),
        "memory" => Values::Memory,
        "enum" => Values::OneOf(words.next()?.split('|').collect()),
        "text" => Values::Text,
        _ => return None,
    };
    Some(Parameter { values, needs_restart })
}

impl Parameter {
    /// What the value would have to be, if it is not.
    pub fn complaint(&self, value: &str) -> Option<String> {
        let (good, wanted) = match &self.values {
            Values::YesOrNo => (is_one_of(&["yes", "no"], value), "yes or no".into()),
            Values::Whole(range) => (
                value.parse().is_ok_and(|number| range.contains(&number)),
                format!("a whole number from {} to {}", range.start(), range.end()),
            ),
            Values::Memory => (Bytes::of_valkey(value).is_some(), "a size such as 64mb".into()),
            Values::OneOf(words) => (is_one_of(words, value), format!("one of {}", words.join(", "))),
            Values::Text => (true, String::new()),
        };
        (!good).then_some(wanted)
    }
}

fn is_one_of(words: &[&str], value: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_table_is_understood() {
        for (series, count) in [(Series::V8_0, 214), (Series::V8_1, 227), (Series::V9_1, 237)] {
            let lines: Vec<_> = table(series).lines().collect();
            assert_eq!(lines.len(), count);
            for line in lines {
                assert!(parse(line).is_some(), "{series}: {line}");
            }
        }
    }

    #[test]
    fn values_are_checked_by_their_kind() {
        for (name, good, bad) in [
            ("appendonly", "yes", "true"),
            ("io-threads", "4", "0"),
            ("maxmemory-policy", "allkeys-lru", "lru"),
            ("repl-backlog-size", "10mb", "10Mi"),
        ] {
            let parameter = parameter(Series::V9_1, name).unwrap();
            assert_eq!(parameter.complaint(good), None, "{name}");
            assert!(parameter.complaint(bad).is_some(), "{name}");
        }
    }

    #[test]
    fn what_needs_a_restart_differs_between_series() {
        assert!(parameter(Series::V8_1, "io-threads").unwrap().needs_restart);
        assert!(!parameter(Series::V9_1, "io-threads").unwrap().needs_restart);
        assert!(parameter(Series::V9_1, "databases").unwrap().needs_restart);
    }

    #[test]
    fn a_parameter_is_known_only_where_it_exists() {
        assert_eq!(known_in("hash-seed"), [Series::V9_1]);
        assert_eq!(known_in("log-format"), [Series::V8_1, Series::V9_0, Series::V9_1]);
        assert_eq!(known_in("maxclients").len(), 4);
        assert_eq!(known_in("max-clients"), []);
    }
}
