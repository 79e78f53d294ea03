//! A place in the cluster that a pod fills.

use std::fmt;
use std::str::FromStr;

/// The number of a shard. Says which pods belong together, nothing about who leads them or which slots they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u16);

impl fmt::Display for ShardIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One pod's place: the pod of cluster `orders` that is member 1 of shard 2 is called `orders-2-1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    pub shard: ShardIndex,
    pub ordinal: u16,
}

impl Member {
    pub const fn new(shard: u16, ordinal: u16) -> Self {
        Self { shard: ShardIndex(shard), ordinal }
    }

    /// The member that a pod of this cluster fills.
    pub fn of_pod(cluster: &str, pod: &str) -> Result<Self, InvalidMember> {
        let place = pod.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-'));
        place.and_then(|place| place.parse().ok()).ok_or_else(|| InvalidMember(pod.to_owned()))
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.shard, self.ordinal)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMember(String);

impl fmt::Display for InvalidMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no member of the cluster: those are called <cluster>-<shard>-<ordinal>", self.0)
    }
}

impl std::error::Error for InvalidMember {}

impl FromStr for Member {
    type Err = InvalidMember;

    fn from_str(text: &str) -> Result<Self, InvalidMember> {
        let invalid = || InvalidMember(text.to_owned());
        let (shard, ordinal) = text.split_once('-').ok_or_else(invalid)?;
        let number = |digits: &str| digits.parse::<u16>().map_err(|_| invalid());
        Ok(Self { shard: ShardIndex(number(shard)?), ordinal: number(ordinal)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_name_says_which_member_it_is() {
        assert_eq!(Member::of_pod("orders", "orders-2-1"), Ok(Member::new(2, 1)));
        assert_eq!(Member::of_pod("a-1", "a-1-0-3"), Ok(Member::new(0, 3)));
        for stranger in ["orders-2", "orders2-1", "other-2-1", "orders-x-1", "orders-2-1-0"] {
            assert!(Member::of_pod("orders", stranger).is_err(), "{stranger}");
        }
    }
}
