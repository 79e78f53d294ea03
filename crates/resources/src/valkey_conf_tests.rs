use super::*;
use crate::owned::owned;
use crate::series::Series;
use crate::test_support::checked;

fn lines(spec: &str) -> Vec<String> {
    valkey_conf(&checked(spec)).lines().map(ToOwned::to_owned).collect()
}

fn has(spec: &str, line: &str) -> bool {
    lines(spec).iter().any(|found| found == line)
}

#[test]
fn every_setting_of_ours_is_known_to_every_release_and_refused_to_users_or_theirs_to_change() {
    let theirs_too = ["cluster-node-timeout", "cluster-preferred-endpoint-type"];
    for spec in ["{}", "{tls: {enabled: false}}", "{persistence: {aof: {autoAofRewritePercentage: 50}}}"] {
        for (name, value) in settings(&checked(spec)) {
            assert!(owned(&name).is_some() || theirs_too.contains(&name.as_str()), "{name}");
            for series in Series::ALL {
                let parameter = parameter(series, &name).unwrap_or_else(|| panic!("{name} in {series}"));
                assert_eq!(parameter.complaint(&value), None, "{name} in {series}");
            }
        }
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
    let names: Vec<_> =
        lines(spec).iter().skip(1).filter_map(|line| line.split(' ').next().map(ToOwned::to_owned)).collect();
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
