use super::*;
use crate::fixtures::Fixture;
use crate::formation::heads;
use crate::scaling::left_to_do;

fn refused(cluster: &Fixture) -> Option<String> {
    let view = cluster.view();
    let heads = heads(&view);
    refusal(&view, &heads, &left_to_do(&view, &heads))
}

/// Four shards that use so much of what they may.
fn using(memory: u64, max_memory: u64) -> Fixture {
    let mut cluster = Fixture::formed(4, 0);
    for shard in 0..4 {
        let report = cluster.report(&format!("{shard}-0"));
        (report.memory, report.max_memory) = (memory * 1_000_000, max_memory * 1_000_000);
    }
    cluster
}

#[test]
fn a_shard_may_leave_if_the_others_have_room_for_its_data_and_a_fifth_more() {
    // Each of three others gets a third of 60 MB, and a fifth of that to be safe: 60 + 20 + 4.
    assert_eq!(refused(using(60, 85).want(3, 0)), None);
    let told = refused(using(60, 84).want(3, 0)).unwrap();
    for figure in ["shards 3", "shard 0 uses 60 MB of the 84 MB", "would get 20 MB more"] {
        assert!(told.contains(figure), "{told}");
    }
}

#[test]
fn without_a_limit_there_is_always_room() {
    assert_eq!(refused(using(60, 0).want(1, 0)), None);
}

#[test]
fn a_cluster_that_grows_needs_no_room() {
    let mut cluster = Fixture::with_slots(&["0-8191", "8192-16383", ""], 0);
    cluster.report("0-0").memory = 99;
    cluster.report("0-0").max_memory = 100;
    assert_eq!(refused(&cluster), None);
}
