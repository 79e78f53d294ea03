//! Hash slots.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// How many hash slots a Valkey cluster has.
pub const SLOTS: u16 = 16384;
const LAST: u16 = SLOTS - 1;

/// A run of slots, both ends included, as Valkey writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRange {
    first: u16,
    last: u16,
}

impl SlotRange {
    pub fn new(first: u16, last: u16) -> Result<Self, InvalidSlots> {
        if first <= last && last <= LAST {
            Ok(Self { first, last })
        } else {
            Err(InvalidSlots(format!("{first}-{last}")))
        }
    }

    pub fn first(self) -> u16 {
        self.first
    }

    pub fn last(self) -> u16 {
        self.last
    }

    fn len(self) -> u16 {
        self.last - self.first + 1
    }
}

/// Any set of slots, kept as sorted runs that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotSet(Vec<SlotRange>);

impl SlotSet {
    pub const EMPTY: Self = Self(Vec::new());

    pub fn all() -> Self {
        Self(vec![SlotRange { first: 0, last: LAST }])
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> u16 {
        self.0.iter().map(|range| range.len()).sum()
    }

    pub fn ranges(&self) -> impl Iterator<Item = SlotRange> + '_ {
        self.0.iter().copied()
    }

    pub fn contains(&self, slot: u16) -> bool {
        self.0.iter().any(|range| range.first <= slot && slot <= range.last)
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.ranges().chain(other.ranges()).collect()
    }

    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut left: Vec<SlotRange> = self.0.clone();
        for hole in &other.0 {
            left = left.into_iter().flat_map(|range| cut(range, *hole)).flatten().collect();
        }
        Self(left)
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.minus(&self.minus(other))
    }

    pub fn intersects(&self, other: &Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The lowest slots of the set, at most so many.
    #[must_use]
    pub fn first(&self, count: u16) -> Self {
        let mut left = count;
        let taken = self.ranges().map_while(|range| {
            let len = range.len().min(left);
            left -= len;
            (len > 0).then(|| SlotRange { first: range.first, last: range.first + (len - 1) })
        });
        Self(taken.collect())
    }
}

/// How many keys are in each slot; slots without any may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotKeys(BTreeMap<u16, u64>);

impl SlotKeys {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn of(&self, slot: u16) -> u64 {
        self.0.get(&slot).copied().unwrap_or(0)
    }

    /// How many there are in all of these slots.
    pub fn within(&self, slots: &SlotSet) -> u64 {
        slots.ranges().flat_map(|range| self.0.range(range.first..=range.last)).map(|(_, keys)| keys).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.0.iter().map(|(slot, keys)| (*slot, *keys))
    }
}

impl FromIterator<(u16, u64)> for SlotKeys {
    fn from_iter<I: IntoIterator<Item = (u16, u64)>>(keys: I) -> Self {
        Self(keys.into_iter().filter(|(_, keys)| *keys > 0).collect())
    }
}

/// What is left of a run: the part before the hole and the part after it.
fn cut(range: SlotRange, hole: SlotRange) -> [Option<SlotRange>; 2] {
    if hole.last < range.first || range.last < hole.first {
        return [Some(range), None];
    }
    let before = (range.first < hole.first).then(|| SlotRange { first: range.first, last: hole.first - 1 });
    let after = (hole.last < range.last).then(|| SlotRange { first: hole.last + 1, last: range.last });
    [before, after]
}

impl FromIterator<SlotRange> for SlotSet {
    fn from_iter<I: IntoIterator<Item = SlotRange>>(ranges: I) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let mut merged: Vec<SlotRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.first <= last.last + 1 => last.last = last.last.max(range.last),
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

/// Text that is not a slot or a run of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSlots(String);

impl fmt::Display for InvalidSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no slot and no run of slots: write one as 7 or 0-5460, none above {LAST}", self.0)
    }
}

impl std::error::Error for InvalidSlots {}

impl FromStr for SlotRange {
    type Err = InvalidSlots;

    fn from_str(text: &str) -> Result<Self, InvalidSlots> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let slot = |digits: &str| digits.parse::<u16>().map_err(|_| InvalidSlots(text.to_owned()));
        Self::new(slot(first)?, slot(last)?).map_err(|_| InvalidSlots(text.to_owned()))
    }
}

impl FromStr for SlotSet {
    type Err = InvalidSlots;

    fn from_str(text: &str) -> Result<Self, InvalidSlots> {
        text.split(',').filter(|part| !part.is_empty()).map(str::parse).collect()
    }
}

/// All slots in `shards` runs whose sizes differ by at most one, as an even start for a new cluster.
pub fn partition(shards: u16) -> Vec<SlotSet> {
    let border = |index: u16| u16::try_from(u32::from(SLOTS) * u32::from(index) / u32::from(shards)).unwrap_or(SLOTS);
    let run = |index| SlotRange::new(border(index), border(index + 1).saturating_sub(1)).into_iter().collect();
    (0..shards.min(SLOTS)).map(run).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = SlotSet> {
        let range = (0..SLOTS, 0..SLOTS).prop_map(|(a, b)| SlotRange::new(a.min(b), a.max(b)).unwrap());
        vec(range, 0..6).prop_map(|ranges| ranges.into_iter().collect())
    }

    proptest! {
        #[test]
        fn sets_obey_the_laws_of_sets(a in set(), b in set(), slot in 0..SLOTS) {
            prop_assert_eq!(a.union(&b).contains(slot), a.contains(slot) || b.contains(slot));
            prop_assert_eq!(a.minus(&b).contains(slot), a.contains(slot) && !b.contains(slot));
            prop_assert_eq!(a.intersection(&b).contains(slot), a.contains(slot) && b.contains(slot));
            prop_assert_eq!(a.intersects(&b), b.intersects(&a));
            prop_assert_eq!(a.minus(&b).len() + a.intersection(&b).len(), a.len());
        }

        #[test]
        fn the_first_slots_are_the_lowest(a in set(), count in 0..=SLOTS) {
            let first = a.first(count);
            prop_assert_eq!(first.len(), a.len().min(count));
            let (highest, rest) = (first.ranges().last(), a.minus(&first));
            prop_assert_eq!(first.union(&rest), a);
            prop_assert!(rest.ranges().next().is_none_or(|r| highest.is_none_or(|h| h.last() < r.first())));
        }

        #[test]
        fn what_is_printed_can_be_read_again(a in set()) {
            prop_assert_eq!(a.to_string().parse::<SlotSet>().unwrap(), a);
        }

        #[test]
        fn a_partition_covers_every_slot_once_and_evenly(shards in 1..=500_u16) {
            let parts = partition(shards);
            prop_assert_eq!(parts.iter().map(SlotSet::len).sum::<u16>(), SLOTS);
            prop_assert_eq!(parts.iter().fold(SlotSet::EMPTY, |all, part| all.union(part)), SlotSet::all());
            let (least, most) = (parts.iter().map(SlotSet::len).min(), parts.iter().map(SlotSet::len).max());
            prop_assert!(most.unwrap() - least.unwrap() <= 1);
        }
    }

    #[test]
    fn three_shards_get_the_usual_runs() {
        let runs: Vec<_> = partition(3).iter().map(ToString::to_string).collect();
        assert_eq!(runs, ["0-5460", "5461-10921", "10922-16383"]);
    }

    #[test]
    fn what_is_no_slot_is_refused() {
        for text in ["16384", "7-3", "x", "-1", "1-"] {
            let error = text.parse::<SlotSet>().unwrap_err().to_string();
            assert!(error.contains("0-5460"), "{error}");
        }
    }
}
