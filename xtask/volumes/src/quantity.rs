//! Sizes as Kubernetes writes them: `1Gi`, `1.5G`, `1e9`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const SUFFIXES: &[(&str, f64)] = &[
    ("", 1.0),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
];

/// The size in bytes, exact up to 2^53; `None` for what the API server would not have let through.
pub fn bytes(quantity: &Quantity) -> Option<f64> {
    let text = quantity.0.as_str();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let number: f64 = number.parse().ok()?;
    if let Some((_, factor)) = SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some(number * factor);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some(number * 10f64.powi(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("0", Some(0.0)),
            ("1024", Some(1024.0)),
            ("1Ki", Some(1024.0)),
            ("1k", Some(1000.0)),
            ("2Gi", Some(2_147_483_648.0)),
            ("1.5Gi", Some(1_610_612_736.0)),
            ("1e9", Some(1e9)),
            ("1E3", Some(1e3)),
            ("1E", Some(1e18)),
            ("2000m", Some(2.0)),
            ("-1Gi", None),
            ("1gb", None),
            ("Gi", None),
            ("", None),
        ] {
            assert_eq!(bytes(&Quantity(text.into())), expected, "{text:?}");
        }
    }
}
