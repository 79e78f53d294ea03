use super::*;
use crate::test_support::{checked, checked_with_password, cluster};

fn complaints(spec: &str) -> Vec<String> {
    complaints_with(spec, &References::default())
}

fn complaints_with(spec: &str, references: &References) -> Vec<String> {
    let errors = check(&cluster(spec), references).expect_err("a bad spec").0;
    errors.iter().map(ToString::to_string).collect()
}

fn warnings(spec: &str) -> Vec<String> {
    checked(spec).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn an_empty_spec_is_good() {
    let cluster = checked("{}");
    assert_eq!((cluster.masters, cluster.replicas_per_master, cluster.series), (3, 1, Series::V9_1));
    assert_eq!(cluster.image.reference, "docker.io/valkey/valkey:9.1.2");
    assert!(matches!(cluster.access, Access::App));
    assert_eq!(cluster.max_memory, None);
}

#[test]
fn every_error_says_field_value_why_and_what_to_do() {
    for (spec, expected) in [
        (
            "{maxMemory: 2gb, resources: {limits: {memory: 1Gi}}}",
            "spec.maxMemory: 2gb does not fit into the memory limit of 1Gi. Raise resources.limits.memory to at least \
             3414Mi, or set maxMemory: auto (614mb here).",
        ),
        (
            "{maxMemory: 2Gi}",
            "spec.maxMemory: 2Gi is not a size in Valkey's units. Write it as in 2gb or 512mb, or set auto.",
        ),
        (
            "{resources: {limits: {memory: 32Mi}}}",
            "spec.resources.limits.memory: 32Mi is too little for a server to hold anything. Set at least 64Mi.",
        ),
        (
            "{resources: {requests: {cpu: 2}, limits: {cpu: 500m}}}",
            "spec.resources.requests.cpu: 2 is more than the limit of 500m. Lower the request or raise the limit.",
        ),
        (
            "{resources: {requests: {memory: 1GB}}}",
            "spec.resources.requests.memory: 1GB is not an amount. Write it as in 500m for CPU or 2Gi for memory.",
        ),
        (
            "{valkeyImage: {tag: 7.2.5}}",
            "spec.valkeyImage.tag: 7.2.5 is not a supported release. Choose one of 8.0, 8.1, 9.0, 9.1.",
        ),
        ("{persistence: {size: big}}", "spec.persistence.size: big is not a size. Write it as in 10Gi."),
        (
            "{persistence: {rdb: {save: 60 1 300}}}",
            "spec.persistence.rdb.save: \"60 1 300\" is not pairs of seconds and changes. Write it as in 3600 1 300 100, or \
             set rdb.enabled: false.",
        ),
        (
            "{masterCount: 2}",
            "spec.masterCount: 2 primaries cannot agree on a failover. Set 3 or more, or 1 together with \
             allowUnsafeTopology: true.",
        ),
        (
            "{replication: {minReplicasToWrite: 2}}",
            "spec.replication.minReplicasToWrite: 2 is more than the 1 of replicasPerMaster, so every write would be \
             refused. Lower it or add replicas.",
        ),
        (
            "{labels: {valkey.io/role: primary}}",
            "spec.labels.valkey.io/role: this label is how the operator and Kubernetes find their pods. Choose another key.",
        ),
        (
            "{annotations: {'not a key': x}}",
            "spec.annotations.not a key: not a key is no key that Kubernetes takes. Write it as in team or example.com/team.",
        ),
    ] {
        assert_eq!(complaints(spec), [expected], "{spec}");
    }
}

#[test]
fn a_parameter_must_be_known_and_not_ours_and_have_a_value_that_the_server_takes() {
    for (parameter, expected) in [
        ("maxmemory: 1gb", "this parameter must fit into the memory limit. Set spec.maxMemory instead."),
        ("tls-port: '1'", "this parameter belongs to the certificates that the operator makes. Set spec.tls instead."),
        (
            "max-clients: '1'",
            "this parameter is unknown to Valkey 9.1 and would stop the server. Check how it is spelled in Valkey's \
             documentation.",
        ),
        (
            "MaxClients: '1'",
            "this parameter is unknown to Valkey 9.1 and would stop the server. Write it as maxclients.",
        ),
        (
            "maxclients: many",
            "\"many\" is not a whole number from 1 to 4294967295. Correct it, or leave it out for the default.",
        ),
        ("cluster-node-timeout: '500'", "500 is not between 1000 and 60000 milliseconds. Leave it out for 5000."),
        (
            "proc-title-template: \"a\\nb\"",
            "\"a\\nb\" has a line break or another control character, which valkey.conf cannot hold. Remove it.",
        ),
    ] {
        let name = parameter.split(':').next().unwrap();
        let expected = format!("spec.config.{name}: {expected}");
        assert_eq!(complaints(&format!("{{config: {{{parameter}}}}}")), [expected], "{parameter}");
    }
}

#[test]
fn a_parameter_of_another_release_is_refused_with_the_releases_that_have_it() {
    assert_eq!(
        complaints("{valkeyImage: {tag: 8.0.5}, config: {log-format: json}}"),
        [
            "spec.config.log-format: this parameter is unknown to Valkey 8.0 and would stop the server. Leave it out, or run a \
          release that has it: 8.1, 9.0, 9.1."
        ]
    );
}

#[test]
fn all_errors_come_at_once() {
    let found =
        complaints("{masterCount: 2, valkeyImage: {tag: 6.0.0}, config: {port: '1', nonsense: x}, maxMemory: x}");
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn a_missing_secret_or_key_or_service_account_is_named() {
    let spec = "{auth: {secretRef: {name: pw}}, serviceAccountName: robot}";
    let references = References { auth_password: Reference::Missing, service_account: Presence::Missing };
    assert_eq!(
        complaints_with(spec, &references),
        [
            "spec.auth.secretRef: Secret pw does not exist in the cluster's namespace. Create it with the password under the \
             key password, or leave secretRef out to have one generated.",
            "spec.serviceAccountName: robot does not exist in the cluster's namespace. Create that ServiceAccount, or leave \
             the field out.",
        ]
    );
    let references = References { auth_password: Reference::KeyMissing, service_account: Presence::Found };
    assert_eq!(
        complaints_with("{auth: {secretRef: {name: pw, key: pass}}}", &references),
        [
            "spec.auth.secretRef: Secret pw has nothing under the key pass. Put the password there, or name the right key in \
          spec.auth.secretRef.key."
        ]
    );
    assert!(matches!(checked_with_password(spec, "x").access, Access::Default(_)));
}

#[test]
fn auto_leaves_more_room_where_something_forks() {
    let memory = |spec: &str| checked(spec).max_memory.unwrap().in_valkeys_units();
    let limit = "resources: {limits: {memory: 1000Mi}}";
    assert_eq!(memory(&format!("{{{limit}}}")), "600mb");
    assert_eq!(memory(&format!("{{{limit}, persistence: {{enabled: false}}}}")), "600mb");
    assert_eq!(memory(&format!("{{{limit}, persistence: {{enabled: false}}, replicasPerMaster: 0}}")), "750mb");
    assert_eq!(memory(&format!("{{{limit}, maxMemory: 700mb}}")), "700mb");
}

#[test]
fn what_works_but_is_risky_is_a_warning() {
    let limit = "resources: {limits: {memory: 1000Mi}}";
    assert_eq!(warnings(&format!("{{{limit}}}")), Vec::<String>::new());
    for (spec, field) in [
        ("maxMemory: 900mb", "spec.maxMemory: "),
        ("auth: {enabled: false}", "spec.auth.enabled: "),
        ("valkeyImage: {tag: 8.1.1}", "spec.valkeyImage.tag: 8.1.1 has known ways to lose data; use 8.1.4 or newer"),
        ("valkeyImage: {tag: latest}", "spec.valkeyImage.tag: latest does not begin with a version"),
    ] {
        let found = warnings(&format!("{{{limit}, {spec}}}"));
        assert!(found.len() == 1 && found[0].starts_with(field), "{spec}: {found:?}");
    }
    assert_eq!(warnings(&format!("{{{limit}, valkeyImage: {{tag: '9.1'}}}}")), Vec::<String>::new());
}

#[test]
fn the_samples_that_we_ship_are_good_and_give_no_reason_to_warn() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/samples");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let sample: ValkeyCluster = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let checked = check(&sample, &References::default()).unwrap();
        // The smallest one has no memory limit, and is told so.
        let expected = usize::from(sample.spec.resources.is_none());
        assert_eq!(checked.warnings.len(), expected, "{}: {:?}", path.display(), checked.warnings);
    }
}
