//! The resolved dependency graph, as far as the rules ask about it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::env;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Packages by id; an id tells two versions of the same crate apart.
#[derive(Debug, Default)]
pub struct Graph(pub BTreeMap<String, Package>);

#[derive(Debug, Default)]
pub struct Package {
    pub name: String,
    /// Whether it is a member of this workspace.
    pub ours: bool,
    pub uses: BTreeSet<(String, Kind)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Normal,
    Build,
    Dev,
}

impl Graph {
    /// What cargo resolves for the platform that it runs on.
    pub fn of_this_workspace() -> Result<Self> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let version = super::output("rustc", ["-vV"])?;
        let platform = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
        let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", platform];
        Self::parse(&super::output(cargo, arguments)?)
    }

    fn parse(metadata: &str) -> Result<Self> {
        let metadata: Metadata = serde_json::from_str(metadata).context("cargo metadata is not what it was")?;
        let names: BTreeMap<_, _> = metadata.packages.into_iter().map(|p| (p.id, p.name)).collect();
        let packages = metadata.resolve.nodes.into_iter().map(|node| {
            let name = names.get(&node.id).cloned().with_context(|| format!("{} is not among packages", node.id))?;
            let ours = metadata.workspace_members.contains(&node.id);
            let uses = node.deps.into_iter().flat_map(|dependency| {
                let kinds = dependency.dep_kinds.into_iter().map(|dep| Kind::of(dep.kind.as_deref()));
                kinds.map(move |kind| (dependency.pkg.clone(), kind))
            });
            Ok((node.id, Package { name, ours, uses: uses.collect() }))
        });
        Ok(Self(packages.collect::<Result<_>>()?))
    }

    pub fn ours(&self) -> impl Iterator<Item = (&String, &Package)> {
        self.0.iter().filter(|(_, package)| package.ours)
    }

    /// The shortest way from one of `start` to a crate called `name`, by what ends up in a program: tests do not count.
    pub fn way<'a>(&'a self, start: impl IntoIterator<Item = &'a String>, name: &str) -> Option<Vec<&'a str>> {
        let mut reached_from: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        let mut queue: VecDeque<&str> = VecDeque::new();
        for id in start {
            reached_from.insert(id, None);
            queue.push_back(id);
        }
        while let Some(id) = queue.pop_front() {
            let Some(package) = self.0.get(id) else { continue };
            if package.name == name {
                let ids = std::iter::successors(Some(id), |id| reached_from.get(id).copied().flatten());
                let mut way: Vec<&str> = ids.filter_map(|id| Some(self.0.get(id)?.name.as_str())).collect();
                way.reverse();
                return Some(way);
            }
            for (next, _) in package.uses.iter().filter(|(_, kind)| *kind != Kind::Dev) {
                if !reached_from.contains_key(next.as_str()) {
                    reached_from.insert(next, Some(id));
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

impl Kind {
    fn of(cargo: Option<&str>) -> Self {
        match cargo {
            Some("dev") => Self::Dev,
            Some("build") => Self::Build,
            _ => Self::Normal,
        }
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Named>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Named {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graph_is_read_from_what_cargo_writes() {
        let graph = Graph::parse(
            r#"{
                "packages": [{ "id": "path#a@1", "name": "a" }, { "id": "reg#b@2", "name": "b" }],
                "workspace_members": ["path#a@1"],
                "resolve": { "nodes": [
                    { "id": "path#a@1", "deps": [
                        { "pkg": "reg#b@2", "dep_kinds": [{ "kind": null }, { "kind": "dev" }] }
                    ] },
                    { "id": "reg#b@2", "deps": [] }
                ] }
            }"#,
        )
        .unwrap();
        let a = &graph.0["path#a@1"];
        assert_eq!((a.name.as_str(), a.ours), ("a", true));
        assert_eq!(a.uses, [("reg#b@2".into(), Kind::Normal), ("reg#b@2".into(), Kind::Dev)].into());
        assert!(!graph.0["reg#b@2"].ours);
    }
}
