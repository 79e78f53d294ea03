use std::fmt;

/// What a certificate is for. Each purpose of a cluster has its own intermediate, so that a certificate made for Valkey
/// clients opens no door between operator and sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Between operator and sidecar.
    Mtls,
    /// Valkey itself: clients, replication and the cluster bus.
    Tls,
}

impl Purpose {
    pub const ALL: [Self; 2] = [Self::Mtls, Self::Tls];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mtls => "mtls",
            Self::Tls => "tls",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
