//! Certificates, and the TLS handshake.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::stream::Secured;
use super::{ListenError, identity};
use crate::config::TlsSettings;

/// The certificates that listeners use, which can be read again while they serve.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<Shared>,
}

struct Shared {
    settings: TlsSettings,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the certificate, the key and the client authorities; `None` if no certificate is configured.
    pub fn load(settings: &TlsSettings) -> Result<Option<Self>, ListenError> {
        if settings.certificate.is_none() {
            return Ok(None);
        }
        let config = RwLock::new(Arc::new(server_config(settings)?));
        Ok(Some(Self { shared: Arc::new(Shared { settings: settings.clone(), config }) }))
    }

    /// Reads the files again for connections to come; on an error everything stays as it was.
    pub fn reload(&self) -> Result<(), ListenError> {
        let config = server_config(&self.shared.settings)?;
        *self.shared.config.write() = Arc::new(config);
        Ok(())
    }

    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<Secured> {
        let config = self.shared.config.read().clone();
        let stream = TlsAcceptor::from(config).accept(socket).await?;
        let first = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = first.and_then(identity::name);
        Ok(Secured { stream, certificate })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.shared.settings).finish()
    }
}

fn server_config(settings: &TlsSettings) -> Result<ServerConfig, ListenError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates("tls.certificate", settings.certificate.as_ref())?;
    let key = private_key(settings.key.as_ref())?;
    let misfit = |error: &dyn fmt::Display| ListenError::Tls(error.to_string());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| misfit(&error))?;
    let builder = match client_verifier(settings, &provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| misfit(&error))?;
    // Devices that reconnect in a wave resume with a ticket; nothing is kept here for each of them. A reload
    // makes new ticket keys, so that nobody resumes what an authority removed since has vouched for.
    config.ticketer = ring::Ticketer::new().map_err(|error| misfit(&error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(config)
}

fn client_verifier(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, ListenError> {
    let Some(path) = &settings.client_ca else {
        return if settings.require_client_certificate {
            Err(ListenError::Tls("`tls.require_client_certificate` needs `tls.client_ca`".into()))
        } else {
            Ok(None)
        };
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls.client_ca", Some(path))? {
        roots.add(certificate).map_err(|error| unusable("tls.client_ca", path, error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if settings.require_client_certificate { builder } else { builder.allow_unauthenticated() };
    builder.build().map(Some).map_err(|error| unusable("tls.client_ca", path, error))
}

fn certificates(
    key: &'static str,
    path: Option<&PathBuf>,
) -> Result<Vec<CertificateDer<'static>>, ListenError> {
    let path = path.ok_or_else(|| ListenError::Tls(format!("`{key}` is missing")))?;
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| unusable(key, path, explain(error)))?;
    if found.is_empty() {
        return Err(unusable(key, path, "it holds no PEM certificate (`-----BEGIN CERTIFICATE-----`)"));
    }
    Ok(found)
}

fn private_key(path: Option<&PathBuf>) -> Result<PrivateKeyDer<'static>, ListenError> {
    let path = path.ok_or_else(|| ListenError::Tls("`tls.certificate` needs `tls.key`".into()))?;
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let reason = match error {
            pem::Error::NoItemsFound => "it holds no PEM private key (PKCS #8, PKCS #1 or SEC 1)".into(),
            other => explain(other),
        };
        unusable("tls.key", path, reason)
    })
}

fn explain(error: pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        other => format!("it is not proper PEM: {other}"),
    }
}

fn unusable(key: &'static str, path: &Path, reason: impl fmt::Display) -> ListenError {
    ListenError::TlsFile { key, path: path.to_owned(), reason: reason.to_string() }
}
