//! placeholder
use anyhow::Result;
pub fn run(_registry: Option<&str>) -> Result<()> { Ok(()) }
