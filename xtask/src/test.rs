use anyhow::Result;
pub enum Suite { Usual, Full }
pub fn run(_s: Suite, _o: Option<&str>) -> Result<std::process::ExitCode> { Ok(std::process::ExitCode::SUCCESS) }
