use super::*;
use crate::test_support::{checked, checked_with_password, passwords};

fn lines(cluster: &CheckedCluster) -> Vec<String> {
    users_acl(cluster, &passwords()).expose_secret().lines().map(ToOwned::to_owned).collect()
}

fn line(cluster: &CheckedCluster, user: &str) -> Option<String> {
    lines(cluster).into_iter().find(|line| line.starts_with(&format!("user {user} ")))
}

#[test]
fn the_default_user_is_off_with_its_rights_unless_the_spec_opens_it() {
    assert_eq!(line(&checked("{}"), "default").unwrap(), "user default off resetpass ~* &* +@all");
    assert_eq!(line(&checked("{auth: {enabled: false}}"), "default").unwrap(), "user default on nopass ~* &* +@all");
    // `printf secret | sha256sum`
    assert_eq!(
        line(&checked_with_password("{auth: {secretRef: {name: pw}}}", "secret"), "default").unwrap(),
        "user default on resetpass #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~* &* +@all"
    );
}

#[test]
fn the_user_of_applications_is_there_only_if_nothing_else_lets_them_in() {
    assert!(line(&checked("{}"), APP).is_some());
    assert!(line(&checked("{auth: {enabled: false}}"), APP).is_none());
    assert!(line(&checked_with_password("{auth: {secretRef: {name: pw}}}", "secret"), APP).is_none());
}

#[test]
fn the_replication_user_may_move_slots_only_where_the_server_knows_how() {
    for (tag, atomic) in [("8.0.5", false), ("8.1.4", false), ("9.0.1", true), ("9.1.2", true)] {
        let cluster = checked(&format!("{{valkeyImage: {{tag: {tag}}}}}"));
        assert_eq!(line(&cluster, REPLICATOR).unwrap().contains("cluster|syncslots"), atomic, "{tag}");
    }
}

/// The rule of a user, without its password.
fn rule(tag: &str, user: &str) -> String {
    let line = line(&checked(&format!("{{valkeyImage: {{tag: {tag}}}}}")), user).unwrap();
    line.split_ascii_whitespace().skip(4).collect::<Vec<_>>().join(" ")
}

#[test]
fn keys_that_are_moved_come_in_as_the_replication_user_and_in_no_other_way() {
    assert_eq!(rule("8.1.4", REPLICATOR), "~* -@all +psync +replconf +ping +restore-asking +select");
    for tag in ["8.0.5", "9.1.2"] {
        let admin = rule(tag, ADMIN);
        assert!(admin.split(' ').any(|right| right == "+migrate"), "{admin}");
        for right in ["+restore", "+restore-asking", "+@write", "+@all", "+get", "+set", "+select"] {
            assert!(!admin.split(' ').any(|word| word == right), "{tag}: {right}");
        }
    }
}

#[test]
fn applications_cannot_move_slots() {
    assert_eq!(rule("9.1.2", APP), "~* &* +@all -@admin -@dangerous +info +role +keys +sort +flushdb +flushall");
}

#[test]
fn no_password_is_written_in_clear() {
    let text = lines(&checked("{}")).join("\n");
    for password in ["for-admin", "for-replicator", "for/app"] {
        assert!(!text.contains(password));
    }
    assert!(!format!("{:?}", users_acl(&checked("{}"), &passwords())).contains("user"));
}
