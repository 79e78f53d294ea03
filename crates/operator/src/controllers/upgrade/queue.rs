//! Several upgrades of one cluster: which goes first, and whether one of them holds the cluster's roll.

use kube::ResourceExt;
use valkey_api::ValkeyUpgrade;

/// Which upgrade of the same cluster goes first, if it is another one: the one that is under way, else the oldest.
pub fn rival<'a>(me: &ValkeyUpgrade, all: impl Iterator<Item = &'a ValkeyUpgrade>) -> Option<String> {
    let age = |upgrade: &ValkeyUpgrade| (upgrade.creation_timestamp().map(|at| at.0), upgrade.name_any());
    let mine = |other: &&ValkeyUpgrade| {
        other.namespace() == me.namespace()
            && other.spec.cluster_ref == me.spec.cluster_ref
            && other.name_any() != me.name_any()
            && !other.phase().is_over()
    };
    let others = all.filter(mine).filter(|other| other.is_under_way() || age(other) < age(me));
    others.min_by_key(|other| (!other.is_under_way(), age(other))).map(ResourceExt::name_any)
}

/// Whether an upgrade of the cluster is under way.
pub fn drives<'a>(namespace: &str, cluster: &str, mut all: impl Iterator<Item = &'a ValkeyUpgrade>) -> bool {
    all.any(|upgrade| is_of(upgrade, namespace, cluster) && upgrade.is_under_way())
}

fn is_of(upgrade: &ValkeyUpgrade, namespace: &str, cluster: &str) -> bool {
    upgrade.namespace().as_deref() == Some(namespace) && upgrade.spec.cluster_ref.name == cluster
}

/// Why the cluster's roll has to wait, if an upgrade asks for it.
pub fn hold<'a>(namespace: &str, cluster: &str, all: impl Iterator<Item = &'a ValkeyUpgrade>) -> Option<String> {
    let holds = |upgrade: &&ValkeyUpgrade| {
        is_of(upgrade, namespace, cluster) && upgrade.spec.is_paused() && upgrade.is_under_way()
    };
    all.filter(holds).map(ResourceExt::name_any).min().map(|name| format!("ValkeyUpgrade {name} is paused"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value)] // literals read better without an ampersand
    fn upgrade(name: &str, second: u8, cluster: &str, paused: bool, status: Value) -> ValkeyUpgrade {
        let object = json!({
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": format!("2026-11-16T00:00:{second:02}Z")},
            "spec": {"clusterRef": {"name": cluster}, "targetVersion": "9.1.2", "paused": paused},
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_oldest_goes_first_unless_another_one_is_under_way() {
        let (old, young) =
            (upgrade("old", 1, "orders", false, json!({})), upgrade("young", 2, "orders", false, json!({})));
        assert_eq!(rival(&young, [&old, &young].into_iter()), Some("old".into()));
        assert_eq!(rival(&old, [&old, &young].into_iter()), None);
        let busy = upgrade("young", 2, "orders", false, json!({"phase": "RollingBack", "fromVersion": "8.1.4"}));
        assert_eq!(rival(&old, [&old, &busy].into_iter()), Some("young".into()));
    }

    #[test]
    fn who_has_ended_or_is_of_another_cluster_is_no_rival() {
        let me = upgrade("me", 9, "orders", false, json!({}));
        for phase in ["Succeeded", "RolledBack", "Failed", "Refused"] {
            let over = upgrade("over", 1, "orders", false, json!({"phase": phase, "fromVersion": "8.1.4"}));
            assert_eq!(rival(&me, [&over].into_iter()), None, "{phase}");
        }
        assert_eq!(rival(&me, [&upgrade("other", 1, "carts", false, json!({}))].into_iter()), None);
    }

    #[test]
    fn of_two_of_the_same_second_exactly_one_goes_first() {
        let (a, b) = (upgrade("a", 1, "orders", false, json!({})), upgrade("b", 1, "orders", false, json!({})));
        assert_eq!(rival(&a, [&a, &b].into_iter()), None);
        assert_eq!(rival(&b, [&a, &b].into_iter()), Some("a".into()));
    }

    #[test]
    fn only_a_paused_upgrade_that_is_under_way_holds_its_own_cluster() {
        let begun = json!({"phase": "Paused", "fromVersion": "8.1.4"});
        let held = |upgrade: &ValkeyUpgrade| hold("shop", "orders", [upgrade].into_iter());
        let paused = upgrade("to-9-1", 1, "orders", true, begun.clone());
        assert_eq!(held(&paused), Some("ValkeyUpgrade to-9-1 is paused".into()));
        assert_eq!(hold("stock", "orders", [&paused].into_iter()), None);
        for other in [
            upgrade("to-9-1", 1, "orders", false, begun.clone()),
            upgrade("to-9-1", 1, "carts", true, begun),
            upgrade("to-9-1", 1, "orders", true, json!({"phase": "Paused"})),
            upgrade("to-9-1", 1, "orders", true, json!({"phase": "Failed", "fromVersion": "8.1.4"})),
        ] {
            assert_eq!(held(&other), None);
        }
    }
}
