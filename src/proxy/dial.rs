//! Reaching the upstream broker: TCP, TLS, and the PROXY protocol.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};

use crate::config::{ProxySettings, host_and_port};
use crate::listen::Stream;

/// Why the upstream's settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot speak to the upstream (`{key}`): {reason}")]
pub struct DialError {
    /// The configuration key.
    pub key: &'static str,
    /// What is wrong.
    pub reason: String,
}

/// How the upstream is reached.
pub(super) struct Dialer {
    tls: Option<(Arc<ClientConfig>, Option<ServerName<'static>>)>,
    proxy_protocol: bool,
}

impl Dialer {
    pub(super) fn new(settings: &ProxySettings) -> Result<Self, DialError> {
        let tls = if settings.tls { Some((client_config(settings)?, server_name(settings)?)) } else { None };
        Ok(Self { tls, proxy_protocol: settings.proxy_protocol })
    }

    /// A connection to this address on which nothing but handshakes was sent. `client` is whom it is for.
    pub(super) async fn dial(&self, address: &str, client: Option<SocketAddr>) -> io::Result<Stream> {
        let (host, port) = host_and_port(address).ok_or(io::ErrorKind::InvalidInput)?;
        let mut socket = TcpStream::connect((host, port)).await?;
        // Fails only if the peer is gone.
        let _ = socket.set_nodelay(true);
        show_queues(&socket);
        let peer = socket.peer_addr()?;
        if self.proxy_protocol {
            socket.write_all(&proxy_header(client, peer)).await?;
        }
        let Some((config, name)) = &self.tls else { return Ok(Stream::tcp(socket, peer)) };
        let name = match name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let secured = TlsConnector::from(Arc::clone(config)).connect(name, socket).await?;
        Ok(Stream::other(secured, peer))
    }
}

/// What the upstream sends waits there, where it counts its queues, and not in a buffer of the system.
fn show_queues(socket: &TcpStream) {
    const MAX_UNREAD: usize = 256 * 1024;
    // Fails only if the peer is gone.
    let _ = socket2::SockRef::from(socket).set_recv_buffer_size(MAX_UNREAD);
}

fn wrong(key: &'static str, reason: impl ToString) -> DialError {
    DialError { key, reason: reason.to_string() }
}

fn server_name(settings: &ProxySettings) -> Result<Option<ServerName<'static>>, DialError> {
    if settings.server_name.is_empty() {
        return Ok(None);
    }
    let name = ServerName::try_from(settings.server_name.clone());
    name.map(Some).map_err(|error| wrong("proxy.server_name", error))
}

fn client_config(settings: &ProxySettings) -> Result<Arc<ClientConfig>, DialError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &settings.ca {
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for certificate in found.map_err(|error| wrong("proxy.ca", error))? {
            roots.add(certificate).map_err(|error| wrong("proxy.ca", error))?;
        }
    }
    if roots.is_empty() {
        return Err(wrong("proxy.ca", "it holds no PEM certificate (`-----BEGIN CERTIFICATE-----`)"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| wrong("proxy.tls", error))?
        .with_root_certificates(roots);
    let config = match (&settings.certificate, &settings.key) {
        (Some(certificate), Some(key)) => {
            let chain = CertificateDer::pem_file_iter(certificate)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| wrong("proxy.certificate", error))?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("proxy.key", error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| wrong("proxy.certificate", error))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// The header of the PROXY protocol, version 2; without a client it says that the connection is our own.
fn proxy_header(client: Option<SocketAddr>, upstream: SocketAddr) -> Vec<u8> {
    const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
    let mut header = SIGNATURE.to_vec();
    let Some(client) = client else {
        header.extend([0x20, 0, 0, 0]);
        return header;
    };
    match (client.ip().to_canonical(), upstream.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend([0x21, 0x11, 0, 12]);
            header.extend(from.octets());
            header.extend(to.octets());
        }
        (from, to) => {
            header.extend([0x21, 0x21, 0, 36]);
            header.extend(v6(from));
            header.extend(v6(to));
        }
    }
    header.extend(client.port().to_be_bytes());
    header.extend(upstream.port().to_be_bytes());
    header
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_header_says_where_a_client_comes_from() {
        let (client, upstream) = ("10.0.0.7:4711".parse().unwrap(), "127.0.0.1:1883".parse().unwrap());
        let header = proxy_header(Some(client), upstream);
        assert_eq!(header[..12], *b"\r\n\r\n\0\r\nQUIT\n");
        assert_eq!(header[12..], [0x21, 0x11, 0, 12, 10, 0, 0, 7, 127, 0, 0, 1, 0x12, 0x67, 0x07, 0x5B]);
        let header = proxy_header(Some("[::1]:1".parse().unwrap()), upstream);
        assert_eq!((header[13], header.len()), (0x21, 16 + 36));
        assert_eq!(proxy_header(None, upstream)[12..], [0x20, 0, 0, 0]);
    }
}
