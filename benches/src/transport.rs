//! How bytes travel: TCP, TLS, WebSocket, or WebSocket over TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream as _};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// How a connection travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Plain TCP.
    #[default]
    Tcp,
    /// TLS.
    Tls,
    /// WebSocket.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

impl Kind {
    /// Whether it needs certificates.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }
}

/// Where and how to connect.
#[derive(Clone)]
pub struct Route {
    /// The address.
    pub address: SocketAddr,
    /// The name in the certificate and in the WebSocket's request.
    pub host: String,
    /// The transport.
    pub kind: Kind,
    /// Whom to trust; needed for secure transports.
    pub tls: Option<TlsConnector>,
}

/// An open connection.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A connection of any kind; plain TCP without a detour.
pub enum Transport {
    /// Plain TCP.
    Tcp(TcpStream),
    /// Any other.
    Other(Box<dyn Duplex>),
}

impl Route {
    /// Connects; a receive buffer of this size keeps the kernel from hiding a queue.
    pub async fn connect(&self, receive_buffer: Option<u32>) -> io::Result<Transport> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if let Some(size) = receive_buffer {
            socket.set_recv_buffer_size(size)?;
        }
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(match self.kind {
            Kind::Tcp => Transport::Tcp(stream),
            Kind::Tls => Transport::Other(Box::new(self.secure(stream).await?)),
            Kind::Ws => Transport::Other(Box::new(self.upgrade(stream, "ws").await?)),
            Kind::Wss => {
                let secured = self.secure(stream).await?;
                Transport::Other(Box::new(self.upgrade(secured, "wss").await?))
            }
        })
    }

    async fn secure(&self, stream: TcpStream) -> io::Result<impl Duplex + use<>> {
        let connector =
            self.tls.as_ref().ok_or_else(|| io::Error::other("no certificate authority is given"))?;
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        connector.connect(name, stream).await
    }

    async fn upgrade<S: Duplex>(&self, stream: S, scheme: &str) -> io::Result<WebSocket<S>> {
        let address = format!("{scheme}://{}:{}/mqtt", self.host, self.address.port());
        let mut request = address.into_client_request().map_err(into_io)?;
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("mqtt"));
        let (socket, _) = client_async(request, stream).await.map_err(into_io)?;
        Ok(WebSocket { socket, rest: Bytes::new() })
    }
}

/// Whom a secure connection trusts: the authorities in a PEM file.
pub fn trust(authorities: &[u8]) -> io::Result<TlsConnector> {
    use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate = certificate.map_err(|error| io::Error::other(error.to_string()))?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::other("there is no certificate in it"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, to),
            Self::Other(stream) => Pin::new(stream).poll_read(context, to),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, from),
            Self::Other(stream) => Pin::new(stream).poll_write(context, from),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Other(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Other(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Binary frames as a stream of bytes.
struct WebSocket<S> {
    socket: WebSocketStream<S>,
    /// What is left of the frame being read.
    rest: Bytes,
}

impl<S: Duplex> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.rest = bytes,
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(into_io(error))),
            }
        }
        let length = self.rest.len().min(to.remaining());
        to.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: Duplex> AsyncWrite for WebSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.socket).poll_ready(context)).map_err(into_io)?;
        let message = Message::Binary(Bytes::copy_from_slice(from));
        Pin::new(&mut self.socket).start_send(message).map_err(into_io)?;
        Poll::Ready(Ok(from.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context).map_err(into_io)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(context).map_err(into_io)
    }
}

fn into_io(error: WsError) -> io::Error {
    match error {
        WsError::Io(error) => error,
        other => io::Error::other(other),
    }
}
