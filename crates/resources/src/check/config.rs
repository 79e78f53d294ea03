//! `spec.config`: parameters that the server knows, that are not ours, with values that it takes.

use std::collections::BTreeMap;

use valkey_api::cluster::ValkeyClusterSpec;

use super::Findings;
use crate::owned::owned;
use crate::parameters::{known_in, parameter};
use crate::series::Series;
use crate::spec_error::SpecError;

/// Below, a busy pause looks like a death; above, a death goes unseen for minutes.
const NODE_TIMEOUT: &str = "cluster-node-timeout";
const NODE_TIMEOUT_MS: std::ops::RangeInclusive<u32> = 1_000..=60_000;

pub fn parameters(spec: &ValkeyClusterSpec, series: Series, findings: &mut Findings) -> BTreeMap<String, String> {
    let config = spec.config.clone().unwrap_or_default();
    for (name, value) in &config {
        if let Some(error) = complaint(name, value, series) {
            findings.wrong(error);
        }
    }
    config
}

fn complaint(name: &str, value: &str, series: Series) -> Option<SpecError> {
    let field = format!("spec.config.{name}");
    if let Some(owned) = owned(name) {
        return Some(SpecError::new(field, "this parameter", owned.why, owned.advice));
    }
    let Some(parameter) = parameter(series, name) else {
        return Some(SpecError::new(
            field,
            "this parameter",
            format!("is unknown to Valkey {series} and would stop the server"),
            unknown_advice(name),
        ));
    };
    if let Some(wanted) = parameter.complaint(value) {
        let why = format!("is not {wanted}");
        return Some(SpecError::new(field, format!("{value:?}"), why, "Correct it, or leave it out for the default"));
    }
    if value.chars().any(char::is_control) {
        let why = "has a line break or another control character, which valkey.conf cannot hold";
        return Some(SpecError::new(field, format!("{value:?}"), why, "Remove it"));
    }
    let out_of_bounds = || value.parse().is_ok_and(|ms: u32| !NODE_TIMEOUT_MS.contains(&ms));
    if name == NODE_TIMEOUT && out_of_bounds() {
        let (least, most) = (NODE_TIMEOUT_MS.start(), NODE_TIMEOUT_MS.end());
        let why = format!("is not between {least} and {most} milliseconds");
        return Some(SpecError::new(field, value, why, "Leave it out for 5000"));
    }
    None
}

fn unknown_advice(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    match known_in(name).as_slice() {
        [] if lower != name && !known_in(&lower).is_empty() => format!("Write it as {lower}"),
        [] => "Check how it is spelled in Valkey's documentation".into(),
        some => {
            let some: Vec<_> = some.iter().map(|series| series.as_str()).collect();
            format!("Leave it out, or run a release that has it: {}", some.join(", "))
        }
    }
}
