//! The custom resource definitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{
    ValkeyCA, ValkeyCertificateBinding, ValkeyCertificateBundle, ValkeyCluster, ValkeyClusterStatus, ValkeyUpgrade,
    labels,
};

/// Every kind's definition, in the order in which a reader wants to meet them.
///
/// Take these rather than `T::crd()`: without the changes made here a field that the user sets to `null` would reach the
/// CEL rules as a value of no type and be refused with a message that helps nobody.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        ValkeyCluster::crd(),
        ValkeyClusterStatus::crd(),
        ValkeyUpgrade::crd(),
        ValkeyCA::crd(),
        ValkeyCertificateBundle::crd(),
        ValkeyCertificateBinding::crd(),
    ];
    for crd in &mut all {
        mark(crd);
        crd.spec.versions.iter_mut().for_each(without_null);
    }
    all.iter_mut().filter(|crd| crd.spec.names.kind == "ValkeyCluster").for_each(with_optional_spec);
    all
}

/// A cluster without a spec is one with `spec: {}`. Server-side apply needs it too: it makes `null` of a spec whose last
/// field its user takes away.
fn with_optional_spec(crd: &mut CustomResourceDefinition) {
    for schema in
        crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
    {
        schema.required = None;
        let spec = schema.properties.as_mut().and_then(|properties| properties.get_mut("spec"));
        if let Some(spec) = spec {
            spec.default = Some(JSON(serde_json::json!({})));
        }
    }
}

/// Another project defines a kind of the same group and name (spec 5b). The mark tells our definition from theirs.
fn mark(crd: &mut CustomResourceDefinition) {
    let (labels, annotations) = (&mut crd.metadata.labels, &mut crd.metadata.annotations);
    labels.get_or_insert_default().insert(labels::MANAGED_BY.into(), labels::OPERATOR.into());
    annotations.get_or_insert_default().insert(labels::CRD_OWNER.into(), labels::OPERATOR.into());
}

/// The API server drops `null` where the schema does not allow it, which is what somebody who writes it means.
fn without_null(version: &mut CustomResourceDefinitionVersion) {
    if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
        forbid_null(schema);
    }
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.enum_.iter_mut().for_each(|values| values.retain(|value| !value.0.is_null()));
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(forbid_null);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => forbid_null(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(forbid_null),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        forbid_null(value);
    }
}

#[cfg(test)]
#[path = "crds_tests.rs"]
mod tests;
