//! Conditions: one way to set them, so that every kind says the same words in the same way.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// The spec makes sense and what it refers to is there.
    Accepted,
    /// Clients can work: all slots are served and every node is there.
    Ready,
    /// The operator is bringing the cluster to what the spec says.
    Progressing,
    /// It works, but not as it should: a node is missing, a shard has no synced replica.
    Degraded,
    /// The certificates that the nodes serve are the wanted ones, and valid.
    TlsConfigured,
    /// Every copy of some slots is gone. Stays until somebody has seen it.
    DataLost,
    /// An upgrade ended as it should.
    Succeeded,
}

impl ConditionType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Ready => "Ready",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::TlsConfigured => "TLSConfigured",
            Self::DataLost => "DataLost",
            Self::Succeeded => "Succeeded",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    /// Could not be found out. Not the same as `False`: nothing may be destroyed on it.
    Unknown,
}

impl ConditionStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Puts one condition into the list, which stays sorted by type.
///
/// The time of the last transition moves only if the status does: a list that says nothing new is equal to the one before,
/// and need not be written.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: ConditionType,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    generation: i64,
    now: Time,
) {
    let before = get(conditions, kind).filter(|before| before.status == status.as_str());
    let condition = Condition {
        last_transition_time: before.map_or(now, |before| before.last_transition_time.clone()),
        message: message.into(),
        observed_generation: Some(generation),
        reason: reason.into(),
        status: status.as_str().into(),
        type_: kind.as_str().into(),
    };
    conditions.retain(|other| other.type_ != condition.type_);
    conditions.push(condition);
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
}

pub fn get(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// Whether the condition is there and holds. An unknown one does not.
pub fn is_true(conditions: &[Condition], kind: ConditionType) -> bool {
    get(conditions, kind).is_some_and(|condition| condition.status == ConditionStatus::True.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn saying_the_same_again_changes_nothing() {
        let mut conditions = Vec::new();
        set(&mut conditions, ConditionType::Ready, ConditionStatus::True, "AllNodesReady", "6 of 6", 1, at(10));
        let before = conditions.clone();
        set(&mut conditions, ConditionType::Ready, ConditionStatus::True, "AllNodesReady", "6 of 6", 1, at(20));
        assert_eq!(conditions, before);
    }

    #[test]
    fn the_time_moves_with_the_status_and_not_with_the_words() {
        let mut conditions = Vec::new();
        set(&mut conditions, ConditionType::Ready, ConditionStatus::False, "Starting", "0 of 6", 1, at(10));
        set(&mut conditions, ConditionType::Ready, ConditionStatus::False, "Starting", "3 of 6", 2, at(20));
        let ready = get(&conditions, ConditionType::Ready).unwrap();
        assert_eq!((ready.message.as_str(), ready.observed_generation), ("3 of 6", Some(2)));
        assert_eq!(ready.last_transition_time, at(10));
        set(&mut conditions, ConditionType::Ready, ConditionStatus::True, "AllNodesReady", "6 of 6", 2, at(30));
        assert_eq!(get(&conditions, ConditionType::Ready).unwrap().last_transition_time, at(30));
    }

    #[test]
    fn conditions_are_sorted_by_type_and_each_is_there_once() {
        let mut conditions = Vec::new();
        for kind in [ConditionType::Ready, ConditionType::Accepted, ConditionType::Degraded, ConditionType::Ready] {
            set(&mut conditions, kind, ConditionStatus::Unknown, "Unreachable", "", 1, at(1));
        }
        assert_eq!(conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Accepted", "Degraded", "Ready"]);
        assert!(!is_true(&conditions, ConditionType::Ready));
    }
}
