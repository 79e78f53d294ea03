//! The custom resource definitions, for `kubectl apply` and for the chart.

use std::path::Path;

use anyhow::{Context, Result};

use crate::Generated;

/// Helm installs what lies in a chart's `crds` folder before everything else.
const FOLDERS: [&str; 2] = ["deploy/crds", "charts/valkey-operator/crds"];

pub fn files() -> Result<Vec<Generated>> {
    let mut files = Vec::new();
    for crd in valkey_api::crds() {
        let name = crd.metadata.name.as_deref().context("a definition has a name")?;
        let yaml = serde_saphyr::to_string(&crd).with_context(|| format!("{name} cannot be written as YAML"))?;
        let content = format!("# Made by `cargo xtask generate` from crates/api.\n{yaml}");
        files.extend(FOLDERS.map(|folder| (Path::new(folder).join(format!("{name}.yaml")), content.clone())));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    #[test]
    fn what_is_written_reads_back_as_what_the_types_say() {
        let files = files().unwrap();
        for (file, crd) in files.chunks(FOLDERS.len()).zip(valkey_api::crds()) {
            let read: CustomResourceDefinition = serde_saphyr::from_str(&file[0].1).unwrap();
            assert_eq!(read, crd);
            assert_eq!(file[0].1, file[1].1);
        }
    }
}
