//! The certificates of a local cluster: one authority, one certificate per program and node, made anew by each `up`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

use super::layout::{Layout, NodeNumber};

/// Files in the cluster's folder; private keys are readable by their owner only.
#[derive(Debug)]
pub struct Pki {
    folder: PathBuf,
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    pub fn create(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let key = KeyPair::generate()?;
        let mut params = params("valkey-bench", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let ca_pem = params.self_signed(&key)?.pem();
        let pki = Self { folder: folder.to_path_buf(), ca_pem, issuer: Issuer::new(params, key) };
        std::fs::write(pki.path("ca.crt"), &pki.ca_pem)?;
        private(&pki.path("ca.key"), &pki.issuer.key().serialize_pem())?;

        let signer = KeyPair::generate()?;
        private(&pki.path("service-accounts.key"), &signer.serialize_pem())?;
        std::fs::write(pki.path("service-accounts.pub"), signer.public_key_pem())?;
        Ok(pki)
    }

    /// Where a file of the authority lies, such as `apiserver.crt`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes `FILE.crt` and `FILE.key`.
    pub fn issue(&self, file: &str, common_name: &str, organization: Option<&str>, names: &[SanType]) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut params = params(common_name, organization);
        params.subject_alt_names = names.to_vec();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        std::fs::write(self.path(&format!("{file}.crt")), certificate.pem())?;
        private(&self.path(&format!("{file}.key")), &key.serialize_pem())
    }

    /// Everything that the control plane itself presents or uses.
    pub fn issue_control_plane(&self, layout: &Layout) -> Result<()> {
        let mut names = Vec::new();
        for name in ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"] {
            names.push(dns(name)?);
        }
        names.extend([layout.control(), layout.api_service(), Ipv4Addr::LOCALHOST].map(ip));
        self.issue("apiserver", "kube-apiserver", None, &names)?;
        self.issue("front-proxy", "front-proxy", None, &[])?;
        self.issue("admin", "admin", Some("system:masters"), &[])?;
        self.issue("controller-manager", "system:kube-controller-manager", None, &[])?;
        self.issue("scheduler", "system:kube-scheduler", None, &[])?;
        self.issue("proxy", "system:kube-proxy", None, &[])
    }

    pub fn issue_node(&self, layout: &Layout, node: NodeNumber) -> Result<()> {
        let names = [dns(&node.to_string())?, ip(layout.node(node))];
        self.issue(&node.to_string(), &format!("system:node:{node}"), Some("system:nodes"), &names)
    }

    /// A kubeconfig for the holder of `FILE.crt`; it stands alone, so that it can be copied elsewhere.
    pub fn kubeconfig(&self, target: &Path, file: &str, server: &str) -> Result<()> {
        use base64::Engine;
        let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        let certificate = std::fs::read_to_string(self.path(&format!("{file}.crt")))?;
        let key = std::fs::read_to_string(self.path(&format!("{file}.key")))?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": {
                "server": server, "certificate-authority-data": encode(self.ca_pem.clone()),
            }}],
            "users": [{"name": file, "user": {
                "client-certificate-data": encode(certificate), "client-key-data": encode(key),
            }}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": file}}],
            "current-context": "bench",
        });
        private(target, &serde_json::to_string_pretty(&config)?)
    }
}

fn params(common_name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    subject.push(DnType::CommonName, common_name);
    params.distinguished_name = subject;
    params
}

fn dns(name: &str) -> Result<SanType> {
    Ok(SanType::DnsName(name.try_into()?))
}

fn ip(address: Ipv4Addr) -> SanType {
    SanType::IpAddress(IpAddr::V4(address))
}

fn private(target: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(target)?;
    Ok(file.write_all(text.as_bytes())?)
}
