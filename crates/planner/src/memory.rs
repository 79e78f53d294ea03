//! Whether what is left of a cluster can hold all of its data (F26).

use valkey_model::NodeReport;

use crate::balance::Imbalance;
use crate::formation::Heads;
use crate::view::ClusterView;

/// Why no slot of a leaving shard may move: some shard that stays would have no room for its part.
///
/// Each takes as much of the leaving data as it takes of the leaving slots, and a fifth more to be safe.
pub(crate) fn refusal(view: &ClusterView, heads: &Heads, imbalance: &Imbalance) -> Option<String> {
    let leaving = || imbalance.surplus.iter().filter(|(shard, _)| view.is_leaving(**shard));
    let memory: u64 = leaving().filter_map(|(shard, _)| heads.get(shard)).map(|(_, report)| report.memory).sum();
    let taken: u64 = imbalance.deficit.values().map(|count| u64::from(*count)).sum();
    let full = imbalance.deficit.iter().find_map(|(shard, count)| {
        let (_, report) = heads.get(shard)?;
        let part = part_of(memory, u64::from(*count), taken);
        (part > 0 && lacks_room(report, part)).then_some((*shard, report, part))
    });
    let (shard, NodeReport { memory: has, max_memory, .. }, part) = full?;
    let names: Vec<_> = leaving().map(|(shard, _)| shard.to_string()).collect();
    Some(format!(
        "shards {} cannot be given up: shard {shard} uses {} of the {} that its data may take, and would get {} more. Give each \
         node more memory, delete data, or keep more shards",
        names.join(", "),
        in_words(*has),
        in_words(*max_memory),
        in_words(part),
    ))
}

fn part_of(memory: u64, count: u64, of: u64) -> u64 {
    let part = u128::from(memory) * u128::from(count) / u128::from(of.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

fn lacks_room(report: &NodeReport, part: u64) -> bool {
    let needed = report.memory.saturating_add(part.saturating_add(part / 5));
    report.max_memory > 0 && needed >= report.max_memory
}

pub(crate) fn in_words(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{bytes} bytes"),
        1_000_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
