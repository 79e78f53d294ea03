use anyhow::Result;
use crate::images::Component;
pub fn run(_c: Component) -> Result<()> { Ok(()) }
