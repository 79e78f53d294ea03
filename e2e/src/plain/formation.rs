//! Forming a cluster out of fresh nodes: slots first, then meet, then replicate, then wait until everybody agrees.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use redis::FromRedisValue;
use tokio::time::Instant;

use super::command;
use crate::wait::eventually;
use crate::witness::Slot;

/// A handshake that has not succeeded by then has been dropped by the server: meet again.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// A Valkey node in its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub pod: String,
    pub address: SocketAddr,
    /// The Kubernetes node it runs on.
    pub node: String,
    pub zone: String,
}

/// A primary with its replicas, and its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    pub primary: Member,
    pub replicas: Vec<Member>,
    /// First and last slot.
    pub slots: (u16, u16),
}

/// Makes shards whose primaries lie in different zones, and whose members do too, as far as there are zones.
pub fn arrange(members: Vec<Member>, shards: usize) -> Vec<Shard> {
    let mut rounds = by_turns(members).into_iter();
    let primaries: Vec<_> = rounds.by_ref().take(shards).collect();
    let mut arranged: Vec<_> = primaries
        .into_iter()
        .zip(even_ranges(shards))
        .map(|(primary, slots)| Shard { primary, replicas: Vec::new(), slots })
        .collect();
    // Each round of replicas starts one shard further on than the last, and with it in another zone.
    let mut round = 1;
    loop {
        let replicas: Vec<_> = rounds.by_ref().take(shards).collect();
        if replicas.is_empty() {
            return arranged;
        }
        for (place, replica) in replicas.into_iter().enumerate() {
            let shard = (place + shards * round - round) % shards.max(1);
            if let Some(shard) = arranged.get_mut(shard) {
                shard.replicas.push(replica);
            }
        }
        round += 1;
    }
}

/// One member of each zone, then the next one of each zone, and so on.
fn by_turns(members: Vec<Member>) -> Vec<Member> {
    let mut zones: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    for member in members {
        zones.entry(member.zone.clone()).or_default().push(member);
    }
    let mut waiting: Vec<_> = zones.into_values().map(Vec::into_iter).collect();
    let mut turns = Vec::new();
    loop {
        let round: Vec<_> = waiting.iter_mut().filter_map(Iterator::next).collect();
        if round.is_empty() {
            return turns;
        }
        turns.extend(round);
    }
}

fn even_ranges(shards: usize) -> impl Iterator<Item = (u16, u16)> {
    let shards = u16::try_from(shards).unwrap_or(u16::MAX).max(1);
    let start =
        move |shard: u16| u16::try_from(u32::from(Slot::COUNT) * u32::from(shard) / u32::from(shards)).unwrap_or(0);
    (0..shards).map(move |shard| (start(shard), start(shard + 1) - 1))
}

/// Forms the cluster and waits until every node agrees and every replica is online.
pub async fn form(shards: &[Shard], within: Duration) -> Result<()> {
    try_join_all(shards.iter().zip(1_u32..).map(|(shard, epoch)| assign(shard, epoch))).await?;
    let nodes: Vec<_> = shards.iter().flat_map(|shard| [&shard.primary].into_iter().chain(&shard.replicas)).collect();
    let mut met = None;
    eventually("every node to know every other", within, async || {
        if met.is_none_or(|at: Instant| at.elapsed() > HANDSHAKE) {
            meet(&nodes).await?;
            met = Some(Instant::now());
        }
        try_join_all(nodes.iter().map(|node| knows_all(node, nodes.len()))).await
    })
    .await?;
    try_join_all(shards.iter().map(|shard| replicate(shard, within))).await?;
    settled(&nodes, shards.len(), within).await
}

/// Waits until every node agrees and every replica is online, whoever formed the cluster.
pub async fn settled(nodes: &[&Member], shards: usize, within: Duration) -> Result<()> {
    eventually("every node to agree", within, async || {
        try_join_all(nodes.iter().map(|node| agrees(node, shards, nodes.len()))).await
    })
    .await?;
    eventually("every replica to be online", within, async || {
        try_join_all(nodes.iter().map(|node| online(node))).await
    })
    .await?;
    Ok(())
}

/// An epoch of its own for each primary saves the nodes from finding out one by one.
async fn assign(shard: &Shard, epoch: u32) -> Result<()> {
    let (first, last) = shard.slots;
    ask::<()>(&shard.primary, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]).await?;
    ask(&shard.primary, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await
}

/// Each pair once: for a handful of nodes quicker than waiting for gossip.
async fn meet(nodes: &[&Member]) -> Result<()> {
    let pairs =
        nodes.iter().enumerate().flat_map(|(place, one)| nodes.iter().skip(place + 1).map(move |other| (one, other)));
    let meetings = pairs.map(async |(one, other)| {
        let (ip, port) = (other.address.ip().to_string(), other.address.port().to_string());
        ask::<()>(one, &["CLUSTER", "MEET", &ip, &port]).await
    });
    try_join_all(meetings).await.map(drop)
}

async fn knows_all(node: &Member, count: usize) -> Result<()> {
    let known: String = ask(node, &["CLUSTER", "NODES"]).await?;
    let shaking = known.lines().filter(|line| line.contains("handshake")).count();
    let known = known.lines().count();
    ensure!(
        known == count && shaking == 0,
        "{} knows {known} of {count} nodes, {shaking} of them in handshake",
        node.pod
    );
    Ok(())
}

async fn replicate(shard: &Shard, within: Duration) -> Result<()> {
    let primary: String = ask(&shard.primary, &["CLUSTER", "MYID"]).await?;
    let orders = shard.replicas.iter().map(async |replica| {
        let what = format!("{} to become a replica of {}", replica.pod, shard.primary.pod);
        eventually(&what, within, async || ask::<()>(replica, &["CLUSTER", "REPLICATE", &primary]).await).await
    });
    try_join_all(orders).await.map(drop)
}

async fn agrees(node: &Member, shards: usize, count: usize) -> Result<()> {
    let info: String = ask(node, &["CLUSTER", "INFO"]).await?;
    let expected = [
        "cluster_state:ok".to_owned(),
        format!("cluster_slots_assigned:{}", Slot::COUNT),
        format!("cluster_known_nodes:{count}"),
        format!("cluster_size:{shards}"),
    ];
    for line in expected {
        ensure!(info.lines().any(|found| found == line), "{} does not say {line}: {info}", node.pod);
    }
    let nodes: String = ask(node, &["CLUSTER", "NODES"]).await?;
    let replicas = nodes.lines().filter(|line| line.contains("slave")).count();
    ensure!(replicas == count - shards, "{} sees {replicas} of {} replicas", node.pod, count - shards);
    Ok(())
}

/// A primary always is.
async fn online(node: &Member) -> Result<()> {
    let info: String = ask(node, &["INFO", "replication"]).await?;
    let says = |what: &str| info.lines().any(|line| line == what);
    ensure!(says("role:master") || says("master_link_status:up"), "{} has no link to its primary", node.pod);
    Ok(())
}

async fn ask<T: FromRedisValue>(node: &Member, words: &[&str]) -> Result<T> {
    command(node.address, words).await.with_context(|| node.pod.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(zones: &[&str]) -> Vec<Member> {
        let member = |(place, zone): (usize, &&str)| Member {
            pod: format!("p{place}"),
            address: SocketAddr::from(([10, 0, 0, 1], 6379)),
            node: (*zone).into(),
            zone: (*zone).into(),
        };
        zones.iter().enumerate().map(member).collect()
    }

    #[test]
    fn a_shard_is_spread_over_zones_wherever_its_pods_landed() {
        for zones in [
            ["z1", "z2", "z3", "z1", "z2", "z3"],
            ["z1", "z1", "z2", "z2", "z3", "z3"],
            ["z3", "z1", "z1", "z2", "z3", "z2"],
        ] {
            let shards = arrange(members(&zones), 3);
            let primaries: Vec<_> = shards.iter().map(|shard| shard.primary.zone.as_str()).collect();
            assert_eq!(primaries, ["z1", "z2", "z3"]);
            assert!(
                shards.iter().all(|shard| shard.replicas.len() == 1 && shard.replicas[0].zone != shard.primary.zone)
            );
        }
    }

    #[test]
    fn two_replicas_lie_in_the_two_other_zones() {
        let shards = arrange(members(&["z1", "z2", "z3", "z1", "z2", "z3", "z1", "z2", "z3"]), 3);
        for shard in shards {
            let members = [&shard.primary].into_iter().chain(&shard.replicas);
            let mut zones: Vec<_> = members.map(|member| member.zone.as_str()).collect();
            zones.sort_unstable();
            assert_eq!(zones, ["z1", "z2", "z3"]);
        }
    }

    #[test]
    fn every_slot_is_given_to_exactly_one_shard() {
        for shards in 1..20 {
            let ranges: Vec<_> = even_ranges(shards).collect();
            assert_eq!(ranges.len(), shards);
            assert_eq!((ranges[0].0, ranges[shards - 1].1), (0, Slot::COUNT - 1));
            assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0));
        }
    }
}
