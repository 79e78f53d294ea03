use std::collections::BTreeMap;

use proptest::prelude::*;
use valkey_model::{RefusedSettings, Sighting, Version};

use super::*;
use crate::fixtures::{Fixture, member};

fn settings(mark: &str) -> Settings {
    Settings { mark: mark.into(), values: BTreeMap::new() }
}

/// A cluster of which every node has the settings `old`; wanted are the settings `new`.
fn cluster(shards: u16, replicas: u16) -> Fixture {
    let mut cluster = Fixture::formed(shards, replicas);
    for member in cluster.desired.members() {
        cluster.report(&member.to_string()).settings = Some(TakenSettings { mark: "old".into(), refused: None });
    }
    want(&mut cluster, "new", "old");
    cluster
}

fn want(cluster: &mut Fixture, wanted: &str, good: &str) {
    cluster.seen.settings =
        Some(WantedSettings { wanted: settings(wanted), good: settings(good), refused: None, release: None });
}

fn has(cluster: &mut Fixture, on: &str, mark: &str) {
    cluster.report(on).settings = Some(TakenSettings { mark: mark.into(), refused: None });
}

fn refuses(cluster: &mut Fixture, on: &str, mark: &str) {
    let refused = RefusedSettings { mark: mark.into(), words: "ERR CONFIG SET failed".into() };
    cluster.report(on).settings.as_mut().unwrap().refused = Some(refused);
}

/// Who is given what.
fn given(cluster: &Fixture) -> Vec<(String, String)> {
    let step = |step: Step| match step.action {
        Action::Configure { on, settings } => (on.to_string(), settings.mark),
        other => panic!("{other:?}"),
    };
    steps(&cluster.view()).into_iter().map(step).collect()
}

fn to(mark: &str, members: &[&str]) -> Vec<(String, String)> {
    members.iter().map(|member| ((*member).to_owned(), mark.to_owned())).collect()
}

#[test]
fn a_replica_tries_new_settings_first_and_then_all_get_them() {
    let mut cluster = cluster(2, 1);
    assert_eq!(given(&cluster), to("new", &["0-1"]));
    has(&mut cluster, "0-1", "new");
    assert_eq!(given(&cluster), to("new", &["0-0", "1-0", "1-1"]));
    for on in ["0-0", "1-0", "1-1"] {
        has(&mut cluster, on, "new");
    }
    assert_eq!(given(&cluster), []);
    assert_eq!(progress(&cluster.view()), None);
}

#[test]
fn without_replicas_one_primary_tries_them() {
    assert_eq!(given(&cluster(3, 0)), to("new", &["0-0"]));
}

#[test]
fn everybody_gets_the_former_settings_back_when_one_refuses() {
    let mut cluster = cluster(2, 1);
    for on in ["0-1", "0-0", "1-0"] {
        has(&mut cluster, on, "new");
    }
    refuses(&mut cluster, "1-1", "new");
    assert_eq!(given(&cluster), to("old", &["0-0", "0-1", "1-0"]));
    let told = progress(&cluster.view()).unwrap();
    assert_eq!((told.done, told.of, told.operation), (1, 4, Operation::Configuring));
    for on in ["0-1", "0-0", "1-0"] {
        has(&mut cluster, on, "old");
    }
    assert_eq!(given(&cluster), [], "it is not tried again");
}

#[test]
fn a_refusal_counts_even_if_the_one_who_refused_is_gone() {
    let mut cluster = cluster(2, 1);
    has(&mut cluster, "0-1", "new");
    let refusal = Some((member("1-1"), "ERR".to_owned()));
    cluster.seen.settings.as_mut().unwrap().refused = refusal;
    cluster.see("1-1", Sighting::Missing);
    assert_eq!(given(&cluster), to("old", &["0-1"]));
}

#[test]
fn another_edit_is_tried_whatever_was_refused_before_it() {
    let mut cluster = cluster(2, 1);
    has(&mut cluster, "0-0", "new");
    refuses(&mut cluster, "0-1", "new");
    want(&mut cluster, "newest", "old");
    assert_eq!(given(&cluster), to("newest", &["0-1"]));
}

#[test]
fn an_edit_that_is_taken_back_is_undone_where_it_was_tried() {
    let mut cluster = cluster(2, 1);
    has(&mut cluster, "0-1", "new");
    want(&mut cluster, "old", "old");
    assert_eq!(given(&cluster), to("old", &["0-1"]));
}

#[test]
fn a_node_that_came_back_with_older_settings_gets_the_present_ones() {
    let mut cluster = cluster(2, 1);
    want(&mut cluster, "old", "old");
    for unsure in ["older", ""] {
        has(&mut cluster, "1-0", unsure);
        assert_eq!(given(&cluster), to("old", &["1-0"]));
    }
    refuses(&mut cluster, "1-0", "old");
    assert_eq!(given(&cluster), [], "what it refuses it is not given again and again");
}

#[test]
fn nobody_is_given_settings_who_cannot_take_them() {
    let mut cluster = cluster(2, 1);
    cluster.report("0-1").loading = true;
    cluster.report("1-1").settings = None;
    cluster.seen.going.insert(member("0-0"));
    assert_eq!(given(&cluster), to("new", &["1-0"]));
    cluster.see("1-0", Sighting::Unreachable);
    assert_eq!(given(&cluster), []);
    cluster.seen.settings = None;
    assert_eq!(given(&cluster), []);
}

#[test]
fn settings_of_another_release_are_not_tried_on_those_who_may_not_know_them() {
    let mut cluster = cluster(2, 1);
    cluster.seen.settings.as_mut().unwrap().release = Some(Release { major: 9, minor: 1 });
    for old in ["0-0", "0-1", "1-1"] {
        cluster.report(old).version = Version::new(8, 1, 4);
    }
    assert_eq!(given(&cluster), to("new", &["1-0"]));
}

/// A small world: nodes that take what they are given, unless they cannot stand it.
struct World {
    cluster: Fixture,
    /// Which settings which node refuses.
    dislikes: Vec<(Member, String)>,
    refused: Option<(String, Member)>,
}

impl World {
    fn pass(&mut self, reach: usize) {
        let seen = self.cluster.seen.settings.clone().unwrap();
        let done = steps(&self.cluster.view());
        let new = |step: &&Step| matches!(&step.action, Action::Configure { settings, .. } if *settings != seen.good);
        let has_it = |mark: &str| self.cluster.seen.reports().any(|(_, r)| r.settings.as_ref().unwrap().mark == mark);
        assert!(done.iter().filter(new).count() <= 1 || has_it(&seen.wanted.mark), "all at once, untried");
        for step in done.into_iter().take(reach) {
            let Action::Configure { on, settings } = step.action else { panic!("{step:?}") };
            if self.dislikes.contains(&(on, settings.mark.clone())) {
                refuses(&mut self.cluster, &on.to_string(), &settings.mark);
                self.refused = Some((settings.mark, on));
            } else {
                has(&mut self.cluster, &on.to_string(), &settings.mark);
            }
        }
        // As the operator has it: pods start with what every node has.
        let settings = self.cluster.seen.settings.as_mut().unwrap();
        let refused = self.refused.as_ref().filter(|(mark, _)| *mark == settings.wanted.mark);
        settings.refused = refused.map(|(_, member)| (*member, "ERR".into()));
        let wanted = settings.wanted.clone();
        let everybody = self.cluster.seen.reports().all(|(_, r)| r.settings.as_ref().unwrap().mark == wanted.mark);
        if everybody {
            self.cluster.seen.settings.as_mut().unwrap().good = wanted;
        }
    }
}

proptest! {
    #[test]
    fn all_nodes_end_with_the_same_settings_and_nothing_is_left_to_do(
        shards in 1..=3_u16, replicas in 0..=2_u16,
        edits in prop::collection::vec((0..4_u8, 0..4_usize, 0..3_u16, 0..3_u16), 1..8),
        dislikes in prop::collection::vec((0..3_u16, 0..3_u16, 1..4_u8), 0..4),
        reach in 1..5_usize,
    ) {
        let member = |shard: u16, ordinal: u16| Member::new(shard % shards, ordinal % (replicas + 1));
        let dislikes = dislikes.into_iter().map(|(shard, ordinal, edit)| (member(shard, ordinal), format!("s{edit}")));
        let mut world = World { cluster: cluster(shards, replicas), dislikes: dislikes.collect(), refused: None };
        for (edit, passes, shard, ordinal) in edits {
            world.cluster.seen.settings.as_mut().unwrap().wanted = settings(&format!("s{edit}"));
            world.cluster.seen.settings.as_mut().unwrap().refused = None;
            for _ in 0..passes {
                world.pass(reach);
            }
            // A server is restarted: it has what pods start with.
            let good = world.cluster.seen.settings.as_ref().unwrap().good.mark.clone();
            has(&mut world.cluster, &member(shard, ordinal).to_string(), &good);
        }
        for _ in 0..60 {
            world.pass(reach);
        }
        let WantedSettings { wanted, good, refused, .. } = world.cluster.seen.settings.clone().unwrap();
        let liked = !world.dislikes.iter().any(|(_, mark)| *mark == wanted.mark);
        let expected = if liked { &wanted.mark } else { &good.mark };
        for (_, report) in world.cluster.seen.reports() {
            prop_assert_eq!(&report.settings.as_ref().unwrap().mark, expected);
        }
        // Who refused them before still says so, and is not asked again.
        let refuses = |report: &NodeReport| {
            let taken = report.settings.as_ref().and_then(|taken| taken.refused.as_ref());
            taken.is_some_and(|refused| refused.mark == wanted.mark)
        };
        let is_refused = refused.is_some() || world.cluster.seen.reports().any(|(_, report)| refuses(report));
        prop_assert_eq!(is_refused, !liked && wanted != good);
        prop_assert!(steps(&world.cluster.view()).is_empty());
    }
}
