//! Every test has a namespace of its own.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

/// How much of a test's name fits into its namespace's. The rest of the 63 characters is left for what is derived from
/// it, such as host names.
const LENGTH: usize = 24;
/// Words that say nothing about a test.
const FILLERS: [&str; 14] =
    ["a", "an", "the", "is", "are", "its", "it", "and", "of", "in", "to", "that", "for", "with"];

/// Makes a namespace named after the test.
pub async fn create(client: &Client, test: &str) -> Result<String> {
    let name = name_for(test, RandomState::new().hash_one(test));
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.clone());
    // What we promise to users whose clusters allow nothing else, every test has to keep.
    let labels = [("app.kubernetes.io/managed-by", "e2e"), ("pod-security.kubernetes.io/enforce", "restricted")];
    namespace.metadata.labels = Some(owned(labels));
    namespace.metadata.annotations = Some(owned([("e2e/test", test)]));
    let created = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
    created.with_context(|| format!("cannot make the namespace {name}"))?;
    Ok(name)
}

/// Asks for the namespace to go, and does not wait until it is gone: the next test has another one.
pub async fn delete(client: &Client, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(name, &DeleteParams::background()).await.with_context(|| format!("cannot delete {name}"))?;
    Ok(())
}

fn owned<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

/// `a_six_pod_statefulset_is_ready` → `six-pod-statefulset-x7k2`.
fn name_for(test: &str, random: u64) -> String {
    let words = test.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && !FILLERS.contains(word)).map(str::to_ascii_lowercase);
    let mut name = String::new();
    for word in words {
        let word: String = word.chars().take(LENGTH).collect();
        if name.len() + word.len() > LENGTH {
            break;
        }
        name.extend([word.as_str(), "-"]);
    }
    let letters = (0..4).map(|place| char::from_digit(digit(random, place), 36).unwrap_or('x'));
    let prefix = if name.is_empty() { "test-" } else { &name };
    prefix.chars().chain(letters).collect()
}

fn digit(random: u64, place: u32) -> u32 {
    u32::try_from(random / 36_u64.pow(place) % 36).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_namespace_is_named_after_what_matters_in_the_name_of_its_test() {
        for (test, name) in [
            ("a_six_pod_statefulset_is_ready_within_seconds", "six-pod-statefulset-0000"),
            ("names_resolve_in_the_cluster", "names-resolve-cluster-0000"),
            ("the", "test-0000"),
        ] {
            assert_eq!(name_for(test, 0), name);
        }
    }

    proptest! {
        #[test]
        fn a_namespace_has_a_valid_name_whatever_the_test_is_called(test in ".{0,80}", random in any::<u64>()) {
            let name = name_for(&test, random);
            prop_assert!(name.len() <= 32, "{}", name);
            prop_assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", name);
            prop_assert!(!name.starts_with('-') && !name.ends_with('-'), "{}", name);
        }
    }
}
