use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;

/// Longest unit first, so that the text of a validity is the shortest one that says it exactly.
const UNITS: [(&str, i64); 5] = [("y", 365 * DAY), ("mo", 30 * DAY), ("d", DAY), ("h", 60 * MINUTE), ("m", MINUTE)];

/// How long a certificate is valid: from one minute to a hundred years.
///
/// A month is 30 days and a year 365: the same text means the same time whenever it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Validity {
    seconds: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidityError {
    #[error("{0:?} is not a validity: write a whole number and one of m, h, d, mo (30 days), y (365 days), as in 90d")]
    Form(String),
    #[error("{0:?} is out of range: a certificate may be valid from 1m to 100y")]
    Range(String),
}

impl Validity {
    const SHORTEST: i64 = MINUTE;
    const LONGEST: i64 = 100 * 365 * DAY;

    /// Of a root that is made at install.
    pub const ROOT: Self = Self { seconds: 10 * 365 * DAY };
    pub const INTERMEDIATE: Self = Self { seconds: 5 * 365 * DAY };
    pub const LEAF: Self = Self { seconds: 90 * DAY };

    pub fn duration(self) -> SignedDuration {
        SignedDuration::from_secs(self.seconds)
    }
}

impl FromStr for Validity {
    type Err = ValidityError;

    fn from_str(text: &str) -> Result<Self, ValidityError> {
        let form = || ValidityError::Form(text.into());
        let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(form)?;
        let (count, unit) = text.split_at(unit_at);
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(form)?;
        if count.is_empty() {
            return Err(form());
        }
        // Only digits are left, so a number that cannot be read is too large.
        let seconds = count.parse::<i64>().ok().and_then(|count| count.checked_mul(*unit));
        match seconds {
            Some(seconds) if (Self::SHORTEST..=Self::LONGEST).contains(&seconds) => Ok(Self { seconds }),
            _ => Err(ValidityError::Range(text.into())),
        }
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, unit)| self.seconds % unit == 0);
        let (name, unit) = exact.unwrap_or(&("m", MINUTE)); // it is always a whole number of minutes
        write!(f, "{}{name}", self.seconds / unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, days, hours, minutes) in
            [("90d", 90, 0, 0), ("1m", 0, 0, 1), ("36h", 1, 12, 0), ("3mo", 90, 0, 0), ("5y", 1825, 0, 0)]
        {
            let expected = SignedDuration::from_hours(days * 24 + hours) + SignedDuration::from_mins(minutes);
            assert_eq!(text.parse::<Validity>().unwrap().duration(), expected, "{text}");
        }
    }

    #[test]
    fn the_defaults_are_written_as_people_write_them() {
        assert_eq!(Validity::ROOT.to_string(), "10y");
        assert_eq!(Validity::INTERMEDIATE.to_string(), "5y");
        assert_eq!(Validity::LEAF.to_string(), "3mo");
    }

    #[test]
    fn what_is_not_a_validity_is_named_in_the_error() {
        for text in ["", "90", "d", "90 d", "-1d", "+1d", "1.5d", "90days", "90D", "90s", "1d12h", "٩d"] {
            assert_eq!(text.parse::<Validity>(), Err(ValidityError::Form(text.into())));
        }
        for text in ["0m", "0y", "101y", "99999999999999999999d", "9223372036854775807y"] {
            assert_eq!(text.parse::<Validity>(), Err(ValidityError::Range(text.into())));
        }
        let message = "90".parse::<Validity>().unwrap_err().to_string();
        assert!(message.contains("\"90\"") && message.contains("90d"), "{message}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(minutes in 1..=100 * 365 * 24 * 60_i64) {
            let validity = Validity { seconds: minutes * MINUTE };
            prop_assert_eq!(validity.to_string().parse(), Ok(validity));
        }
    }
}
