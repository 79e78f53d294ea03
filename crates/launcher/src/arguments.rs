use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

const DEFAULT_SOCKET: &str = "/run/valkey/launcher.sock";
const DEFAULT_PATIENCE: Duration = Duration::from_secs(12);

/// What to start, whom to ask, and how long to wait for a handover.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    pub socket: PathBuf,
    pub patience: Duration,
    pub program: OsString,
    pub parameters: Vec<OsString>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    NoCommand,
    NoValue(&'static str),
    NotSeconds(String),
    Unknown(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => {
                f.write_str("no server to start: give its command after --, as in -- valkey-server valkey.conf")
            }
            Self::NoValue(option) => write!(f, "{option} needs a value"),
            Self::NotSeconds(value) => {
                write!(f, "--patience {value:?} is not a number of seconds: give a whole number, as in --patience 12")
            }
            Self::Unknown(argument) => write!(
                f,
                "{argument:?} is not an option: usage is launcher [--socket PATH] [--patience SECONDS] -- COMMAND…"
            ),
        }
    }
}

impl Arguments {
    pub fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let mut given = given.into_iter();
        let (mut socket, mut patience) = (PathBuf::from(DEFAULT_SOCKET), DEFAULT_PATIENCE);
        while let Some(argument) = given.next() {
            match argument.to_str() {
                Some("--socket") => socket = given.next().ok_or(Error::NoValue("--socket"))?.into(),
                Some("--patience") => patience = seconds(&given.next().ok_or(Error::NoValue("--patience"))?)?,
                Some("--") => {
                    let program = given.next().ok_or(Error::NoCommand)?;
                    return Ok(Self { socket, patience, program, parameters: given.collect() });
                }
                _ => return Err(Error::Unknown(argument.display().to_string())),
            }
        }
        Err(Error::NoCommand)
    }
}

fn seconds(value: &OsString) -> Result<Duration, Error> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    let seconds: u32 = number.ok_or_else(|| Error::NotSeconds(value.display().to_string()))?;
    Ok(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, Error> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn everything_after_the_dashes_belongs_to_the_server() {
        let parsed = parse("--patience 3 --socket /s -- valkey-server --socket x --").unwrap();
        assert_eq!(parsed.socket, PathBuf::from("/s"));
        assert_eq!(parsed.patience, Duration::from_secs(3));
        assert_eq!(parsed.program, "valkey-server");
        assert_eq!(parsed.parameters, ["--socket", "x", "--"]);
    }

    #[test]
    fn socket_and_patience_have_defaults() {
        let parsed = parse("-- valkey-server").unwrap();
        assert_eq!((parsed.socket, parsed.patience), (DEFAULT_SOCKET.into(), DEFAULT_PATIENCE));
    }

    #[test]
    fn a_wrong_call_is_answered_with_what_is_wrong() {
        for (line, error) in [
            ("", Error::NoCommand),
            ("--", Error::NoCommand),
            ("--patience 3", Error::NoCommand),
            ("valkey-server", Error::Unknown("valkey-server".into())),
            ("--soket /s -- x", Error::Unknown("--soket".into())),
            ("--socket", Error::NoValue("--socket")),
            ("--patience", Error::NoValue("--patience")),
            ("--patience soon -- x", Error::NotSeconds("soon".into())),
            ("--patience -1 -- x", Error::NotSeconds("-1".into())),
        ] {
            assert_eq!(parse(line), Err(error), "{line:?}");
        }
    }
}
