//! A node's table of its cluster: what `CLUSTER NODES` answers and what `nodes.conf` holds, which is the same but for a last
//! line and some more words about each address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use valkey_model::{Export, InvalidNodeId, InvalidSlots, NodeId, Peer, PeerHealth, Role, SlotRange, SlotSet};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("the table of nodes has a line that is too short: {0:?}")]
    Short(String),
    #[error("the table of nodes has {what} that is no number: {text:?}")]
    Number { what: &'static str, text: String },
    #[error("the table of nodes has no line about the node itself")]
    NoSelf,
    #[error(transparent)]
    Id(#[from] InvalidNodeId),
    #[error(transparent)]
    Slots(#[from] InvalidSlots),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub myself: Entry,
    pub others: Vec<Entry>,
    /// Only a file has it.
    pub current_epoch: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: NodeId,
    /// `None` if the node is known by name only (`noaddr`).
    pub ip: Option<IpAddr>,
    /// The port without TLS. `None` if there is none, which is also what a server with TLS answers over its socket.
    pub port: Option<u16>,
    /// The port with TLS. Only a file has it.
    pub tls_port: Option<u16>,
    pub hostname: Option<String>,
    pub role: Role,
    pub primary: Option<NodeId>,
    pub config_epoch: u64,
    pub health: PeerHealth,
    pub connected: bool,
    pub slots: SlotSet,
    /// Slots that it has opened: their keys are on the way to another node. A node tells it about itself only.
    pub open: Vec<Export>,
}

impl Table {
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let (mut myself, mut others, mut current_epoch) = (None, Vec::new(), None);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(variables) = line.strip_prefix("vars ") {
                current_epoch = epoch_in(variables)?;
                continue;
            }
            match line_of_table(line)? {
                (Whose::Mine, entry) => myself = Some(entry),
                (Whose::Anothers, entry) => others.push(entry),
            }
        }
        Ok(Self { myself: myself.ok_or(TableError::NoSelf)?, others, current_epoch })
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.myself).chain(&self.others)
    }
}

impl Entry {
    /// The same in the words of the model. All nodes of a cluster listen on one port, so `port` is the reader's own.
    pub fn peer(&self, port: u16) -> Peer {
        let Self { id, role, primary, config_epoch, health, connected, ref slots, .. } = *self;
        let address = self.ip.map(|ip| SocketAddr::new(ip, self.port.unwrap_or(port)));
        Peer { id, address, role, primary, slots: slots.clone(), config_epoch, health, connected }
    }
}

enum Whose {
    Mine,
    Anothers,
}

/// `<id> <ip:port@bus,hostname,key=value…> <flags> <primary> <ping> <pong> <epoch> <link> <slot>…`
fn line_of_table(line: &str) -> Result<(Whose, Entry), TableError> {
    let mut words = line.split_ascii_whitespace();
    let mut word = || words.next().ok_or_else(|| TableError::Short(line.to_owned()));
    let (id, address, flags, primary) = (word()?, word()?, word()?, word()?);
    let (_ping_sent, _pong_received, epoch, state) = (word()?, word()?, word()?, word()?);
    let has = |wanted: &str| flags.split(',').any(|flag| flag == wanted);
    let Address { ip, port, tls_port, hostname } = Address::parse(address);
    let entry = Entry {
        id: id.parse()?,
        ip: ip.filter(|_| !has("noaddr")),
        port,
        tls_port,
        hostname,
        role: if has("slave") { Role::Replica } else { Role::Primary },
        primary: if primary == "-" { None } else { Some(primary.parse()?) },
        config_epoch: number("an epoch", epoch)?,
        health: match () {
            () if has("handshake") => PeerHealth::Handshake,
            () if has("fail") => PeerHealth::Failed,
            () if has("fail?") => PeerHealth::Suspected,
            () => PeerHealth::Fine,
        },
        connected: state == "connected",
        slots: slots(words.clone())?,
        open: open(words)?,
    };
    Ok((if has("myself") { Whose::Mine } else { Whose::Anothers }, entry))
}

struct Address {
    ip: Option<IpAddr>,
    port: Option<u16>,
    tls_port: Option<u16>,
    hostname: Option<String>,
}

impl Address {
    fn parse(text: &str) -> Self {
        let mut parts = text.split(',');
        let endpoint = parts.next().unwrap_or_default();
        let (client, _bus) = endpoint.split_once('@').unwrap_or((endpoint, ""));
        // From the right, since an IPv6 address stands there without brackets.
        let (ip, port) = client.rsplit_once(':').unwrap_or((client, ""));
        let (mut hostname, mut tls_port) = (None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("tls-port", value)) => tls_port = real_port(value),
                Some(_) => {}
                None => hostname = Some(part.to_owned()).filter(|name| !name.is_empty()),
            }
        }
        Self { ip: ip.trim_matches(['[', ']']).parse().ok(), port: real_port(port), tls_port, hostname }
    }
}

fn real_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// `[7->-id]` and `[7-<-id]` mark slots that are being moved; whose they are stands beside them.
fn slots<'a>(words: impl Iterator<Item = &'a str>) -> Result<SlotSet, InvalidSlots> {
    words.filter(|word| !word.starts_with('[')).map(str::parse::<SlotRange>).collect()
}

/// Those of `[7->-id]`, by the node that they go to.
fn open<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<Export>, TableError> {
    let marks = words.filter_map(|word| word.strip_prefix('[')?.strip_suffix(']')?.split_once("->-"));
    let mut open: BTreeMap<NodeId, SlotSet> = BTreeMap::new();
    for (slot, to) in marks {
        let slots = open.entry(to.parse()?).or_default();
        *slots = slots.union(&slot.parse()?);
    }
    Ok(open.into_iter().map(|(to, slots)| Export { slots, to }).collect())
}

/// `currentEpoch 3 lastVoteEpoch 0`
fn epoch_in(variables: &str) -> Result<Option<u64>, TableError> {
    let mut words = variables.split_ascii_whitespace();
    let value = words.find(|word| *word == "currentEpoch").and_then(|_| words.next());
    value.map(|value| number("a current epoch", value)).transpose()
}

fn number(what: &'static str, text: &str) -> Result<u64, TableError> {
    text.parse().map_err(|_| TableError::Number { what, text: text.to_owned() })
}

#[cfg(test)]
#[path = "nodes_table_tests.rs"]
mod tests;
