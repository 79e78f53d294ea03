//! What must never be made twice: passwords, certificate authorities, certificates.
//!
//! Read once per process and kept, so that a pass needs no look at a Secret; made only where nothing is there yet. What is
//! kept here is applied like every other child, so a Secret that somebody changes or deletes comes back as it was.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use rustls::crypto::ring;
use secrecy::{ExposeSecret, SecretString};
use valkey_api::{ChildNames, labels};
use valkey_model::{Member, ShardIndex};
use valkey_pki::{
    Authority, CertificateFacts, Existing, Intermediate, KEY_ENTRY, LeafRequest, Purpose, Renewal, RotateAfter,
    SpiffeId, TrustDomain, Validity, facts, judge_leaf,
};
use valkey_resources::{
    APP, CheckedCluster, Encryption, Passwords, PodCertificate, USERS_ADMIN_PASSWORD, USERS_REPLICATOR_PASSWORD,
};

/// Labels of a key in the operator's namespace: whose it is.
pub const OF_NAMESPACE: &str = "valkey.io/of-namespace";
pub const OF_CLUSTER: &str = "valkey.io/of-cluster";

/// When a leaf has lived this share of its life it is issued anew.
const ROTATE_AFTER_PERCENT: u8 = 66;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Secret {name} cannot be read or written: {source}")]
    Kubernetes { name: String, source: kube::Error },
    #[error(
        "Secret {name} cannot be used: {source}. Restore it from a backup; if it is lost, delete it and new certificates are made"
    )]
    Unusable { name: String, source: valkey_pki::Error },
    #[error("a certificate cannot be made: {0}")]
    Pki(#[from] valkey_pki::Error),
    #[error(transparent)]
    Identity(#[from] valkey_pki::IdentityError),
    #[error(transparent)]
    Share(#[from] valkey_pki::RotateAfterError),
    #[error("no random numbers can be had from the system")]
    Random,
}

/// Everything secret about one cluster.
#[derive(Debug)]
pub struct Material {
    pub passwords: Passwords,
    pub mtls: Intermediate,
    pub tls: Intermediate,
    pub certificates: BTreeMap<ShardIndex, Vec<PodCertificate>>,
    pub facts: Vec<Issued>,
    /// When the first certificate is due for renewal.
    pub renew_at: Timestamp,
}

impl Material {
    /// Whether it was made for these members, and for no others.
    pub fn fits(&self, checked: &CheckedCluster, workloads: &BTreeMap<ShardIndex, u16>) -> bool {
        let members: BTreeSet<Member> = self.facts.iter().map(|issued| issued.member).collect();
        members == all_members(workloads).collect()
            && self.facts.iter().any(|issued| issued.purpose == Purpose::Tls) == (checked.encryption == Encryption::Tls)
    }
}

/// A certificate in use, as far as it is no secret.
#[derive(Clone, Debug)]
pub struct Issued {
    pub member: Member,
    pub purpose: Purpose,
    pub facts: CertificateFacts,
}

/// Where a cluster lies, and who it is to others.
#[derive(Clone, Copy)]
pub struct Home<'a> {
    pub client: &'a Client,
    pub namespace: &'a str,
    pub operator_namespace: &'a str,
    pub trust_domain: &'a TrustDomain,
    pub root: &'a Authority,
}

fn all_members(workloads: &BTreeMap<ShardIndex, u16>) -> impl Iterator<Item = Member> {
    workloads.iter().flat_map(|(shard, members)| members_of(*shard, *members))
}

fn members_of(shard: ShardIndex, members: u16) -> impl Iterator<Item = Member> {
    (0..members).map(move |ordinal| Member { shard, ordinal })
}

/// Reads what is there and makes what is missing or due.
pub async fn gather(
    home: Home<'_>,
    checked: &CheckedCluster,
    workloads: &BTreeMap<ShardIndex, u16>,
    now: Timestamp,
) -> Result<Material, Error> {
    let names = &checked.names;
    let (passwords, mtls, tls) = tokio::try_join!(
        passwords(home, names),
        intermediate(home, names, Purpose::Mtls, now),
        intermediate(home, names, Purpose::Tls, now)
    )?;
    let shards =
        try_join_all(workloads.iter().map(|(shard, members)| {
            let (mtls, tls) = (&mtls, &tls);
            let members = members_of(*shard, *members);
            async move {
                Ok::<_, Error>((*shard, shard_certificates(home, checked, *shard, members, mtls, tls, now).await?))
            }
        }));
    let mut certificates = BTreeMap::new();
    let mut all_facts = Vec::new();
    let mut renew_at = Timestamp::MAX;
    for (shard, issued) in shards.await? {
        let mut of_shard = Vec::new();
        for (certificate, issued, until) in issued {
            of_shard.push(certificate);
            all_facts.push(issued);
            renew_at = renew_at.min(until);
        }
        certificates.insert(shard, of_shard);
    }
    Ok(Material { passwords, mtls, tls, certificates, facts: all_facts, renew_at })
}

async fn read(client: &Client, namespace: &str, name: &str) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get_opt(name).await.map_err(|source| Error::Kubernetes { name: name.to_owned(), source })?;
    let data = found.and_then(|secret| secret.data).unwrap_or_default();
    Ok(data.into_iter().map(|(key, ByteString(value))| (key, value)).collect())
}

fn text(data: &BTreeMap<String, Vec<u8>>, key: &str) -> Option<SecretString> {
    let value = data.get(key).filter(|value| !value.is_empty())?;
    Some(SecretString::from(String::from_utf8(value.clone()).ok()?))
}

/// The passwords of the users that the operator makes. Each is kept if it is there, whatever became of the others.
async fn passwords(home: Home<'_>, names: &ChildNames) -> Result<Passwords, Error> {
    let (users, connection) = (names.users_secret(), names.connection_secret());
    let (users, connection) =
        tokio::try_join!(read(home.client, home.namespace, &users), read(home.client, home.namespace, &connection))?;
    let kept = |data: &BTreeMap<String, Vec<u8>>, key| text(data, key).map_or_else(generated, Ok);
    // The password in there may be one that the user gave to `default`.
    let app =
        text(&connection, "password").filter(|_| connection.get("username").is_some_and(|name| name == APP.as_bytes()));
    Ok(Passwords {
        admin: kept(&users, USERS_ADMIN_PASSWORD)?,
        replicator: kept(&users, USERS_REPLICATOR_PASSWORD)?,
        app: app.map_or_else(generated, Ok)?,
    })
}

/// 256 bits, in letters and digits that need no quoting anywhere.
fn generated() -> Result<SecretString, Error> {
    let mut bytes = [0_u8; 32];
    ring::default_provider().secure_random.fill(&mut bytes).map_err(|_| Error::Random)?;
    let digit = |digit: u8| char::from_digit(u32::from(digit), 16).unwrap_or_default();
    Ok(SecretString::from(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]).collect::<String>()))
}

/// A cluster's authority for one purpose. The whole of it lies with the operator; the cluster's namespace gets certificates only.
async fn intermediate(
    home: Home<'_>,
    names: &ChildNames,
    purpose: Purpose,
    now: Timestamp,
) -> Result<Intermediate, Error> {
    let name = match purpose {
        Purpose::Mtls => names.mtls_ca_key_secret(home.namespace),
        Purpose::Tls => names.tls_ca_key_secret(home.namespace),
    };
    let data = read(home.client, home.operator_namespace, &name).await?;
    if let Some(key) = text(&data, KEY_ENTRY) {
        return Intermediate::load(&data, &key).map_err(|source| Error::Unusable { name, source });
    }
    let common_name = format!("{} {}/{} {purpose}", labels::OPERATOR, home.namespace, names.cluster());
    let made = Intermediate::new(home.root, &common_name, Validity::INTERMEDIATE, now)?;
    store(home, &name, names, &made).await.map_err(|source| Error::Kubernetes { name, source })?;
    Ok(made)
}

/// Written before anything is signed with it: what was signed with a lost key could never be renewed in place.
async fn store(home: Home<'_>, name: &str, names: &ChildNames, made: &Intermediate) -> kube::Result<()> {
    let mut data: BTreeMap<String, ByteString> =
        made.certificates().into_iter().map(|(key, value)| (key, ByteString(value))).collect();
    data.insert(KEY_ENTRY.into(), ByteString(made.key().expose_secret().as_bytes().to_vec()));
    let labels = [
        (labels::MANAGED_BY, labels::OPERATOR),
        (labels::COMPONENT, labels::Component::Certificates.as_str()),
        (OF_NAMESPACE, home.namespace),
        (OF_CLUSTER, names.cluster()),
    ];
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..ObjectMeta::default()
    };
    let secret = Secret { metadata, data: Some(data), ..Secret::default() };
    let secrets: Api<Secret> = Api::namespaced(home.client.clone(), home.operator_namespace);
    secrets.patch(name, &PatchParams::apply(labels::OPERATOR).force(), &Patch::Apply(secret)).await.map(drop)
}

type IssuedCertificate = (PodCertificate, Issued, Timestamp);

async fn shard_certificates(
    home: Home<'_>,
    checked: &CheckedCluster,
    shard: ShardIndex,
    members: impl Iterator<Item = Member>,
    mtls: &Intermediate,
    tls: &Intermediate,
    now: Timestamp,
) -> Result<Vec<IssuedCertificate>, Error> {
    let data = read(home.client, home.namespace, &checked.names.certs_secret(shard)).await?;
    let mut issued = Vec::new();
    for member in members {
        issued.push(certificate(home, &checked.names, member, Purpose::Mtls, mtls, &data, now)?);
        if checked.encryption == Encryption::Tls {
            issued.push(certificate(home, &checked.names, member, Purpose::Tls, tls, &data, now)?);
        }
    }
    Ok(issued)
}

fn certificate(
    home: Home<'_>,
    names: &ChildNames,
    member: Member,
    purpose: Purpose,
    signer: &Intermediate,
    data: &BTreeMap<String, Vec<u8>>,
    now: Timestamp,
) -> Result<IssuedCertificate, Error> {
    let pod = names.pod(member);
    let wanted = request(home, names, member, purpose)?;
    let chain = data.get(&format!("{pod}.{purpose}.crt"));
    let key = text(data, &format!("{pod}.{purpose}.key"));
    let existing = chain.zip(key.as_ref()).map(|(chain_pem, key)| Existing { chain_pem, key });
    let share = RotateAfter::try_from(ROTATE_AFTER_PERCENT)?;
    let kept = match (judge_leaf(existing, &wanted, signer.authority(), share, now), existing) {
        (Renewal::Keep { until }, Some(existing)) => {
            facts(existing.chain_pem).ok().map(|facts| (existing, facts, until))
        }
        _ => None,
    };
    let (chain, key, facts, until) = if let Some((existing, facts, until)) = kept {
        (String::from_utf8_lossy(existing.chain_pem).into_owned(), existing.key.clone(), facts, until)
    } else {
        let leaf = signer.authority().issue(&wanted, now)?;
        let until = match valkey_pki::due(&leaf.facts, share, now) {
            Renewal::Keep { until } => until,
            Renewal::Renew(_) => now,
        };
        (leaf.chain_pem, leaf.key, leaf.facts, until)
    };
    let certificate = PodCertificate { pod, purpose: as_api(purpose), chain, key };
    Ok((certificate, Issued { member, purpose, facts }, until))
}

/// The same word in the API's vocabulary.
pub fn as_api(purpose: Purpose) -> valkey_api::pki::Purpose {
    match purpose {
        Purpose::Mtls => valkey_api::pki::Purpose::Mtls,
        Purpose::Tls => valkey_api::pki::Purpose::Tls,
    }
}

/// What a pod's certificate must say. The Service's names are in it too: clients come through the Service first.
fn request(home: Home<'_>, names: &ChildNames, member: Member, purpose: Purpose) -> Result<LeafRequest, Error> {
    let pod = names.pod(member);
    let (dns_names, uri) = match purpose {
        Purpose::Mtls => (Vec::new(), Some(SpiffeId::pod(home.trust_domain, home.namespace, names.cluster(), &pod)?)),
        Purpose::Tls => {
            let hosts = [
                names.pod_host(member, home.namespace),
                names.client_host(home.namespace),
                names.read_host(home.namespace),
            ];
            let in_domain = hosts.clone().map(|host| format!("{host}.cluster.local"));
            let bare =
                [names.client_service(), format!("{}.{}", names.client_service(), home.namespace), "localhost".into()];
            (hosts.into_iter().chain(in_domain).chain(bare).collect(), None)
        }
    };
    Ok(LeafRequest { common_name: pod, dns_names, ip_addresses: Vec::new(), uri, validity: Validity::LEAF })
}
