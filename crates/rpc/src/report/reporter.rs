//! How a sidecar posts reports.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::{PATH, Report};
use crate::Reloadable;
use crate::client::connect_tls;
use crate::tls::{Credentials, HTTP1, TlsError, client_config};

const DEADLINE: Duration = Duration::from_secs(3);
const LONGEST_ANSWER: usize = 1024;
const DEFAULT_PORT: u16 = 443;

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{0:?} is not where reports can go: expected https://host:port")]
    Url(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("the operator cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    #[error("the operator did not answer within {0:?}")]
    Deadline(Duration),
    #[error("the connection to the operator broke: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the report cannot be written: {0}")]
    Unwritable(String),
    #[error("the operator does not take the report ({status}): {words}")]
    Turned { status: StatusCode, words: String },
}

/// `https://host:port` of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportUrl {
    host: String,
    port: u16,
}

impl FromStr for ReportUrl {
    type Err = ReportError;

    fn from_str(text: &str) -> Result<Self, ReportError> {
        let wrong = || ReportError::Url(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or_else(wrong)?;
        Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port: uri.port_u16().unwrap_or(DEFAULT_PORT) })
    }
}

impl fmt::Display for ReportUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}:{}", self.host, self.port)
    }
}

/// Posts reports to the operator, and to nobody else who might answer at its address.
#[derive(Clone, Debug)]
pub struct Reporter {
    url: ReportUrl,
    credentials: Reloadable<Credentials>,
    operator: String,
}

impl Reporter {
    /// `operator` is the URI in the operator's certificate.
    pub fn new(url: ReportUrl, credentials: Reloadable<Credentials>, operator: String) -> Self {
        Self { url, credentials, operator }
    }

    /// Over a connection of its own: the next one may have to go to another leader.
    pub async fn post(&self, report: &Report) -> Result<(), ReportError> {
        timeout(DEADLINE, self.try_post(report)).await.map_err(|_| ReportError::Deadline(DEADLINE))?
    }

    async fn try_post(&self, report: &Report) -> Result<(), ReportError> {
        let body = serde_json::to_vec(report).map_err(|error| ReportError::Unwritable(error.to_string()))?;
        let ReportUrl { host, port } = &self.url;
        let address = lookup_host((host.as_str(), *port)).await?.next();
        let address = address.ok_or_else(|| ReportError::NoAddress(host.clone()))?;
        let config = client_config(&self.credentials.get(), &self.operator, HTTP1)?;
        let stream = connect_tls(address, config).await?;
        let (mut http, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::post(PATH)
            .header(HOST, host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body))
            .map_err(|error| ReportError::Unwritable(error.to_string()))?;
        tokio::spawn(connection); // it ends with `http`, and what breaks it is told to whoever waits for the answer
        let answer = http.send_request(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let words = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await.map(Collected::to_bytes);
        let words = String::from_utf8_lossy(&words.unwrap_or_default()).into_owned();
        Err(ReportError::Turned { status, words })
    }
}
