//! Certificates for the tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use super::*;

/// An authority.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Test authority");
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// A certificate and its key, both PEM.
    pub(super) fn sign(&self, common_name: &str, dns: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let dns = dns.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut params = CertificateParams::new(dns).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }
}

/// A directory with certificate, key and client authority.
pub(super) struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    /// A server certificate for `localhost`.
    pub(super) fn signed_by(authority: &Authority) -> Self {
        let files = Self { directory: tempfile::tempdir().unwrap() };
        files.replace(authority);
        files
    }

    /// Another certificate in the same files.
    pub(super) fn replace(&self, authority: &Authority) {
        let (certificate, key) = authority.sign("server", &["localhost"]);
        self.write("server.pem", &certificate.pem());
        self.write("server.key", &key.serialize_pem());
        self.write("ca.pem", &authority.pem());
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }

    /// Settings without client certificates.
    pub(super) fn settings(&self) -> TlsSettings {
        TlsSettings {
            certificate: Some(self.path("server.pem")),
            key: Some(self.path("server.key")),
            ..TlsSettings::default()
        }
    }

    /// Settings with client certificates.
    pub(super) fn with_clients(&self, required: bool) -> TlsSettings {
        let client_ca = Some(self.path("ca.pem"));
        TlsSettings { client_ca, require_client_certificate: required, ..self.settings() }
    }
}

/// What a client shows and trusts.
pub(super) struct Client {
    roots: RootCertStore,
    identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    version: &'static SupportedProtocolVersion,
}

impl Client {
    pub(super) fn trusting(authority: &Authority) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der()).unwrap();
        Self { roots, identity: None, version: &TLS13 }
    }

    pub(super) fn showing(mut self, authority: &Authority, common_name: &str) -> Self {
        let (certificate, key) = authority.sign(common_name, &[]);
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        self.identity = Some((certificate.der().clone(), key.into()));
        self
    }

    pub(super) fn old(mut self) -> Self {
        self.version = &TLS12;
        self
    }

    pub(super) async fn connect(self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[self.version])
            .unwrap()
            .with_root_certificates(self.roots);
        let config = match self.identity {
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        soon(TlsConnector::from(Arc::new(config)).connect(name, socket)).await
    }
}
