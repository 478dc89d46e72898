//! Certificates and keys.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// What is ready for connections: with our certificate, and without it for those who may not see it.
#[derive(Clone)]
pub(crate) struct TlsConfigs {
    pub(crate) own: Arc<ClientConfig>,
    pub(crate) bare: Arc<ClientConfig>,
}

impl TlsConfigs {
    /// Whether there is a certificate of ours.
    pub(crate) fn has_identity(&self) -> bool {
        !Arc::ptr_eq(&self.own, &self.bare)
    }
}

/// Whom to trust, and who we are.
#[derive(Clone, Default)]
#[must_use]
pub struct Tls {
    /// PEM; empty for those of the system.
    authorities: Vec<u8>,
    /// Certificate chain and key, PEM.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Trusts the authorities that the system trusts.
    pub fn system() -> Self {
        Self::default()
    }

    /// Trusts these authorities only (PEM).
    pub fn authorities(pem: impl Into<Vec<u8>>) -> Self {
        Self { authorities: pem.into(), identity: None }
    }

    /// Shows this certificate (PEM, the whole chain) with its key (PEM).
    pub fn identity(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((chain.into(), key.into()));
        self
    }

    pub(crate) fn configs(&self) -> Result<TlsConfigs, Error> {
        let own = self.config()?;
        let bare = match self.identity {
            None => own.clone(),
            Some(_) => Self { identity: None, ..self.clone() }.config()?,
        };
        Ok(TlsConfigs { own, bare })
    }

    fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(wrong)?.with_root_certificates(self.roots()?);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(wrong)?;
                builder.with_client_auth_cert(certificates(chain)?, key).map_err(wrong)?
            }
        };
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        if self.authorities.is_empty() {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        } else {
            roots.add_parsable_certificates(certificates(&self.authorities)?);
        }
        if roots.is_empty() {
            return Err(Error::Tls("no authority to trust".into()));
        }
        Ok(roots)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.identity.as_ref().map(|_| "***");
        out.debug_struct("Tls")
            .field("system", &self.authorities.is_empty())
            .field("identity", &identity)
            .finish()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() { Err(Error::Tls("no certificate in the PEM given".into())) } else { Ok(all) }
}

fn wrong(error: impl fmt::Display) -> Error {
    Error::Tls(error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused_at_once() {
        assert!(matches!(Tls::authorities("nonsense").config(), Err(Error::Tls(_))));
        assert!(matches!(Tls::system().identity("a", "b").config(), Err(Error::Tls(_))));
        assert!(!format!("{:?}", Tls::system().identity("a", "secret")).contains("secret"));
    }

    /// Whoever is not trusted is not shown our certificate, but must show a good one.
    #[test]
    fn strangers_do_not_see_our_certificate() {
        let made = rcgen::generate_simple_self_signed(vec!["c".into()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = Tls::authorities(chain.clone());
        assert!(!tls.configs().unwrap().has_identity());
        let configs = tls.identity(chain, key).configs().unwrap();
        let shows = |config: &ClientConfig| config.client_auth_cert_resolver.has_certs();
        assert!(configs.has_identity() && shows(&configs.own) && !shows(&configs.bare));
    }
}
