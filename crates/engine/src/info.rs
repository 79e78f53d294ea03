//! What `INFO` and `CLUSTER INFO` answer: lines of `field:value`.

use std::collections::BTreeMap;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    #[error("the server does not tell {0}: is it Valkey 7.2 or newer?")]
    Missing(&'static str),
    #[error("the server tells {value:?} as {field}, which cannot be read")]
    Unreadable { field: &'static str, value: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    pub fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(fields.map(|(field, value)| (field.to_owned(), value.to_owned())).collect())
    }

    pub fn text(&self, field: &'static str) -> Result<&str, InfoError> {
        self.0.get(field).map(String::as_str).ok_or(InfoError::Missing(field))
    }

    pub fn read<T: FromStr>(&self, field: &'static str) -> Result<T, InfoError> {
        let value = self.text(field)?;
        value.parse().map_err(|_| InfoError::Unreadable { field, value: value.to_owned() })
    }

    pub fn flag(&self, field: &'static str) -> Result<bool, InfoError> {
        Ok(self.text(field)? == "1")
    }

    /// The sum over all databases.
    pub fn keys(&self) -> u64 {
        let databases = self.0.iter().filter(|(field, _)| field.strip_prefix("db").is_some_and(is_number));
        databases.filter_map(|(_, value)| attribute(value, "keys")?.parse::<u64>().ok()).sum()
    }
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(',').filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_databases_are_counted() {
        assert_eq!(Info::parse("db0:keys=3,expires=0\ndb11:keys=4,expires=1\ndbx:keys=9\n").keys(), 7);
        assert_eq!(Info::parse("").keys(), 0);
    }

    #[test]
    fn what_is_missing_or_unreadable_is_no_zero() {
        let info = Info::parse("used_memory:many\r\n");
        assert_eq!(info.read::<u64>("loading"), Err(InfoError::Missing("loading")));
        assert!(matches!(info.read::<u64>("used_memory"), Err(InfoError::Unreadable { .. })));
    }
}
