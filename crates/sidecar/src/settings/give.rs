//! The talk with the server about its settings.

use std::collections::BTreeMap;

use valkey_engine::{Error, Node, default_of, present_name};
use valkey_model::{Settings, Version};

#[derive(Debug, thiserror::Error)]
pub enum GiveError {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("the server took {name} {wanted} and still says {told}: choose another value")]
    Ignored { name: String, wanted: String, told: String },
    #[error(
        "{name} cannot be taken back while the server runs, since its default in Valkey {version} is not known: keep it \
         with the value that it should have"
    )]
    NoDefault { name: String, version: Version },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    Wholly,
    /// All is set, but the log of writes was just switched on: a server that is started with it would find it empty.
    LogNotWhole,
}

type Values = BTreeMap<String, String>;

/// One `CONFIG SET` with what the server has otherwise, which takes all or nothing, and a look whether it worked.
pub async fn give(server: &mut Node, before: &Settings, settings: &Settings) -> Result<Given, GiveError> {
    let version = server.version().await?;
    let wanted = with_defaults(&before.values, &settings.values, version)?;
    let had = server.config_get(wanted.keys().map(String::as_str)).await?;
    let due: Vec<(&str, &str)> = wanted
        .iter()
        .filter(|(name, value)| !had.get(*name).is_some_and(|told| is_same(value, told)))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    if !due.is_empty() {
        server.config_set(&due).await?;
        let has = server.config_get(due.iter().map(|(name, _)| *name)).await?;
        if let Some(ignored) = due.iter().find_map(|due| ignored(*due, &had, &has, &before.values)) {
            let back: Vec<(&str, &str)> = due
                .iter()
                .filter_map(|(name, _)| had.get_key_value(*name))
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            server.config_set(&back).await?;
            return Err(ignored);
        }
    }
    let logs = |values: &Values| values.get("appendonly").is_some_and(|value| value.eq_ignore_ascii_case("yes"));
    let is_sure = logs(&had) && !before.mark.is_empty();
    if logs(&settings.values) && !is_sure && !server.log_is_whole().await? {
        return Ok(Given::LogNotWhole);
    }
    Ok(Given::Wholly)
}

/// What is wanted, and the defaults of what was given before and is not wanted any more.
fn with_defaults(before: &Values, wanted: &Values, version: Version) -> Result<Values, GiveError> {
    let names: Vec<String> = wanted.keys().map(|name| present_name(name)).collect();
    let mut all = wanted.clone();
    for name in before.keys().filter(|name| !names.contains(&present_name(name))) {
        let unknown = || GiveError::NoDefault { name: name.clone(), version };
        let default = default_of(version, name).ok_or_else(unknown)?;
        all.insert(name.clone(), default.to_owned());
    }
    Ok(all)
}

/// A number, size or switch that stayed what it was. Only of these can be said whether the server spells the same value
/// differently; and a value that it rounds is no surprise when it is given again.
fn ignored((name, wanted): (&str, &str), had: &Values, has: &Values, before: &Values) -> Option<GiveError> {
    let told = has.get(name)?;
    let comparable = size(wanted).is_some() || is_switch(wanted);
    let stayed = comparable && !is_same(wanted, told) && had.get(name) == Some(told);
    let is_new = before.get(name).is_none_or(|before| before != wanted);
    let (name, wanted, told) = (name.to_owned(), wanted.to_owned(), told.clone());
    (stayed && is_new).then_some(GiveError::Ignored { name, wanted, told })
}

/// Whether the server's word means the same, as far as that can be said for sure. Setting a value again does no harm.
fn is_same(wanted: &str, told: &str) -> bool {
    let switch = is_switch(wanted) && wanted.eq_ignore_ascii_case(told);
    wanted == told || switch || size(wanted).is_some_and(|wanted| size(told) == Some(wanted))
}

fn is_switch(value: &str) -> bool {
    value.eq_ignore_ascii_case("yes") || value.eq_ignore_ascii_case("no")
}

/// A number, perhaps with one of Valkey's units.
fn size(value: &str) -> Option<u64> {
    let end = value.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at_checked(end)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
#[path = "give_tests.rs"]
mod tests;
