//! The launch guard for a server that cannot read its own data, since a newer release has written it.
//!
//! That is a rollback: the pod comes back with the former image on a volume that the newer one has used. Such data is not gone.
//! It may only be put aside, never deleted, and only if somebody else has the shard's data and leads it: then this server copies it
//! anew. Else it waits, since its disk may hold the last copy.

use valkey_model::{NodeId, Role};

use super::{HoldReason, Past, Released};

/// What a peer says that itself leads the shard of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    pub id: NodeId,
    pub config_epoch: u64,
    pub copy: Copied,
}

/// Whether a leader has the data of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// It has keys, or has replicated: an empty shard is a whole one, too.
    Yes,
    /// Nothing proves that it has, or it still loads.
    NotProven,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Put the data aside and start empty.
    SetAside(AsideReason),
    Hold(HoldReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsideReason {
    HadNoSlots,
    LeaderHasCopy,
    Released,
}

/// Decides about a server whose data is unreadable for it. Asked again and again until it may start.
pub fn remedy(past: &Past, leaders: &[Leader], released: Released) -> Remedy {
    if past.role == Role::Primary && past.slots.is_empty() {
        return Remedy::SetAside(AsideReason::HadNoSlots);
    }
    if leaders.iter().any(|leader| is_better(past, leader)) {
        return Remedy::SetAside(AsideReason::LeaderHasCopy);
    }
    // The operator releases such a server only when it sees the shard's primary, which may be where we do not find it: after a
    // restart of all pods the addresses in our table are old.
    if released == Released::ByOperator {
        return Remedy::SetAside(AsideReason::Released);
    }
    Remedy::Hold(HoldReason::Unreadable)
}

/// Whether following it loses nothing. One from before this server's own time, or with nothing proven, does not count.
fn is_better(past: &Past, leader: &Leader) -> bool {
    let newer = match past.role {
        Role::Primary => leader.config_epoch > past.config_epoch,
        Role::Replica => leader.config_epoch >= past.config_epoch,
    };
    leader.id != past.id && newer && leader.copy == Copied::Yes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use valkey_model::SlotSet;

    use super::*;

    const ME: NodeId = NodeId::from_bytes([1; 20]);
    const OTHER: NodeId = NodeId::from_bytes([2; 20]);
    const EPOCH: u64 = 5;

    fn past(role: Role) -> Past {
        let slots = if role == Role::Primary { SlotSet::all() } else { SlotSet::EMPTY };
        Past { id: ME, role, slots, replicas: vec![], config_epoch: EPOCH }
    }

    fn leader(config_epoch: u64, copy: Copied) -> Leader {
        Leader { id: OTHER, config_epoch, copy }
    }

    fn remedy_of(role: Role, leaders: &[Leader]) -> Remedy {
        remedy(&past(role), leaders, Released::NotYet)
    }

    const HELD: Remedy = Remedy::Hold(HoldReason::Unreadable);
    const ASIDE: Remedy = Remedy::SetAside(AsideReason::LeaderHasCopy);

    #[test]
    fn a_replica_copies_its_primary_anew() {
        assert_eq!(remedy_of(Role::Replica, &[leader(EPOCH, Copied::Yes)]), ASIDE);
        assert_eq!(remedy_of(Role::Replica, &[leader(EPOCH + 1, Copied::Yes)]), ASIDE);
    }

    #[test]
    fn a_primary_waits_until_its_shard_has_another_one() {
        assert_eq!(remedy_of(Role::Primary, &[]), HELD);
        assert_eq!(remedy_of(Role::Primary, &[leader(EPOCH, Copied::Yes)]), HELD);
        assert_eq!(remedy_of(Role::Primary, &[leader(EPOCH + 1, Copied::Yes)]), ASIDE);
    }

    #[test]
    fn the_last_copy_is_never_put_aside() {
        for role in [Role::Primary, Role::Replica] {
            for leaders in [&[][..], &[leader(EPOCH + 1, Copied::NotProven)], &[leader(EPOCH - 1, Copied::Yes)]] {
                assert_eq!(remedy_of(role, leaders), HELD, "{role:?} {leaders:?}");
            }
            let myself = Leader { id: ME, ..leader(EPOCH + 1, Copied::Yes) };
            assert_eq!(remedy_of(role, &[myself]), HELD, "its own name in somebody's mouth");
        }
    }

    #[test]
    fn one_without_slots_has_nothing_that_anybody_needs() {
        let past = Past { slots: SlotSet::EMPTY, ..past(Role::Primary) };
        assert_eq!(remedy(&past, &[], Released::NotYet), Remedy::SetAside(AsideReason::HadNoSlots));
    }

    #[test]
    fn the_operator_sees_leaders_that_this_server_does_not_find() {
        assert_eq!(remedy(&past(Role::Primary), &[], Released::ByOperator), Remedy::SetAside(AsideReason::Released));
    }

    proptest! {
        #[test]
        fn without_a_proven_copy_elsewhere_nothing_is_put_aside(epochs in prop::collection::vec(0..20_u64, 0..5), primary: bool) {
            let leaders: Vec<_> = epochs.into_iter().map(|epoch| leader(epoch, Copied::NotProven)).collect();
            let role = if primary { Role::Primary } else { Role::Replica };
            prop_assert_eq!(remedy_of(role, &leaders), HELD);
        }
    }
}
