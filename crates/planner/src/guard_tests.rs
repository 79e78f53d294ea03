use proptest::prelude::*;

use super::*;

const ME: NodeId = NodeId::from_bytes([1; 20]);
const REPLICA: NodeId = NodeId::from_bytes([2; 20]);
const EPOCH: u64 = 5;

fn primary(data: LocalData) -> Launch {
    let past =
        Past { id: ME, role: Role::Primary, slots: SlotSet::all(), replicas: vec![REPLICA], config_epoch: EPOCH };
    Launch { was: Some(past), data }
}

fn replica_with(has_data: bool) -> PeerWord {
    PeerWord::Says { owner_of_my_slots: Some(ME), epoch: EPOCH, is_my_replica: true, has_data }
}

fn owner(owner: NodeId, epoch: u64) -> PeerWord {
    PeerWord::Says { owner_of_my_slots: Some(owner), epoch, is_my_replica: false, has_data: true }
}

fn judge_at(launch: &Launch, peers: &[PeerWord], seconds: u64) -> Verdict {
    judge(launch, peers, Duration::from_secs(seconds), Released::NotYet)
}

#[test]
fn who_can_do_no_harm_starts_at_once() {
    let with = |change: &dyn Fn(&mut Past)| {
        let mut launch = primary(LocalData::Gone);
        launch.was.iter_mut().for_each(change);
        launch
    };
    for (launch, reason) in [
        (Launch { was: None, data: LocalData::Gone }, GoReason::FirstStart),
        (with(&|past| past.role = Role::Replica), GoReason::WasReplica),
        (with(&|past| past.slots = SlotSet::EMPTY), GoReason::HadNoSlots),
        (primary(LocalData::Complete), GoReason::DataComplete),
    ] {
        assert_eq!(judge_at(&launch, &[replica_with(true)], 0), Verdict::Go(reason), "{reason}");
    }
}

#[test]
fn a_primary_without_its_data_waits_for_its_replicas() {
    for data in [LocalData::Gone, LocalData::Old] {
        let launch = primary(data);
        assert_eq!(judge_at(&launch, &[PeerWord::Silent], 59), Verdict::Hold(HoldReason::WaitingForReplicas));
        assert_eq!(judge_at(&launch, &[replica_with(true)], 3600), Verdict::Hold(HoldReason::ReplicaHasMore));
        assert_eq!(
            judge_at(&launch, &[PeerWord::Silent, replica_with(false)], 60),
            Verdict::Go(GoReason::NobodyHasMore)
        );
    }
}

#[test]
fn a_primary_that_comes_back_with_nothing_waits_also_if_it_knows_of_no_replica() {
    let mut launch = primary(LocalData::Gone);
    launch.was.iter_mut().for_each(|past| past.replicas.clear());
    assert_eq!(judge_at(&launch, &[], 59), Verdict::Hold(HoldReason::WaitingForReplicas));
    assert_eq!(judge_at(&launch, &[], 60), Verdict::Go(GoReason::NobodyHasMore));
}

#[test]
fn a_primary_with_an_old_snapshot_that_knows_of_no_replica_asks_whether_there_is_one() {
    let mut launch = primary(LocalData::Old);
    launch.was.iter_mut().for_each(|past| past.replicas.clear());
    let other = owner(ME, EPOCH);
    assert_eq!(
        judge_at(&launch, &[replica_with(true), other.clone()], 3600),
        Verdict::Hold(HoldReason::ReplicaHasMore)
    );
    assert_eq!(judge_at(&launch, std::slice::from_ref(&other), 0), Verdict::Go(GoReason::HadNoReplicas));
    let silent = [other, PeerWord::Silent];
    assert_eq!(judge_at(&launch, &silent, 4), Verdict::Hold(HoldReason::WaitingForReplicas));
    assert_eq!(judge_at(&launch, &silent, 5), Verdict::Go(GoReason::HadNoReplicas));
}

#[test]
fn a_primary_that_was_succeeded_starts() {
    let launch = primary(LocalData::Gone);
    let peers = [replica_with(true), owner(REPLICA, EPOCH + 1)];
    assert_eq!(judge_at(&launch, &peers, 0), Verdict::Go(GoReason::Succeeded));
    let outdated = [replica_with(true), owner(REPLICA, EPOCH - 1)];
    assert_eq!(judge_at(&launch, &outdated, 0), Verdict::Hold(HoldReason::ReplicaHasMore));
}

#[test]
fn a_server_that_cannot_read_its_data_does_not_start_with_it_whatever_it_was() {
    let mut launch = primary(LocalData::Unreadable);
    for role in [Role::Primary, Role::Replica] {
        launch.was.iter_mut().for_each(|past| past.role = role);
        for released in [Released::NotYet, Released::ByOperator] {
            let verdict = judge(&launch, &[owner(REPLICA, EPOCH + 1)], Duration::from_hours(1), released);
            assert_eq!(verdict, Verdict::Hold(HoldReason::Unreadable), "{role:?} {released:?}");
        }
    }
}

#[test]
fn the_operator_has_the_last_word() {
    let verdict = judge(&primary(LocalData::Gone), &[replica_with(true)], Duration::ZERO, Released::ByOperator);
    assert_eq!(verdict, Verdict::Go(GoReason::Released));
}

proptest! {
    #[test]
    fn a_replica_with_data_is_never_overruled_by_time_alone(seconds in 0..100_000_u64, silent in 0..5_usize) {
        let mut peers = vec![PeerWord::Silent; silent];
        peers.push(replica_with(true));
        prop_assert_eq!(judge_at(&primary(LocalData::Gone), &peers, seconds), Verdict::Hold(HoldReason::ReplicaHasMore));
    }
}
