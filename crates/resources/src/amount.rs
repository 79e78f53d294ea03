//! Sizes, in the three ways in which they are written: by Kubernetes (`1.5Gi`), by Valkey (`2gb`), and for people.

use std::fmt;

/// A number of bytes.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const KI: u64 = 1 << 10;
const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;

/// The suffixes of a Kubernetes quantity, in thousandths of the unit.
const SUFFIXES: [(&str, u128); 14] = [
    ("", 1_000),
    ("m", 1),
    ("k", 1_000_000),
    ("M", 1_000_000_000),
    ("G", 1_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000_000),
    ("Ki", 1_000 << 10),
    ("Mi", 1_000 << 20),
    ("Gi", 1_000 << 30),
    ("Ti", 1_000 << 40),
    ("Pi", 1_000 << 50),
    ("Ei", 1_000 << 60),
];

/// An amount as Kubernetes writes it, in thousandths: `1.5` CPUs are 1500, `1Ki` is 1024000.
///
/// Not for showing to people: smaller than a thousandth is rounded up.
pub fn thousandths(quantity: &str) -> Option<u128> {
    let end = quantity.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let shift = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    if let Some((_, factor)) = SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some(digits.checked_mul(*factor)?.div_ceil(shift));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10u128.checked_pow(exponent.unsigned_abs())?;
    let thousands = digits.checked_mul(1_000)?;
    if exponent < 0 {
        Some(thousands.div_ceil(shift.checked_mul(power)?))
    } else {
        Some(thousands.checked_mul(power)?.div_ceil(shift))
    }
}

impl Bytes {
    /// `1.5Gi`, `2G`, `1e9`.
    pub fn of_quantity(quantity: &str) -> Option<Self> {
        u64::try_from(thousandths(quantity)?.div_ceil(1_000)).ok().map(Self)
    }

    /// `2gb`, `512mb`, `100k`: to Valkey `k` is 1000 and `kb` is 1024.
    pub fn of_valkey(size: &str) -> Option<Self> {
        let end = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
        let (number, unit) = size.split_at_checked(end)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" => 1_000,
            "kb" => KI,
            "m" => 1_000_000,
            "mb" => MI,
            "g" => 1_000_000_000,
            "gb" => GI,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(factor).map(Self)
    }

    pub fn percent(self, percent: u64) -> Self {
        let share = u128::from(self.0) * u128::from(percent) / 100;
        Self(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// The smallest amount of which this is the given share, in full mebibytes.
    pub fn as_share_of(self, percent: u64) -> Self {
        let whole = (u128::from(self.0) * 100).div_ceil(u128::from(percent.max(1)));
        Self(u64::try_from(whole).unwrap_or(u64::MAX).div_ceil(MI).saturating_mul(MI))
    }

    /// As somebody would write it into `maxMemory`.
    pub fn in_valkeys_units(self) -> String {
        format!("{}mb", self.0 / MI)
    }
}

/// As somebody would write it into `resources`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= GI && bytes % GI == 0 => write!(f, "{}Gi", bytes / GI),
            bytes if bytes >= MI => write!(f, "{}Mi", bytes / MI),
            bytes => write!(f, "{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1Ki", Some(1024)),
            ("1.5Gi", Some(1_610_612_736)),
            ("1e9", Some(1_000_000_000)),
            ("1E3", Some(1000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("1500m", Some(2)),
            (".5Ki", Some(512)),
            ("25e-1", Some(3)),
            ("-1Gi", None),
            ("1gb", None),
            ("Gi", None),
            (".", None),
            ("1.2.3", None),
            ("", None),
        ] {
            assert_eq!(Bytes::of_quantity(text).map(|bytes| bytes.0), expected, "{text:?}");
        }
        assert_eq!(thousandths("500m"), Some(500));
    }

    #[test]
    fn sizes_are_read_as_valkey_reads_them() {
        for (text, expected) in [
            ("2gb", Some(2 * GI)),
            ("2G", Some(2_000_000_000)),
            ("7", Some(7)),
            ("2Gi", None),
            ("gb", None),
            ("", None),
        ] {
            assert_eq!(Bytes::of_valkey(text).map(|bytes| bytes.0), expected, "{text:?}");
        }
    }

    #[test]
    fn people_see_the_unit_that_they_would_write() {
        assert_eq!(Bytes(GI).to_string(), "1Gi");
        assert_eq!(Bytes(GI + 1).to_string(), "1024Mi");
        assert_eq!(Bytes(2 * GI).as_share_of(60).to_string(), "3414Mi");
        assert_eq!(Bytes(GI).percent(60).in_valkeys_units(), "614mb");
    }
}
