//! A Valkey node as the cluster bus knows it.

use std::fmt;
use std::str::FromStr;

const BYTES: usize = 20;

/// A node's name on the cluster bus: 40 hexadecimal digits that it made up at its first start and keeps in `nodes.conf`.
///
/// The only safe way to tell nodes apart: addresses change with every restart of a pod, and are reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; BYTES]);

impl NodeId {
    pub const fn from_bytes(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNodeId(String);

impl fmt::Display for InvalidNodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no node id: 40 hexadecimal digits are", self.0)
    }
}

impl std::error::Error for InvalidNodeId {}

impl FromStr for NodeId {
    type Err = InvalidNodeId;

    fn from_str(text: &str) -> Result<Self, InvalidNodeId> {
        let invalid = || InvalidNodeId(text.to_owned());
        let digits: Vec<u8> = text
            .chars()
            .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()
            .ok_or_else(invalid)?;
        let bytes: Vec<u8> =
            digits.chunks_exact(2).filter_map(|pair| Some(pair.first()? << 4 | pair.last()?)).collect();
        if digits.len() != 2 * BYTES {
            return Err(invalid());
        }
        bytes.try_into().map(Self).map_err(|_| invalid())
    }
}

/// What a node is at this moment. Never guessed from a pod's number: it changes with every failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Primary,
    Replica,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_forty_hexadecimal_digits_and_prints_as_it_was_read() {
        let text = "07c37dfeb235213a872192d90877d0cd55635b91";
        assert_eq!(text.parse::<NodeId>().unwrap().to_string(), text);
        for wrong in ["", "07c3", &text[1..], &format!("{text}0"), &text.replace('7', "g"), &format!("{text}00")] {
            assert!(wrong.parse::<NodeId>().is_err(), "{wrong}");
        }
    }
}
