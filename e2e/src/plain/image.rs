//! Which Valkey images there are.

use std::fmt;

use anyhow::{Context, Result};

/// A container image with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    reference: String,
    version: Vec<u32>,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reference)
    }
}

impl Image {
    fn parse(reference: &str) -> Option<Self> {
        let (_, tag) = reference.rsplit_once(':')?;
        let version: Result<_, _> = tag.split('.').map(str::parse).collect();
        Some(Self { reference: reference.into(), version: version.ok()? })
    }

    /// `[9, 1, 2]`.
    pub fn version(&self) -> &[u32] {
        &self.version
    }
}

/// The Valkey images of the bench, oldest first, from `VALKEY_IMAGES`.
pub fn images() -> Result<Vec<Image>> {
    let list = std::env::var("VALKEY_IMAGES");
    let list = list.context("VALKEY_IMAGES names no image: run `eval \"$(cargo xtask cluster env)\"`")?;
    Ok(sorted(&list))
}

/// The newest of them.
pub fn newest() -> Result<Image> {
    images()?.pop().context("VALKEY_IMAGES names no image with a version as its tag")
}

fn sorted(list: &str) -> Vec<Image> {
    let mut images: Vec<_> = list.split(',').filter_map(|reference| Image::parse(reference.trim())).collect();
    images.sort_by(|one, other| one.version.cmp(&other.version));
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_sorted_by_version_not_by_letters() {
        let list =
            "docker.io/valkey/valkey:9.1.2, docker.io/valkey/valkey:10.0.0,docker.io/valkey/valkey:8.1.1,x:latest";
        let images = sorted(list);
        let tags: Vec<_> = images.iter().map(|image| image.version()[0]).collect();
        assert_eq!(tags, [8, 9, 10]);
    }
}
