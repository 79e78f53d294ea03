//! `spec.labels` and `spec.annotations`: what Kubernetes takes, and what is not ours.

use valkey_api::cluster::ValkeyClusterSpec;
use valkey_api::labels::{COMPONENT, INSTANCE, MANAGED_BY, NAME, PREFIX};

use super::Findings;
use crate::spec_error::SpecError;

/// Set by Kubernetes on the pods of a `StatefulSet`.
const SET_BY_KUBERNETES: [&str; 3] =
    ["controller-revision-hash", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"];

pub fn labels(spec: &ValkeyClusterSpec, findings: &mut Findings) {
    for (key, value) in spec.labels.iter().flatten() {
        let field = format!("spec.labels.{key}");
        if [NAME, INSTANCE, MANAGED_BY, COMPONENT].contains(&key.as_str())
            || key.starts_with(PREFIX)
            || SET_BY_KUBERNETES.contains(&key.as_str())
        {
            let why = "is how the operator and Kubernetes find their pods";
            findings.wrong(SpecError::new(field, "this label", why, "Choose another key"));
        } else if !is_key(key) {
            findings.wrong(SpecError::new(field, key, NO_KEY, "Write it as in team or example.com/team"));
        } else if !value.is_empty() && !is_word(value) {
            let advice = "Use at most 63 of A-Z, a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends";
            findings.wrong(SpecError::new(field, format!("{value:?}"), "is no value for a label", advice));
        }
    }
}

pub fn annotations(spec: &ValkeyClusterSpec, findings: &mut Findings) {
    for key in spec.annotations.iter().flat_map(|annotations| annotations.keys()) {
        let field = format!("spec.annotations.{key}");
        if key.starts_with(PREFIX) {
            let why = "belongs to the operator";
            findings.wrong(SpecError::new(field, "this annotation", why, "Choose another key"));
        } else if !is_key(key) {
            findings.wrong(SpecError::new(field, key, NO_KEY, "Write it as in team or example.com/team"));
        }
    }
}

const NO_KEY: &str = "is no key that Kubernetes takes";

/// `team` or `example.com/team`.
fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_word(name),
        None => is_word(key),
    }
}

fn is_word(text: &str) -> bool {
    text.len() <= 63 && has_good_ends(text) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_domain(text: &str) -> bool {
    let is_part = |part: &str| {
        has_good_ends(part) && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

fn has_good_ends(text: &str) -> bool {
    let good = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    good(text.chars().next()) && good(text.chars().next_back())
}
