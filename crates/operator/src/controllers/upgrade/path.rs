//! Which version may follow which.
//!
//! Forward any supported series may follow any other, also with one left out: 8.0 and 8.1 write the same snapshots (RDB 11), which
//! 9.x reads, and nodes of all series replicate from and fail over to each other, so a stop in between would make nothing
//! safer (docs/upgrades.md has the experiments). Backward no series may follow another: 8.x cannot read what 9.x writes (F36).

use valkey_model::Version;
use valkey_resources::Series;

/// The snapshot format that a series writes. An older one cannot read a newer one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RdbVersion(u16);

fn rdb_version(series: Series) -> RdbVersion {
    match series {
        Series::V8_0 | Series::V8_1 => RdbVersion(11),
        Series::V9_0 | Series::V9_1 => RdbVersion(80),
    }
}

/// Why a cluster cannot go from one version to another, if it cannot. `running` is what its nodes say, for a tag that says
/// nothing.
pub fn check(from: &str, running: Option<Version>, target: &str) -> Result<(), String> {
    let wanted = series(target).ok_or_else(|| {
        let known = Series::ALL.map(Series::as_str).join(", ");
        format!("{target} is not of a supported series: choose a release of {known}")
    })?;
    // A tag that says a version counts as it is, also if nobody knows that version: what the nodes run may be older.
    let present = from.parse().ok().or(running).and_then(Series::of).ok_or_else(|| {
        format!(
            "the cluster's image has the tag {from}, and its version cannot be told: set spec.valkeyImage.tag to a version first"
        )
    })?;
    if wanted < present {
        return Err(format!(
            "{target} is older than the cluster's {from}: a series never follows a newer one, since it may not be able to read \
             its data; restore a backup into a new cluster instead"
        ));
    }
    Ok(())
}

fn series(tag: &str) -> Option<Series> {
    Series::of(tag.parse().ok()?)
}

/// Whether nodes of `from` can read what nodes of `target` have written. What is unknown is not trusted.
pub fn can_go_back(from: &str, target: &str) -> bool {
    match (series(from), series(target)) {
        (Some(from), Some(target)) => rdb_version(target) <= rdb_version(from),
        _ => from == target,
    }
}

/// Whether a server of this version is what a tag promises: as far as the tag says, and nothing if it says nothing.
pub fn keeps_promise(tag: &str, version: Version) -> bool {
    if tag.parse::<Version>().is_err() {
        return true;
    }
    let number = tag.split(['-', '+', '_']).next().unwrap_or_default();
    let parts = [version.major, version.minor, version.patch];
    number.split('.').zip(parts).all(|(promised, there)| promised.parse() == Ok(there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_series_and_any_patch_of_the_same_one_may_follow() {
        for (from, target) in [
            ("8.0.3", "8.1.4"),
            ("8.1.4", "9.0.1"),
            ("8.1.4-alpine", "9.1.2-alpine"),
            ("8.0.3", "9.1.2"),
            ("9.1.2", "9.1.3"),
            ("9.1.3", "9.1.2"),
        ] {
            assert_eq!(check(from, None, target), Ok(()), "{from} to {target}");
        }
    }

    #[test]
    fn an_older_series_and_an_unknown_one_are_refused() {
        for (from, target, word) in [
            ("9.1.2", "8.1.4", "older"),
            ("9.1.2", "9.0.4", "older"),
            ("8.1.4", "8.0.3", "older"),
            ("9.1.2", "10.0.0", "supported"),
            ("9.1.2", "7.2.5", "supported"),
            ("latest", "9.1.2", "cannot be told"),
            ("9.2.0", "9.1.2", "cannot be told"),
        ] {
            let error = check(from, None, target).unwrap_err();
            assert!(error.contains(word), "{from} to {target}: {error}");
        }
    }

    #[test]
    fn a_tag_that_says_nothing_is_told_by_the_nodes() {
        assert_eq!(check("latest", Some(Version::new(8, 1, 4)), "9.1.2"), Ok(()));
        assert!(check("latest", Some(Version::new(9, 1, 2)), "8.1.4").is_err());
        assert!(check("9.2.0", Some(Version::new(8, 1, 4)), "9.1.2").is_err(), "the tag says more");
    }

    #[test]
    fn what_9_writes_8_cannot_read() {
        assert!(can_go_back("8.0.3", "8.1.4") && can_go_back("9.0.1", "9.1.2"));
        assert!(!can_go_back("8.1.4", "9.1.2") && !can_go_back("latest", "9.1.2"));
    }

    #[test]
    fn a_version_is_held_against_as_much_as_the_tag_says() {
        let there = Version::new(9, 1, 2);
        assert!(["9.1.2", "9.1.2-alpine", "9.1", "9", "latest"].iter().all(|tag| keeps_promise(tag, there)));
        assert!(["9.1.3", "9.0", "8.1.2-alpine"].iter().all(|tag| !keeps_promise(tag, there)));
    }
}
