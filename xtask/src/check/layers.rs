//! Which crate may know which. The picture is in `docs/architecture.md`; this is the part of it that is enforced.

use super::graph::{Graph, Kind, Package};

const HERE: &str = "xtask/src/check/layers.rs";
const TESTKIT: &str = "valkey-testkit";

/// For each crate of this workspace: the crates of this workspace that it may use.
///
/// The shorter a line, the more a reader may leave out when he reads that crate. Before you make one longer, see whether
/// what you need belongs further down, in `model`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("valkey-model", &[]),
    ("valkey-api", &["valkey-model"]),
    ("valkey-planner", &["valkey-model"]),
    ("valkey-resources", &["valkey-model", "valkey-api"]),
    ("valkey-engine", &["valkey-model"]),
    ("valkey-pki", &["valkey-model"]),
    ("valkey-backup", &["valkey-model"]),
    ("valkey-rpc", &["valkey-model"]),
    ("valkey-runtime", &[]),
    (
        "valkey-operator",
        &[
            "valkey-model",
            "valkey-api",
            "valkey-planner",
            "valkey-resources",
            "valkey-pki",
            "valkey-backup",
            "valkey-rpc",
            "valkey-runtime",
        ],
    ),
    (
        "valkey-sidecar",
        &[
            "valkey-model",
            "valkey-planner",
            "valkey-engine",
            "valkey-pki",
            "valkey-backup",
            "valkey-rpc",
            "valkey-runtime",
        ],
    ),
    ("valkey-launcher", &[]),
    ("valkey-cli", &["valkey-model", "valkey-api", "valkey-runtime"]),
    (TESTKIT, &["valkey-model", "valkey-api", "valkey-planner", "valkey-resources"]),
    ("e2e", &[TESTKIT, "e2e-macros", "valkey-model", "valkey-api", "valkey-pki", "valkey-rpc"]),
    ("e2e-macros", &[]),
    ("xtask", &[]),
    ("codegen", &["valkey-api"]),
    ("bench-volumes", &[]),
];

/// Nothing but the standard library, and why.
const STD_ONLY: &[(&str, &str)] = &[("valkey-model", "every other crate is built on it")];

/// What a crate must not even reach through others, and why.
const OUT_OF_REACH: &[(&str, &[&str], &str)] = &[(
    "valkey-planner",
    &["tokio", "kube", "kube-core", "kube-client", "kube-runtime"],
    "decisions are plain functions without I/O",
)];

/// A second TLS or cryptography stack: larger images, a C build, and a panic at run time when rustls finds two of them.
const BANNED: &[&str] = &["aws-lc-sys", "aws-lc-rs", "openssl-sys", "openssl", "native-tls"];

/// One sentence for each broken rule.
pub fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (_, package) in graph.ours() {
        found.extend(wrong_arrows(graph, package));
        found.extend(third_parties(graph, package));
    }
    for (name, unreachable, why) in OUT_OF_REACH {
        let start = || graph.ours().filter(|(_, p)| p.name == *name).map(|(id, _)| id);
        for target in *unreachable {
            if let Some(way) = graph.way(start(), target) {
                found.push(format!("{name} must not reach {target} ({}): {why}.", show(&way)));
            }
        }
    }
    for banned in BANNED {
        if let Some(way) = graph.way(graph.ours().map(|(id, _)| id), banned) {
            found.push(format!("{banned} is banned (rustls with ring only) but is pulled in by {}.", show(&way)));
        }
    }
    found
}

fn wrong_arrows(graph: &Graph, package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some((_, may_use)) = MAY_USE.iter().find(|(crate_name, _)| crate_name == name) else {
        return vec![format!("{name} has no line in the table of layers: add it to MAY_USE in {HERE}.")];
    };
    let used = package.uses.iter().filter_map(|(id, kind)| Some((graph.0.get(id)?, *kind)));
    let wrong = used.filter(|(used, kind)| {
        let for_tests = *kind == Kind::Dev && used.name == TESTKIT;
        used.ours && used.name != *name && !may_use.contains(&used.name.as_str()) && !for_tests
    });
    wrong
        .map(|(used, _)| match used.name.as_str() {
            TESTKIT => format!("{name} depends on {TESTKIT} outside of its tests: make it a dev-dependency."),
            used => format!("{name} must not depend on {used}: {}.", allowance(may_use)),
        })
        .collect()
}

fn allowance(may_use: &[&str]) -> String {
    match may_use {
        [] => format!("by {HERE} it uses no other crate of this workspace"),
        some => format!("by {HERE} it may use {}", some.join(", ")),
    }
}

fn third_parties(graph: &Graph, package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some((_, why)) = STD_ONLY.iter().find(|(crate_name, _)| crate_name == name) else {
        return Vec::new();
    };
    let used = package.uses.iter().filter(|(_, kind)| *kind != Kind::Dev).filter_map(|(id, _)| graph.0.get(id));
    used.filter(|used| !used.ours)
        .map(|used| format!("{name} must not depend on {}: it is std only, since {why}.", used.name))
        .collect()
}

fn show(way: &[&str]) -> String {
    way.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph from lines such as `a -> b`, `a -dev-> b` or `a`; what is in the table or called valkey-… is ours.
    fn graph(lines: &[&str]) -> Graph {
        let mut graph = Graph::default();
        for line in lines {
            let (from, to, kind) = [("-dev->", Kind::Dev), ("-build->", Kind::Build), ("->", Kind::Normal)]
                .iter()
                .find_map(|(arrow, kind)| line.split_once(arrow).map(|(from, to)| (from.trim(), to.trim(), *kind)))
                .unwrap_or((line, "", Kind::Normal));
            for name in [from, to].into_iter().filter(|name| !name.is_empty()) {
                let ours = name.starts_with("valkey-") || MAY_USE.iter().any(|(ours, _)| *ours == name);
                let package = graph.0.entry(name.into()).or_default();
                (package.name, package.ours) = (name.into(), ours);
            }
            if !to.is_empty() {
                graph.0.get_mut(from).unwrap().uses.insert((to.into(), kind));
            }
        }
        graph
    }

    #[test]
    fn what_the_table_allows_passes() {
        let good = graph(&[
            "valkey-model",
            "valkey-model -dev-> proptest",
            "valkey-model -dev-> valkey-testkit",
            "valkey-testkit -> valkey-model",
            "valkey-planner -> valkey-model",
            "valkey-planner -dev-> tokio",
            "valkey-operator -> valkey-planner",
            "valkey-operator -> tokio",
            "valkey-sidecar -> valkey-engine",
            "valkey-sidecar -dev-> openssl-sys",
            "e2e -> valkey-testkit",
            "xtask -> serde_json",
        ]);
        assert_eq!(violations(&good), Vec::<String>::new());
    }

    #[test]
    fn each_broken_rule_is_one_sentence_that_says_what_to_do() {
        for (lines, expected) in [
            (
                &["valkey-planner -> valkey-resources"][..],
                "valkey-planner must not depend on valkey-resources: by xtask/src/check/layers.rs it may use valkey-model.",
            ),
            (
                &["valkey-planner -dev-> valkey-resources"],
                "valkey-planner must not depend on valkey-resources: by xtask/src/check/layers.rs it may use valkey-model.",
            ),
            (
                &["valkey-model -build-> valkey-api"],
                "valkey-model must not depend on valkey-api: by xtask/src/check/layers.rs it uses no other crate of this \
                 workspace.",
            ),
            (
                &["valkey-operator -> valkey-testkit"],
                "valkey-operator depends on valkey-testkit outside of its tests: make it a dev-dependency.",
            ),
            (
                &["valkey-metrics"],
                "valkey-metrics has no line in the table of layers: add it to MAY_USE in xtask/src/check/layers.rs.",
            ),
            (
                &["valkey-model -> serde"],
                "valkey-model must not depend on serde: it is std only, since every other crate is built on it.",
            ),
            (
                &["valkey-planner -> helper", "helper -> deeper", "deeper -> tokio"],
                "valkey-planner must not reach tokio (valkey-planner -> helper -> deeper -> tokio): decisions are plain functions \
                 without I/O.",
            ),
            (
                &["xtask -> a", "a -> b", "b -> openssl-sys", "valkey-operator -> c", "c -build-> openssl-sys"],
                "openssl-sys is banned (rustls with ring only) but is pulled in by valkey-operator -> c -> openssl-sys.",
            ),
        ] {
            assert_eq!(violations(&graph(lines)), [expected], "{lines:?}");
        }
    }

    #[test]
    fn every_broken_rule_is_reported() {
        let bad =
            graph(&["valkey-pki -> valkey-engine", "valkey-pki -> aws-lc-rs", "aws-lc-rs -> aws-lc-sys", "valkey-new"]);
        assert_eq!(violations(&bad).len(), 4);
    }

    #[test]
    fn the_table_names_only_crates_that_it_knows() {
        for (name, may_use) in MAY_USE {
            for used in *may_use {
                assert!(MAY_USE.iter().any(|(known, _)| known == used), "{name} may use the unknown {used}");
            }
        }
    }
}
