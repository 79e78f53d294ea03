use anyhow::Result;
pub fn run(_r: u32) -> Result<()> { Ok(()) }
