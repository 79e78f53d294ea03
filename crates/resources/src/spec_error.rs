//! What is wrong with a spec, said so that its author knows what to do.

use std::fmt;

/// One thing that is wrong. Reads as `spec.maxMemory: 2gb does not fit into …. Raise ….`
///
/// The same words go into the condition, the event and later the webhook's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} {why}. {advice}.")]
pub struct SpecError {
    pub field: String,
    pub value: String,
    pub why: String,
    pub advice: String,
}

impl SpecError {
    pub(crate) fn new(
        field: impl Into<String>,
        value: impl Into<String>,
        why: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), value: value.into(), why: why.into(), advice: advice.into() }
    }
}

/// All that is wrong with a spec, so that nobody has to fix it one message at a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SpecErrors(pub Vec<SpecError>);

impl fmt::Display for SpecErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(" "))
    }
}

/// What works but should not stay so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecWarning {
    pub field: String,
    pub message: String,
}

impl SpecWarning {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for SpecWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}.", self.field, self.message)
    }
}
