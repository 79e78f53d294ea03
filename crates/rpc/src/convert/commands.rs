//! Commands and what became of them.

use std::time::Duration;

use valkey_model::{Action, Member, Settings, Way};

use super::{Malformed, address, milliseconds};
use crate::message::Outcome;
use crate::proto;

impl From<&Action> for proto::Command {
    /// Who carries it out is not part of the command: it is whoever receives it.
    fn from(action: &Action) -> Self {
        use proto::command::Action as Wire;
        let action = match action {
            Action::SetEpoch { on: _, epoch } => Wire::SetEpoch(proto::SetEpoch { epoch: *epoch }),
            Action::AddSlots { on: _, slots } => Wire::AddSlots(proto::AddSlots { slots: slots.to_string() }),
            Action::Meet { on: _, address } => Wire::Meet(proto::Meet { address: address.to_string() }),
            Action::Replicate { on: _, primary } => Wire::Replicate(proto::Replicate { primary: primary.to_string() }),
            Action::TakeOver { on: _ } => Wire::TakeOver(proto::TakeOver {}),
            Action::HandOver { on: _ } => Wire::HandOver(proto::HandOver {}),
            Action::Migrate { on: _, slots, to, way: its_way } => Wire::Migrate(proto::Migrate {
                slots: slots.to_string(),
                to: to.to_string(),
                way: way(*its_way).into(),
            }),
            Action::Forget { on: _, id } => Wire::Forget(proto::Forget { id: id.to_string() }),
            Action::SetNodeTimeout { on: _, timeout } => {
                Wire::SetNodeTimeout(proto::SetNodeTimeout { milliseconds: milliseconds(*timeout) })
            }
            Action::Configure { on: _, settings: Settings { mark, values } } => {
                Wire::Configure(proto::Configure { mark: mark.clone(), values: values.clone().into_iter().collect() })
            }
            Action::Release { on: _ } => Wire::Release(proto::Release {}),
        };
        Self { action: Some(action) }
    }
}

/// The action that a command means for the member that received it.
pub fn action(command: proto::Command, on: Member) -> Result<Action, Malformed> {
    use proto::command::Action as Wire;
    Ok(match command.action.ok_or(Malformed::Lacks("a command that this version knows"))? {
        Wire::SetEpoch(proto::SetEpoch { epoch }) => Action::SetEpoch { on, epoch },
        Wire::AddSlots(proto::AddSlots { slots }) => Action::AddSlots { on, slots: slots.parse()? },
        Wire::Meet(proto::Meet { address: at }) => Action::Meet { on, address: address(&at)? },
        Wire::Replicate(proto::Replicate { primary }) => Action::Replicate { on, primary: primary.parse()? },
        Wire::TakeOver(proto::TakeOver {}) => Action::TakeOver { on },
        Wire::HandOver(proto::HandOver {}) => Action::HandOver { on },
        Wire::Migrate(migrate) => {
            let way = parsed_way(migrate.way(), migrate.way)?;
            Action::Migrate { on, slots: migrate.slots.parse()?, to: migrate.to.parse()?, way }
        }
        Wire::Forget(proto::Forget { id }) => Action::Forget { on, id: id.parse()? },
        Wire::SetNodeTimeout(proto::SetNodeTimeout { milliseconds }) => {
            Action::SetNodeTimeout { on, timeout: Duration::from_millis(milliseconds) }
        }
        Wire::Configure(proto::Configure { mark, values }) => {
            Action::Configure { on, settings: Settings { mark, values: values.into_iter().collect() } }
        }
        Wire::Release(proto::Release {}) => Action::Release { on },
    })
}

impl From<Outcome> for proto::Outcome {
    fn from(outcome: Outcome) -> Self {
        use proto::outcome::Result as Wire;
        let result = match outcome {
            Outcome::Done => Wire::Done(proto::Done {}),
            Outcome::Refused(words) => Wire::Refused(words),
            Outcome::Skipped => Wire::Skipped(proto::Skipped {}),
        };
        Self { result: Some(result) }
    }
}

impl TryFrom<proto::Outcome> for Outcome {
    type Error = Malformed;

    fn try_from(outcome: proto::Outcome) -> Result<Self, Malformed> {
        use proto::outcome::Result as Wire;
        Ok(match outcome.result.ok_or(Malformed::Lacks("an outcome"))? {
            Wire::Done(proto::Done {}) => Self::Done,
            Wire::Refused(words) => Self::Refused(words),
            Wire::Skipped(proto::Skipped {}) => Self::Skipped,
        })
    }
}

fn way(way: Way) -> proto::Way {
    match way {
        Way::Atomic => proto::Way::Atomic,
        Way::Classic => proto::Way::Classic,
    }
}

fn parsed_way(way: proto::Way, value: i32) -> Result<Way, Malformed> {
    match way {
        proto::Way::Atomic => Ok(Way::Atomic),
        proto::Way::Classic => Ok(Way::Classic),
        proto::Way::Unspecified => Err(Malformed::Unknown { what: "way", value }),
    }
}
