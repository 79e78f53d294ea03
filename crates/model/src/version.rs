//! A Valkey release.

use std::fmt;
use std::str::FromStr;

/// `9.1.2`. A tag such as `9.1.2-alpine` is read as far as it is a version; a missing part is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
    pub patch: u16,
}

impl Version {
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidVersion(String);

impl fmt::Display for InvalidVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} does not begin with a version such as 9.1.2", self.0)
    }
}

impl std::error::Error for InvalidVersion {}

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let invalid = || InvalidVersion(text.to_owned());
        let number = text.split(['-', '+', '_']).next().unwrap_or_default();
        let mut parts = number.split('.').map(|part| part.parse::<u16>().map_err(|_| invalid()));
        let mut next = || parts.next().transpose();
        let (major, minor, patch) = (next()?.ok_or_else(invalid)?, next()?.unwrap_or(0), next()?.unwrap_or(0));
        if parts.next().is_some() { Err(invalid()) } else { Ok(Self { major, minor, patch }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_far_as_they_are_versions() {
        for (text, version) in [
            ("9.1.2", Version::new(9, 1, 2)),
            ("8.0", Version::new(8, 0, 0)),
            ("9", Version::new(9, 0, 0)),
            ("8.1.4-alpine3.20", Version::new(8, 1, 4)),
        ] {
            assert_eq!(text.parse(), Ok(version));
        }
        for text in ["latest", "", "v9", "9.x", "9.1.2.3", "-alpine"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn newer_is_greater() {
        assert!(Version::new(9, 0, 0) > Version::new(8, 1, 9));
        assert!(Version::new(8, 1, 10) > Version::new(8, 1, 9));
    }
}
