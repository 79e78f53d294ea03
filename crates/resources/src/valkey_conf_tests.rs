use super::*;
use crate::owned::owned;
use crate::series::Series;
use crate::test_support::checked;

fn lines(spec: &str) -> Vec<String> {
    let cluster = checked(spec);
    valkey_conf(&cluster, &live_settings(&cluster)).lines().map(ToOwned::to_owned).collect()
}

fn has(spec: &str, line: &str) -> bool {
    lines(spec).iter().any(|found| found == line)
}

#[test]
fn every_setting_of_ours_is_known_to_every_release_and_refused_to_users_or_theirs_to_change() {
    let theirs_too = ["cluster-node-timeout", "cluster-preferred-endpoint-type"];
    let images = Series::ALL.map(|series| format!("valkeyImage: {{tag: '{series}'}}"));
    let rest = ["", "tls: {enabled: false}", "persistence: {aof: {autoAofRewritePercentage: 50}}"];
    for (image, rest) in images.iter().flat_map(|image| rest.map(|rest| (image, rest))) {
        let cluster = checked(&format!("{{{image}, {rest}}}"));
        for (name, value) in settings(&cluster) {
            assert!(owned(&name).is_some() || theirs_too.contains(&name.as_str()), "{name}");
            let parameter = parameter(cluster.series, &name).unwrap_or_else(|| panic!("{name} in {image}"));
            assert_eq!(parameter.complaint(&value), None, "{name} in {image}");
        }
    }
}

#[test]
fn what_a_running_server_takes_is_told_apart() {
    let live = live_settings(&checked("{config: {maxclients: '100', databases: '4', cluster-node-timeout: '9000'}}"));
    for name in ["maxmemory", "appendonly", "save", "maxclients", "min-replicas-to-write", "shutdown-on-sigterm"] {
        assert!(live.values.contains_key(name), "{name}");
    }
    let conf = lines("{config: {maxclients: '100', databases: '4', cluster-node-timeout: '9000'}}").join("\n");
    for name in
        ["databases", "cluster-node-timeout", "port", "tls-port", "tls-cert-file", "dir", "unixsocket", "aclfile"]
    {
        assert!(!live.values.contains_key(name) && conf.contains(&format!("\n{name} ")), "{name}");
    }
    assert_eq!(Settings::of_conf(&conf), Some(live));
}

#[test]
fn other_values_have_another_mark_and_the_same_values_the_same() {
    let live = |spec: &str| live_settings(&checked(spec));
    assert_eq!(live("{}"), live("{config: {databases: '4', cluster-node-timeout: '9000'}}"));
    assert_ne!(live("{}").mark, live("{config: {maxclients: '100'}}").mark);
    assert_ne!(live("{}").mark, live("{maxMemory: 1gb}").mark);
    let more = with_setting(&live("{}"), "maxmemory", "7");
    assert_eq!((more.values["maxmemory"].as_str(), more.mark == live("{}").mark), ("7", false));
    assert_eq!(with_setting(&more, "maxmemory", "0"), live("{}"));
}

#[test]
fn settings_go_along_to_another_release_as_far_as_it_takes_them() {
    let of = |tag: &str, config: &str| checked(&format!("{{valkeyImage: {{tag: '{tag}'}}, config: {{{config}}}}}"));
    let old = live_settings(&of("8.0", "dynamic-hz: 'no', maxclients: '100'"));
    let new = carried_over(&of("9.1", "maxclients: '200'"), &old);
    assert!(!new.values.contains_key("dynamic-hz") && new.mark != old.mark);
    assert_eq!(new.values["maxclients"], "100");
    // What the older one takes only when it starts is in the other part of its file.
    let new = live_settings(&of("9.1", "io-threads: '2'"));
    assert!(new.values.contains_key("io-threads"));
    assert!(!carried_over(&of("8.1", "io-threads: '2'"), &new).values.contains_key("io-threads"));
}

#[test]
fn a_failed_handover_ends_early_where_the_server_lets_us_say_so() {
    for (tag, failover, log) in [("8.0", false, false), ("8.1", true, false), ("9.0", true, true), ("9.1", true, true)]
    {
        let spec = format!("{{valkeyImage: {{tag: '{tag}'}}}}");
        assert_eq!(has(&spec, r#"cluster-manual-failover-timeout "2000""#), failover, "{tag}");
        assert_eq!(has(&spec, r#"cluster-slot-migration-log-max-len "50""#), log, "{tag}");
    }
}

#[test]
fn with_tls_there_is_no_plain_port_and_without_there_is_no_certificate() {
    assert!(has("{}", r#"port "0""#) && has("{}", r#"tls-port "6379""#) && has("{}", r#"tls-cluster "yes""#));
    let plain = lines("{tls: {enabled: false}}");
    assert!(plain.contains(&r#"port "6379""#.to_owned()));
    assert!(!plain.iter().any(|line| line.starts_with("tls-")));
}

#[test]
fn what_is_kept_on_disk_follows_the_spec() {
    assert!(has("{}", r#"save "3600 1 300 100 60 10000""#) && has("{}", r#"appendfsync "everysec""#));
    for off in ["{persistence: {enabled: false}}", "{persistence: {rdb: {enabled: false}, aof: {enabled: false}}}"] {
        assert!(has(off, r#"save """#) && has(off, r#"appendonly "no""#), "{off}");
    }
    assert!(has("{persistence: {rdb: {enabled: false}}}", r#"appendonly "yes""#));
}

#[test]
fn a_users_word_replaces_ours_and_each_name_appears_once() {
    let spec = "{config: {cluster-node-timeout: '15000', maxclients: '100'}}";
    let names: Vec<_> = lines(spec)
        .iter()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(' ').next().map(ToOwned::to_owned))
        .collect();
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    assert!(has(spec, r#"cluster-node-timeout "15000""#) && has(spec, r#"maxclients "100""#));
}

#[test]
fn quotes_and_backslashes_survive() {
    let spec = r#"{config: {proc-title-template: 'a "b" \c'}}"#;
    assert!(has(spec, r#"proc-title-template "a \"b\" \\c""#));
}

#[test]
fn only_what_a_running_server_does_not_take_is_a_reason_to_restart() {
    let of = |spec: &str| restart_settings(&checked(spec));
    assert_eq!(of("{}"), of("{config: {maxclients: '100'}, maxMemory: 1gb}"));
    assert_ne!(of("{}"), of("{config: {databases: '4'}}"));
    assert_ne!(of("{valkeyImage: {tag: 8.1.4}}"), of("{valkeyImage: {tag: 8.1.4}, config: {io-threads: '2'}}"));
}

#[test]
fn a_larger_cluster_takes_more_time_to_believe_in_itself() {
    for (spec, expected) in [
        ("{}", "1000"),
        ("{masterCount: 10, replicasPerMaster: 2}", "3000"),
        ("{masterCount: 100, replicasPerMaster: 2}", "4000"),
        ("{masterCount: 10, replicasPerMaster: 2, config: {cluster-node-timeout: \"2000\"}}", "2000"),
    ] {
        assert_eq!(first_start_conf(&checked(spec)), format!("cluster-node-timeout \"{expected}\"\n"), "{spec}");
    }
}
