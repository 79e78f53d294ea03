//! Names of the cluster, resolved as a pod would: by asking the cluster's own DNS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use redis::io::AsyncDNSResolver;
use redis::{ErrorKind, RedisError, RedisFuture};
use tokio::net::UdpSocket;
use tokio::time::timeout;

const ANSWER: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 4;
/// What a pod's resolver adds to a short name.
const DOMAIN: &str = "cluster.local";

/// The DNS server of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterDns(SocketAddr);

impl ClusterDns {
    pub async fn of(client: &Client) -> Result<Self> {
        let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
        let service = services.get("kube-dns").await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip).context("the cluster's DNS has no address")?;
        Ok(Self(SocketAddr::new(address.parse()?, 53)))
    }

    /// What a pod has in its `/etc/resolv.conf`.
    pub fn resolver(self) -> String {
        format!("nameserver {}\nsearch svc.{DOMAIN} {DOMAIN}\noptions ndots:5\n", self.0.ip())
    }

    /// The addresses behind a name such as `orders.shop.svc`; an address stands for itself.
    pub async fn lookup(self, name: &str) -> Result<Vec<IpAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let name = if name.ends_with(DOMAIN) { name.to_owned() } else { format!("{name}.{DOMAIN}") };
        let mut last = anyhow::anyhow!("never asked");
        for attempt in 0..ATTEMPTS {
            match timeout(ANSWER, self.ask(&name, u16::try_from(attempt)? + 1)).await {
                Ok(Ok(addresses)) => return Ok(addresses),
                Ok(Err(error)) => last = error,
                Err(_) => last = anyhow::anyhow!("no answer within {ANSWER:?}"),
            }
        }
        Err(last.context(format!("{name} cannot be resolved")))
    }

    async fn ask(self, name: &str, id: u16) -> Result<Vec<IpAddr>> {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect(self.0).await?;
        socket.send(&question(name, id)?).await?;
        let mut answer = vec![0; 4096];
        let length = socket.recv(&mut answer).await?;
        addresses(answer.get(..length).unwrap_or_default(), id)
    }
}

fn question(name: &str, id: u16) -> Result<Vec<u8>> {
    let mut packet = Vec::new();
    for word in [id, 0x0100, 1, 0, 0, 0] {
        packet.extend(word.to_be_bytes());
    }
    for label in name.split('.') {
        packet.push(u8::try_from(label.len())?);
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    Ok(packet)
}

/// All A records of an answer.
fn addresses(packet: &[u8], id: u16) -> Result<Vec<IpAddr>> {
    let word = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    let short = "the answer of the DNS is cut short";
    ensure!(word(0).context(short)? == id, "an answer to another question");
    let code = word(2).context(short)? & 0xF;
    ensure!(code == 0, "the DNS answers with code {code}");
    let (questions, answers) = (word(4).context(short)?, word(6).context(short)?);
    let mut at = 12;
    for _ in 0..questions {
        at = after_name(packet, at).context(short)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..answers {
        at = after_name(packet, at).context(short)?;
        let (kind, length) = (word(at).context(short)?, usize::from(word(at + 8).context(short)?));
        let data = packet.get(at + 10..at + 10 + length).context(short)?;
        if let (1, Ok(octets)) = (kind, <[u8; 4]>::try_from(data)) {
            found.push(IpAddr::V4(Ipv4Addr::from(octets)));
        }
        at += 10 + length;
    }
    ensure!(!found.is_empty(), "the name has no address");
    Ok(found)
}

/// Where the packet goes on behind a name, which ends with an empty label or with a pointer.
fn after_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *packet.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer >= 0xC0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}

impl AsyncDNSResolver for ClusterDns {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let failed = |error: anyhow::Error| RedisError::from((ErrorKind::Io, "name", format!("{error:#}")));
            let found = self.lookup(host).await.map_err(failed)?;
            let found: Box<dyn Iterator<Item = SocketAddr> + Send> =
                Box::new(found.into_iter().map(move |address| SocketAddr::new(address, port)));
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_past_compressed_names() {
        let mut packet = question("a.bc", 7).unwrap();
        packet[7] = 1;
        packet.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 1, 2, 3]);
        assert_eq!(addresses(&packet, 7).unwrap(), ["10.1.2.3".parse::<IpAddr>().unwrap()]);
        assert!(addresses(&packet, 8).is_err());
        assert!(addresses(&packet[..20], 7).is_err());
    }
}
