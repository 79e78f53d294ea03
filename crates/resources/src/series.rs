//! The Valkey releases that differ in what we must write for them.

use std::fmt;

use valkey_model::Version;

/// A line of releases with the same parameters and access rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Series {
    V8_0,
    V8_1,
    V9_0,
    V9_1,
}

impl Series {
    pub const ALL: [Self; 4] = [Self::V8_0, Self::V8_1, Self::V9_0, Self::V9_1];

    /// What an image is taken for whose tag says nothing.
    pub const NEWEST: Self = Self::V9_1;

    pub fn of(version: Version) -> Option<Self> {
        match (version.major, version.minor) {
            (8, 0) => Some(Self::V8_0),
            (8, 1) => Some(Self::V8_1),
            (9, 0) => Some(Self::V9_0),
            (9, 1) => Some(Self::V9_1),
            _ => None,
        }
    }

    /// The first release without a known way to lose data or a cluster: the shard-id crash loop, a crash on `ACL LOAD`,
    /// slot migration over TLS.
    pub fn floor(self) -> Version {
        match self {
            Self::V8_0 => Version::new(8, 0, 3),
            Self::V8_1 => Version::new(8, 1, 4),
            Self::V9_0 => Version::new(9, 0, 0),
            Self::V9_1 => Version::new(9, 1, 2),
        }
    }

    /// Slots move between nodes as one stream, which the replication user must be allowed to receive.
    pub fn migrates_slots_atomically(self) -> bool {
        self >= Self::V9_0
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V8_0 => "8.0",
            Self::V8_1 => "8.1",
            Self::V9_0 => "9.0",
            Self::V9_1 => "9.1",
        }
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
