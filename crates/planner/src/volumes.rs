//! Volumes that grow while everything else goes on. Kubernetes does it; here are the words.

use valkey_model::Growth;

use crate::view::ClusterView;
use crate::{Operation, Progress};

pub(crate) fn progress(view: &ClusterView) -> Option<Progress> {
    let Growth { to, done, of, waiting_for } = view.seen().growth.clone()?;
    let message = format!("{done} of {of} volumes have grown to {to}");
    Some(Progress { operation: Operation::Growing, done, of, message, waiting_for, load: None })
}

#[cfg(test)]
mod tests {
    use valkey_model::Growth;

    use crate::fixtures::Fixture;
    use crate::{Operation, State, plan};

    #[test]
    fn volumes_that_grow_are_told_of_and_keep_nobody_from_being_well() {
        let mut cluster = Fixture::formed(3, 1);
        cluster.seen.growth = Some(Growth {
            to: "20Gi".into(),
            done: 1,
            of: 6,
            waiting_for: Some("volume data-orders-0-1 to grow".into()),
        });
        let plan = plan(cluster.desired, &cluster.seen);
        let State::Working(told) = &plan.state else { panic!("{plan:?}") };
        assert_eq!((told.operation, told.message.as_str()), (Operation::Growing, "1 of 6 volumes have grown to 20Gi"));
        assert!(plan.state.is_sound());
        assert_eq!(plan.steps().count(), 0);
    }
}
