//! `docs/api.md`: every field of every kind, from the same schemas that the API server checks with.

use std::fmt::Write;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use crate::Generated;

/// Fields of Kubernetes' own types, by the end of their path. They are explained elsewhere, better and at length.
const KUBERNETES_TYPES: [(&str, &str); 10] = [
    ("spec.resources", "ResourceRequirements"),
    ("spec.podAntiAffinity", "PodAntiAffinity"),
    ("spec.podAffinity", "PodAffinity"),
    ("spec.nodeAffinity", "NodeAffinity"),
    ("spec.tolerations[]", "Toleration"),
    ("spec.topologySpreadConstraints[]", "TopologySpreadConstraint"),
    ("spec.securityContext", "PodSecurityContext"),
    ("status.conditions[]", "Condition"),
    ("metadata", "ObjectMeta"),
    ("spec.nodeSelector", "map of text"),
];

const HEAD: &str = "# API reference\n\nMade by `cargo xtask generate` from the schemas that the API server checks with. Fields \
                    with a Kubernetes type are as in Kubernetes.\n";

pub fn files() -> Result<Vec<Generated>> {
    let mut page = HEAD.to_owned();
    for crd in valkey_api::crds() {
        describe(&mut page, &crd)?;
    }
    Ok(vec![("docs/api.md".into(), page)])
}

fn describe(page: &mut String, crd: &CustomResourceDefinition) -> Result<()> {
    let names = &crd.spec.names;
    let version = crd.spec.versions.first().context("a definition has a version")?;
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    let root = schema.context("a definition has a schema")?;
    writeln!(page, "\n## {}\n", names.kind)?;
    writeln!(page, "{}\n", root.description.as_deref().unwrap_or_default())?;
    let short = names.short_names.clone().unwrap_or_default().join("`, `");
    writeln!(page, "`{}/{}`, short name `{short}`.", crd.spec.group, version.name)?;
    for part in ["spec", "status"] {
        let Some(schema) = root.properties.as_ref().and_then(|properties| properties.get(part)) else { continue };
        let mut rows = Vec::new();
        walk(part, schema, &mut rows);
        if rows.is_empty() {
            continue;
        }
        writeln!(page, "\n### {} {part}\n\n| field | type | default | description |\n|---|---|---|---|", names.kind)?;
        for row in rows {
            writeln!(page, "{row}")?;
        }
        let own = if part == "spec" { own_rules(root) } else { Vec::new() };
        let rules = [own, rules(schema)].concat();
        if !rules.is_empty() {
            writeln!(page, "\nRules:\n")?;
            for rule in rules {
                writeln!(page, "- {rule}")?;
            }
        }
    }
    Ok(())
}

/// One row for each field below this one.
fn walk(path: &str, schema: &JSONSchemaProps, rows: &mut Vec<String>) {
    for (name, field) in schema.properties.iter().flatten() {
        let required = schema.required.iter().flatten().any(|required| required == name);
        let path = format!("{path}.{name}");
        rows.push(row(&path, field, if required { Need::Required } else { Need::Optional }));
        if kubernetes_type(&path).is_some() {
            continue;
        }
        walk(&path, field, rows);
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &field.items {
            let path = format!("{path}[]");
            if kubernetes_type(&path).is_none() {
                walk(&path, item, rows);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Need {
    Required,
    Optional,
}

fn row(path: &str, field: &JSONSchemaProps, need: Need) -> String {
    let description = field.description.as_deref().unwrap_or_default().replace('\n', " ");
    let (text, told) = match (kubernetes_type(path), description.split_once("Default: ")) {
        (Some(_), _) if description.len() > 200 => (String::new(), None), // Kubernetes' own words
        (_, Some((text, default))) => (text.trim().to_owned(), Some(default.trim_end_matches('.').to_owned())),
        (_, None) => (description, None),
    };
    let default = match (need, told, &field.default) {
        (Need::Required, ..) => "required".into(),
        (_, Some(told), _) => told,
        (_, None, Some(default)) => format!("`{}`", default.0),
        (_, None, None) => String::new(),
    };
    format!("| `{path}` | {} | {default} | {text} |", type_name(path, field)).replace("  ", " ")
}

fn type_name(path: &str, field: &JSONSchemaProps) -> String {
    if let Some(name) = kubernetes_type(path) {
        return name.into();
    }
    if let Some(values) = &field.enum_ {
        let values: Vec<_> = values.iter().map(|value| value.0.as_str().unwrap_or_default()).collect();
        return values.join(", ");
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &field.items {
        return format!("list of {}", type_name(&format!("{path}[]"), item));
    }
    match (field.type_.as_deref(), &field.additional_properties) {
        (Some("object"), Some(JSONSchemaPropsOrBool::Schema(_))) => "map of text".into(),
        (Some("string"), _) if field.format.as_deref() == Some("date-time") => "time".into(),
        (Some("string"), _) => "text".into(),
        (Some("integer"), _) => "number".into(),
        (Some("boolean"), _) => "true, false".into(),
        (other, _) => other.unwrap_or("object").into(),
    }
}

fn kubernetes_type(path: &str) -> Option<&'static str> {
    KUBERNETES_TYPES.iter().find(|(known, _)| *known == path).map(|(_, name)| *name)
}

/// What the API server says when a rule is broken, which is the rule in words.
fn rules(schema: &JSONSchemaProps) -> Vec<String> {
    let below = schema.properties.iter().flatten().flat_map(|(_, field)| rules(field));
    own_rules(schema).into_iter().chain(below).collect()
}

fn own_rules(schema: &JSONSchemaProps) -> Vec<String> {
    schema.x_kubernetes_validations.iter().flatten().filter_map(|rule| rule.message.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        files().unwrap().remove(0).1
    }

    #[test]
    fn a_field_is_told_with_type_default_and_meaning() {
        let row = "| `spec.masterCount` | number | 3 | How many shards, so primaries, the cluster has: 3 to 500, or 1 with \
                   `allowUnsafeTopology`. |";
        assert!(page().contains(row), "{}", page());
        assert!(page().contains("| `spec.validForDays` | number | `3650` |"));
        assert!(page().contains("| `spec.auth.secretRef.name` | text | required |"));
    }

    #[test]
    fn kubernetes_own_types_are_named_and_not_repeated() {
        let page = page();
        assert!(page.contains("| `spec.tolerations` | list of Toleration |"));
        assert!(!page.contains("spec.tolerations[].key") && !page.contains("spec.podAffinity.preferred"));
        assert!(!page.contains("status.conditions[].type"));
    }
}
