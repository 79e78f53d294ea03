use std::collections::BTreeMap;

use super::*;

fn crd(plural: &str) -> CustomResourceDefinition {
    crds().into_iter().find(|crd| crd.spec.names.plural == plural).unwrap()
}

fn schema(crd: &CustomResourceDefinition) -> JSONSchemaProps {
    crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap()
}

/// Every schema below this one, with its path.
fn walk<'s>(path: &str, schema: &'s JSONSchemaProps, found: &mut BTreeMap<String, &'s JSONSchemaProps>) {
    found.insert(path.into(), schema);
    for (name, property) in schema.properties.iter().flatten() {
        walk(&format!("{path}.{name}"), property, found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        walk(&format!("{path}[]"), item, found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
        walk(&format!("{path}{{}}"), value, found);
    }
}

#[test]
fn every_kind_has_its_names_and_a_status() {
    let found: Vec<_> = crds()
        .into_iter()
        .map(|crd| {
            let names = crd.spec.names;
            assert_eq!(names.categories.unwrap(), ["valkey"]);
            assert!(crd.spec.versions[0].subresources.as_ref().unwrap().status.is_some());
            (names.kind, crd.metadata.name.unwrap(), names.short_names.unwrap().concat())
        })
        .collect();
    let expected = [
        ("ValkeyCluster", "valkeyclusters.valkey.io", "vc"),
        ("ValkeyClusterStatus", "valkeyclusterstatuses.valkey.io", "vcs"),
        ("ValkeyUpgrade", "valkeyupgrades.valkey.io", "vu"),
        ("ValkeyCA", "valkeycas.valkey.io", "vca"),
        ("ValkeyCertificateBundle", "valkeycertificatebundles.valkey.io", "vcb"),
        ("ValkeyCertificateBinding", "valkeycertificatebindings.valkey.io", "vcbind"),
    ];
    assert_eq!(found, expected.map(|(kind, name, short)| (kind.into(), name.into(), short.into())));
}

#[test]
fn every_definition_says_that_it_is_ours() {
    for crd in crds() {
        assert_eq!(crd.metadata.labels.unwrap()["app.kubernetes.io/managed-by"], "valkey-operator");
        assert_eq!(crd.metadata.annotations.unwrap()["valkey.io/crd-owner"], "valkey-operator");
    }
}

#[test]
fn no_field_takes_null_and_no_spec_field_is_required_and_only_what_scales_is_defaulted() {
    let schema = schema(&crd("valkeyclusters"));
    let mut found = BTreeMap::new();
    walk("", &schema, &mut found);
    assert!(found.values().all(|schema| schema.nullable.is_none()));
    assert!(found.values().flat_map(|schema| schema.enum_.iter().flatten()).all(|value| !value.0.is_null()));
    let defaulted: Vec<_> =
        found.iter().filter(|(_, schema)| schema.default.is_some()).map(|(path, _)| path.as_str()).collect();
    // A cluster without a spec has an empty one; without a number of shards `kubectl scale` and autoscalers would not find it.
    assert_eq!(defaulted, [".spec", ".spec.masterCount"]);
    let built_in = crate::cluster::ValkeyClusterSpec::default().master_count();
    assert_eq!(found[".spec.masterCount"].default.as_ref().unwrap().0, serde_json::json!(built_in));
    assert_eq!((&found[""].required, &found[".spec"].required), (&None, &None));
}

#[test]
fn every_rule_of_ours_names_its_field_and_says_what_to_do() {
    for crd in crds() {
        let schema = schema(&crd);
        let mut found = BTreeMap::new();
        walk("", &schema, &mut found);
        for (path, schema) in found {
            for rule in schema.x_kubernetes_validations.iter().flatten() {
                let message = rule.message.as_deref().unwrap();
                // A field's own rule names that field, one of the whole spec or object a field below it.
                assert!(message.starts_with(path.strip_prefix('.').unwrap_or("metadata.name")), "{path}: {message}");
                assert!(message.contains([':', ';']), "{path}: {message}");
            }
        }
    }
}

#[test]
fn a_definition_fits_into_the_annotation_in_which_kubectl_apply_keeps_it() {
    for crd in crds() {
        assert!(serde_json::to_string(&crd).unwrap().len() < 256 * 1024, "{:?}", crd.metadata.name);
    }
}

#[test]
fn the_limits_in_the_rules_are_those_of_the_code() {
    let rules = serde_json::to_string(&schema(&crd("valkeyclusters")).x_kubernetes_validations).unwrap();
    assert!(rules.contains(&format!("size() <= {}", crate::names::MAX_CLUSTER_NAME)));
    for ending in crate::names::RESERVED_ENDINGS {
        assert!(rules.contains(&format!("endsWith('{ending}')")));
    }
}

#[test]
fn no_description_speaks_to_programmers() {
    for crd in crds() {
        let schema = schema(&crd);
        let mut found = BTreeMap::new();
        walk("", &schema, &mut found);
        for (path, text) in found.iter().filter_map(|(path, schema)| Some((path, schema.description.as_deref()?))) {
            // The words of Kubernetes' own types are theirs, except where such a type is a field of ours.
            assert!(!text.contains("Time is a wrapper") && !text.contains("accessors ("), "{path}: {text}");
        }
    }
}
