//! Names and addresses of a local cluster: pure functions of its name and slot.
//!
//! Several clusters may stand side by side (tests of several sites need that). Each has a slot, and all that could
//! collide is derived from it.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

use crate::images::hex;
use crate::paths;

pub const NODES: u8 = 3;
pub const MAX_SLOTS: u8 = 10;

/// Which of the address ranges a cluster uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Slot(u8);

impl Slot {
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_SLOTS).map(Self)
    }
}

#[derive(Debug, Clone)]
pub struct Layout {
    pub name: String,
    pub slot: Slot,
}

/// A node of the cluster by its number, 1 to [`NODES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeNumber(u8);

impl NodeNumber {
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=NODES).map(Self)
    }

    /// `node-2` → 2.
    pub fn parse(name: &str) -> Result<Self> {
        match name.strip_prefix("node-").and_then(|number| number.parse().ok()) {
            Some(number @ 1..=NODES) => Ok(Self(number)),
            _ => bail!("there is no node {name:?}; the nodes are node-1 to node-{NODES}"),
        }
    }

    pub fn zone(self) -> String {
        format!("z{}", self.0)
    }

    /// The node's end of its cable to the switch has this name on the switch.
    pub fn port(self) -> String {
        format!("port{}", self.0)
    }
}

impl Display for NodeNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

/// An address range as `ip` and Kubernetes write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub base: Ipv4Addr,
    pub prefix: u8,
}

impl Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl Range {
    pub fn overlaps(self, other: Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        u32::from(self.base) & mask == u32::from(other.base) & mask
    }
}

impl Layout {
    pub fn new(name: &str, slot: Slot) -> Self {
        Self { name: name.to_owned(), slot }
    }

    /// All that the cluster keeps on disk.
    pub fn folder(&self) -> Result<PathBuf> {
        Ok(paths::cache()?.join("clusters").join(&self.name))
    }

    /// Clusters of the same name in two caches are two clusters.
    pub fn cgroup(&self) -> Result<String> {
        let cache = hex(&Sha256::digest(paths::cache()?.as_os_str().as_encoded_bytes()));
        Ok(format!("valkey-bench-{}-{}", self.name, cache.chars().take(6).collect::<String>()))
    }

    /// The group of everything that is not in a pod.
    pub fn programs_cgroup(&self) -> Result<String> {
        Ok(format!("{}/programs", self.cgroup()?))
    }

    /// The group of those who use the cluster.
    pub fn clients_cgroup(&self) -> Result<String> {
        Ok(format!("{}/clients", self.cgroup()?))
    }

    /// The group below which a node's pods are.
    pub fn node_cgroup(&self, node: NodeNumber) -> Result<String> {
        Ok(format!("{}/{node}", self.cgroup()?))
    }

    /// This machine's link into the cluster's network.
    pub fn host_link(&self) -> String {
        format!("vkbench{}", self.slot.0)
    }

    /// The network that the host, the control plane and the nodes share.
    pub fn machines(&self) -> Range {
        Range { base: Ipv4Addr::new(10, 200, self.slot.0, 0), prefix: 24 }
    }

    pub fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.slot.0, 1)
    }

    pub fn control(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.slot.0, 2)
    }

    pub fn node(&self, node: NodeNumber) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.slot.0, 10 + node.0)
    }

    pub fn pods(&self) -> Range {
        Range { base: Ipv4Addr::new(10, 201 + self.slot.0, 0, 0), prefix: 16 }
    }

    pub fn pods_of(&self, node: NodeNumber) -> Range {
        Range { base: Ipv4Addr::new(10, 201 + self.slot.0, node.0, 0), prefix: 24 }
    }

    pub fn services(&self) -> Range {
        Range { base: Ipv4Addr::new(10, 221 + self.slot.0, 0, 0), prefix: 16 }
    }

    pub fn api_service(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 221 + self.slot.0, 0, 1)
    }

    pub fn dns_service(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 221 + self.slot.0, 0, 10)
    }

    pub fn api_url(&self) -> String {
        format!("https://{}:6443", self.control())
    }
}

/// A cluster's name becomes part of folder and control group names.
pub fn check_name(name: &str) -> Result<()> {
    let fits = (1..=20).contains(&name.len());
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !fits || !plain || name.starts_with('-') {
        bail!("--name {name:?} is no name for a cluster; use 1 to 20 lowercase letters, digits and dashes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_slots_share_an_address() {
        let ranges: Vec<_> = Slot::all()
            .map(|slot| Layout::new("x", slot))
            .flat_map(|layout| [layout.machines(), layout.pods(), layout.services()])
            .collect();
        for (index, range) in ranges.iter().enumerate() {
            for other in &ranges[index + 1..] {
                assert!(!range.overlaps(*other), "{range} and {other}");
            }
        }
    }

    #[test]
    fn a_range_overlaps_what_contains_it_and_what_it_contains() {
        let range = |text: &str, prefix| Range { base: text.parse().unwrap(), prefix };
        assert!(range("10.0.0.0", 8).overlaps(range("10.201.3.0", 24)));
        assert!(range("10.201.3.0", 24).overlaps(range("10.0.0.0", 8)));
        assert!(range("0.0.0.0", 0).overlaps(range("10.0.0.0", 8)));
        assert!(!range("10.200.0.0", 24).overlaps(range("10.200.1.0", 24)));
    }

    #[test]
    fn a_wrong_node_name_is_answered_with_the_right_ones() {
        assert!(NodeNumber::parse("node-3").is_ok());
        for wrong in ["node-0", "node-4", "worker", "node-"] {
            let error = NodeNumber::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("node-1 to node-3"), "{error}");
        }
    }
}
