//! Messages on the wire from and to the values of the domain. What does not parse is an error with a name, never a default.

mod commands;

use std::net::SocketAddr;
use std::time::Duration;

use valkey_model::{
    Export, Exports, Failure, Held, InvalidNodeId, InvalidSlots, InvalidVersion, LocalData, NodeId, NodeReport, Peer,
    PeerHealth, RefusedSettings, ReplicaLink, Role, SlotKeys, SlotRange, TakenSettings,
};

use crate::message::{Certificate, Certificates, Observed, State};
use crate::proto;

pub use commands::action;

/// A message that a peer of another version, or nobody of ours, sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the message lacks {0}: upgrade the older one of operator and sidecar")]
    Lacks(&'static str),
    #[error("the message has an unknown {what} {value}: upgrade the older one of operator and sidecar")]
    Unknown { what: &'static str, value: i32 },
    #[error("{0:?} is no address: expected one such as 10.0.0.7:6379")]
    Address(String),
    #[error(transparent)]
    NodeId(#[from] InvalidNodeId),
    #[error(transparent)]
    Slots(#[from] InvalidSlots),
    #[error(transparent)]
    Version(#[from] InvalidVersion),
}

impl From<SlotKeys> for proto::WeighResponse {
    fn from(keys: SlotKeys) -> Self {
        let (slots, keys) = keys.iter().map(|(slot, keys)| (u32::from(slot), keys)).unzip();
        Self { slots, keys }
    }
}

impl TryFrom<proto::WeighResponse> for SlotKeys {
    type Error = Malformed;

    fn try_from(response: proto::WeighResponse) -> Result<Self, Malformed> {
        let proto::WeighResponse { slots, keys } = response;
        if slots.len() != keys.len() {
            return Err(Malformed::Lacks("the keys of a slot"));
        }
        let slot = |slot: u32| {
            let slot = u16::try_from(slot).unwrap_or(u16::MAX);
            SlotRange::new(slot, slot).map(SlotRange::first)
        };
        slots.into_iter().zip(keys).map(|(number, keys)| Ok((slot(number)?, keys))).collect()
    }
}

impl From<Observed> for proto::ObserveResponse {
    fn from(observed: Observed) -> Self {
        let Observed { state, sidecar_version, contract_version, certificates: Certificates { mtls, tls } } = observed;
        Self {
            state: Some(match state {
                State::Starting(reason) => proto::observe_response::State::Starting(proto::Starting { reason }),
                State::Held(held) => proto::observe_response::State::Held(held.into()),
                State::Known(report) => proto::observe_response::State::Known((*report).into()),
            }),
            sidecar_version,
            contract_version,
            mtls: mtls.map(Into::into),
            tls: tls.map(Into::into),
        }
    }
}

impl TryFrom<proto::ObserveResponse> for Observed {
    type Error = Malformed;

    fn try_from(response: proto::ObserveResponse) -> Result<Self, Malformed> {
        let proto::ObserveResponse { state, sidecar_version, contract_version, mtls, tls } = response;
        let state = match state.ok_or(Malformed::Lacks("a state"))? {
            proto::observe_response::State::Starting(starting) => State::Starting(starting.reason),
            proto::observe_response::State::Held(held) => State::Held(held.try_into()?),
            proto::observe_response::State::Known(node) => State::Known(Box::new(node.try_into()?)),
        };
        let certificates = Certificates { mtls: mtls.map(Into::into), tls: tls.map(Into::into) };
        Ok(Self { state, sidecar_version, contract_version, certificates })
    }
}

impl From<Certificate> for proto::Certificate {
    fn from(Certificate { thumbprint, expires_at }: Certificate) -> Self {
        Self { thumbprint, expires_at }
    }
}

impl From<proto::Certificate> for Certificate {
    fn from(proto::Certificate { thumbprint, expires_at }: proto::Certificate) -> Self {
        Self { thumbprint, expires_at }
    }
}

impl From<Held> for proto::Held {
    fn from(Held { id, slots, data }: Held) -> Self {
        let data = match data {
            LocalData::Gone => proto::Data::Gone,
            LocalData::Old => proto::Data::Old,
            LocalData::Unreadable => proto::Data::Unreadable,
            LocalData::Complete => proto::Data::Complete,
        };
        Self { id: id.to_string(), slots: slots.to_string(), data: data.into() }
    }
}

impl TryFrom<proto::Held> for Held {
    type Error = Malformed;

    fn try_from(held: proto::Held) -> Result<Self, Malformed> {
        let data = match held.data() {
            proto::Data::Gone => LocalData::Gone,
            proto::Data::Old => LocalData::Old,
            proto::Data::Unreadable => LocalData::Unreadable,
            proto::Data::Complete => LocalData::Complete,
            proto::Data::Unspecified => return Err(Malformed::Unknown { what: "amount of data", value: held.data }),
        };
        Ok(Self { id: held.id.parse()?, slots: held.slots.parse()?, data })
    }
}

impl From<NodeReport> for proto::Node {
    fn from(report: NodeReport) -> Self {
        let NodeReport {
            id,
            address,
            role: its_role,
            primary,
            slots,
            config_epoch,
            current_epoch,
            serving,
            loading,
            link,
            offset,
            keys,
            memory,
            max_memory,
            version,
            node_timeout,
            peers,
            exports,
            settings,
        } = report;
        let link = match link {
            ReplicaLink::Up => proto::Link::Up,
            ReplicaLink::Syncing => proto::Link::Syncing,
            ReplicaLink::Down => proto::Link::Down,
        };
        Self {
            id: id.to_string(),
            address: address.to_string(),
            role: role(its_role).into(),
            primary: text(primary),
            slots: slots.to_string(),
            config_epoch,
            current_epoch,
            serving,
            loading,
            link: link.into(),
            offset,
            keys,
            memory,
            version: version.to_string(),
            node_timeout_ms: milliseconds(node_timeout),
            peers: peers.into_iter().map(Into::into).collect(),
            max_memory,
            exports: Some(exports.into()),
            settings: settings.map(Into::into),
        }
    }
}

impl TryFrom<proto::Node> for NodeReport {
    type Error = Malformed;

    fn try_from(node: proto::Node) -> Result<Self, Malformed> {
        let link = match node.link() {
            proto::Link::Up => ReplicaLink::Up,
            proto::Link::Syncing => ReplicaLink::Syncing,
            proto::Link::Down => ReplicaLink::Down,
            proto::Link::Unspecified => return Err(Malformed::Unknown { what: "link", value: node.link }),
        };
        Ok(Self {
            id: node.id.parse()?,
            address: address(&node.address)?,
            role: parsed_role(node.role(), node.role)?,
            primary: optional_id(&node.primary)?,
            slots: node.slots.parse()?,
            config_epoch: node.config_epoch,
            current_epoch: node.current_epoch,
            serving: node.serving,
            loading: node.loading,
            link,
            offset: node.offset,
            keys: node.keys,
            memory: node.memory,
            max_memory: node.max_memory,
            version: node.version.parse()?,
            node_timeout: Duration::from_millis(node.node_timeout_ms),
            peers: node.peers.into_iter().map(Peer::try_from).collect::<Result<_, _>>()?,
            // A sidecar that does not know of them moves none.
            exports: node.exports.map(TryInto::try_into).transpose()?.unwrap_or_default(),
            settings: node.settings.map(Into::into),
        })
    }
}

impl From<Peer> for proto::Peer {
    fn from(peer: Peer) -> Self {
        let Peer { id, address, role: its_role, primary, slots, config_epoch, health, connected } = peer;
        let health = match health {
            PeerHealth::Handshake => proto::Health::Handshake,
            PeerHealth::Fine => proto::Health::Fine,
            PeerHealth::Suspected => proto::Health::Suspected,
            PeerHealth::Failed => proto::Health::Failed,
        };
        Self {
            id: id.to_string(),
            address: text(address),
            role: role(its_role).into(),
            primary: text(primary),
            slots: slots.to_string(),
            config_epoch,
            health: health.into(),
            connected,
        }
    }
}

impl TryFrom<proto::Peer> for Peer {
    type Error = Malformed;

    fn try_from(peer: proto::Peer) -> Result<Self, Malformed> {
        let health = match peer.health() {
            proto::Health::Handshake => PeerHealth::Handshake,
            proto::Health::Fine => PeerHealth::Fine,
            proto::Health::Suspected => PeerHealth::Suspected,
            proto::Health::Failed => PeerHealth::Failed,
            proto::Health::Unspecified => return Err(Malformed::Unknown { what: "health", value: peer.health }),
        };
        let known = !peer.address.is_empty();
        Ok(Self {
            id: peer.id.parse()?,
            address: known.then(|| address(&peer.address)).transpose()?,
            role: parsed_role(peer.role(), peer.role)?,
            primary: optional_id(&peer.primary)?,
            slots: peer.slots.parse()?,
            config_epoch: peer.config_epoch,
            health,
            connected: peer.connected,
        })
    }
}

impl From<Exports> for proto::Exports {
    fn from(Exports { running, open, failures, last_failure }: Exports) -> Self {
        Self {
            running: running.into_iter().map(Into::into).collect(),
            open: open.into_iter().map(Into::into).collect(),
            failures,
            last_failure: last_failure.map(Into::into),
        }
    }
}

impl TryFrom<proto::Exports> for Exports {
    type Error = Malformed;

    fn try_from(proto::Exports { running, open, failures, last_failure }: proto::Exports) -> Result<Self, Malformed> {
        Ok(Self {
            running: running.into_iter().map(Export::try_from).collect::<Result<_, _>>()?,
            open: open.into_iter().map(Export::try_from).collect::<Result<_, _>>()?,
            failures,
            last_failure: last_failure.map(Into::into),
        })
    }
}

impl From<Export> for proto::Export {
    fn from(Export { slots, to }: Export) -> Self {
        Self { slots: slots.to_string(), to: to.to_string() }
    }
}

impl TryFrom<proto::Export> for Export {
    type Error = Malformed;

    fn try_from(proto::Export { slots, to }: proto::Export) -> Result<Self, Malformed> {
        Ok(Self { slots: slots.parse()?, to: to.parse()? })
    }
}

impl From<TakenSettings> for proto::TakenSettings {
    fn from(TakenSettings { mark, refused }: TakenSettings) -> Self {
        let refused = refused.map(|RefusedSettings { mark, words }| proto::RefusedSettings { mark, words });
        Self { mark, refused }
    }
}

impl From<proto::TakenSettings> for TakenSettings {
    fn from(proto::TakenSettings { mark, refused }: proto::TakenSettings) -> Self {
        let refused = refused.map(|proto::RefusedSettings { mark, words }| RefusedSettings { mark, words });
        Self { mark, refused }
    }
}

impl From<Failure> for proto::Failure {
    fn from(Failure { message, ago }: Failure) -> Self {
        Self { message, ago_ms: milliseconds(ago) }
    }
}

impl From<proto::Failure> for Failure {
    fn from(proto::Failure { message, ago_ms }: proto::Failure) -> Self {
        Self { message, ago: Duration::from_millis(ago_ms) }
    }
}

fn role(role: Role) -> proto::Role {
    match role {
        Role::Primary => proto::Role::Primary,
        Role::Replica => proto::Role::Replica,
    }
}

fn parsed_role(role: proto::Role, value: i32) -> Result<Role, Malformed> {
    match role {
        proto::Role::Primary => Ok(Role::Primary),
        proto::Role::Replica => Ok(Role::Replica),
        proto::Role::Unspecified => Err(Malformed::Unknown { what: "role", value }),
    }
}

fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn optional_id(text: &str) -> Result<Option<NodeId>, Malformed> {
    if text.is_empty() { Ok(None) } else { Ok(Some(text.parse()?)) }
}

fn address(text: &str) -> Result<SocketAddr, Malformed> {
    text.parse().map_err(|_| Malformed::Address(text.to_owned()))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
