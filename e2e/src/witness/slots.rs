//! Slots: which one a key belongs to, a hash tag for each of them, and who owns them.
//!
//! Written anew rather than borrowed from the operator: the witness must not share the operator's mistakes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};
use redis::{FromRedisValue, Value};

/// One of the 16384 hash slots of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// How many slots there are.
    pub const COUNT: u16 = 16_384;

    /// The slot with this number, if there is one.
    pub fn new(number: u16) -> Option<Self> {
        (number < Self::COUNT).then_some(Self(number))
    }

    /// The slot of a key: the checksum of its hash tag if it has one, of the whole key otherwise.
    pub fn of(key: &[u8]) -> Self {
        Self(crc16(tag_of(key)) % Self::COUNT)
    }

    pub fn number(self) -> u16 {
        self.0
    }

    /// All slots, in an order that jumps around: a migration moves neighbours, and a writer that walks its slots in
    /// ascending order would be elsewhere most of the time.
    pub fn scattered(slots: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut slots: Vec<_> = slots.into_iter().collect();
        slots.sort_by_key(|slot| slot.0.wrapping_mul(40_503)); // odd, so no two slots meet
        slots
    }

    /// A short string that is hashed into this slot, to be put between braces.
    pub fn tag(self) -> &'static str {
        TAGS.get(&self).map_or("", String::as_str)
    }

    /// Finds all tags now rather than at the first write, where the search would look like a pause.
    pub fn prepare_tags() {
        LazyLock::force(&TAGS);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

static TAGS: LazyLock<BTreeMap<Slot, String>> = LazyLock::new(find_tags);

/// CRC16-XMODEM, bit by bit: it runs some hundred thousand times at start and never again.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

/// The part of a key that is hashed: between the first `{` and the next `}` unless that is empty.
fn tag_of(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        rest.get(..rest.iter().position(|byte| *byte == b'}')?)
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// Counts up in letters until every slot has been hit once.
fn find_tags() -> BTreeMap<Slot, String> {
    let mut tags = BTreeMap::new();
    let mut number = 0_u32;
    while tags.len() < usize::from(Slot::COUNT) {
        let tag = letters(number);
        tags.entry(Slot::of(tag.as_bytes())).or_insert(tag);
        number += 1;
    }
    tags
}

fn letters(mut number: u32) -> String {
    let mut text = String::new();
    loop {
        text.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return text;
        }
    }
}

/// Who owned which slots at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The primary's address, which is also how the shard is called in a verdict.
    pub address: String,
    pub slots: Vec<Slot>,
}

/// Reads the answer to `CLUSTER SLOTS`, which every version gives and which names each primary first.
pub fn owners(answer: &Value) -> Result<Vec<Owner>> {
    let mut owners: BTreeMap<String, Vec<Slot>> = BTreeMap::new();
    for range in items(answer).context("the slot map is no list")? {
        let [first, last, primary, ..] = items(range).context("a slot range is no list")? else {
            bail!("a slot range without a primary: {range:?}");
        };
        let [host, port, ..] = items(primary).context("a primary is no list")? else {
            bail!("a primary without an address: {primary:?}");
        };
        let (host, port) = (String::from_redis_value_ref(host)?, u16::from_redis_value_ref(port)?);
        // A node that has met nobody does not know its own address.
        let address = format!("{}:{port}", if host.is_empty() { "?" } else { &host });
        let slots = u16::from_redis_value_ref(first)?..=u16::from_redis_value_ref(last)?;
        owners.entry(address).or_default().extend(slots.filter_map(Slot::new));
    }
    ensure!(!owners.is_empty(), "no slot is assigned to anybody");
    Ok(owners.into_iter().map(|(address, slots)| Owner { address, slots }).collect())
}

fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(Slot::of(b"foo").number(), 12_182);
        assert_eq!(Slot::of(b"").number(), 0);
    }

    #[test]
    fn only_the_first_tag_that_is_not_empty_counts() {
        for (key, hashed) in [
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
        ] {
            assert_eq!(tag_of(key.as_bytes()), hashed.as_bytes(), "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_tag_that_leads_to_it() {
        for slot in (0..Slot::COUNT).filter_map(Slot::new) {
            assert_eq!(Slot::of(format!("{{{}}}:some:key", slot.tag()).as_bytes()), slot);
        }
    }

    #[test]
    fn scattering_keeps_every_slot_and_separates_neighbours() {
        let all: Vec<_> = (0..Slot::COUNT).filter_map(Slot::new).collect();
        let mut scattered = Slot::scattered(all.iter().copied());
        let neighbours = scattered.windows(2).filter(|pair| pair[0].0.abs_diff(pair[1].0) == 1).count();
        assert!(neighbours < 10, "{neighbours} pairs of neighbours follow each other");
        scattered.sort();
        assert_eq!(scattered, all);
    }

    #[test]
    fn ranges_of_one_primary_are_one_owner() {
        let node = |port| Value::Array(vec![Value::BulkString(b"10.0.0.1".to_vec()), Value::Int(port)]);
        let range = |first, last, port| Value::Array(vec![Value::Int(first), Value::Int(last), node(port), node(9)]);
        let owners = owners(&Value::Array(vec![range(0, 1, 1), range(2, 3, 2), range(7, 7, 1)])).unwrap();
        let slots = |owner: &Owner| owner.slots.iter().map(|slot| slot.0).collect::<Vec<_>>();
        assert_eq!(owners.len(), 2);
        assert_eq!((owners[0].address.as_str(), slots(&owners[0])), ("10.0.0.1:1", vec![0, 1, 7]));
        assert_eq!((owners[1].address.as_str(), slots(&owners[1])), ("10.0.0.1:2", vec![2, 3]));
    }
}
