//! One accepted client as a stream of bytes.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::websocket::WebSocket;

/// How a client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Plain TCP.
    Mqtt,
    /// TLS.
    Mqtts,
    /// WebSocket.
    Ws,
    /// Secure WebSocket.
    Wss,
}

impl Transport {
    /// The name of its key under `listen.`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Mqtts => "mqtts",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Whether it needs a certificate.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::Mqtts | Self::Wss)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The bytes of one client, whatever the transport.
///
/// Plain TCP goes straight to the socket and holds no buffer. The others do buffer, so
/// [`poll_flush`](AsyncWrite::poll_flush) must follow the last write of a batch.
pub struct Stream {
    io: Io,
    peer: Peer,
}

impl Stream {
    /// A plain TCP client.
    pub fn tcp(socket: TcpStream, peer: SocketAddr) -> Self {
        Self { io: Io::Tcp(socket), peer: peer.into() }
    }

    /// Any other stream of bytes, for tests and for those who embed the gateway.
    pub fn other(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: SocketAddr) -> Self {
        Self { io: Io::Other(Box::new(Box::new(io))), peer: peer.into() }
    }

    pub(super) fn tls(stream: Secured, peer: SocketAddr) -> Self {
        Self { io: Io::Tls(Box::new(stream)), peer: peer.into() }
    }

    pub(super) fn ws(stream: WebSocket<TcpStream>, peer: SocketAddr) -> Self {
        Self { io: Io::Ws(Box::new(stream)), peer: peer.into() }
    }

    pub(super) fn wss(stream: WebSocket<Secured>, peer: SocketAddr) -> Self {
        Self { io: Io::Wss(Box::new(stream)), peer: peer.into() }
    }

    /// Where the client connects from.
    pub fn peer(&self) -> SocketAddr {
        match &self.peer {
            Peer::V4(address) => SocketAddr::V4(*address),
            Peer::V6(address) => SocketAddr::V6(**address),
        }
    }

    /// The common name of its verified certificate (or else the first DNS name in it), if it showed one.
    pub fn certificate(&self) -> Option<&str> {
        match &self.io {
            Io::Tls(secured) => secured.certificate.as_deref(),
            Io::Wss(socket) => socket.get_ref().certificate.as_deref(),
            Io::Tcp(_) | Io::Ws(_) | Io::Other(_) => None,
        }
    }

    /// How the client is connected; a stream made by [`Stream::other`] counts as plain.
    pub fn transport(&self) -> Transport {
        match &self.io {
            Io::Tcp(_) | Io::Other(_) => Transport::Mqtt,
            Io::Tls(_) => Transport::Mqtts,
            Io::Ws(_) => Transport::Ws,
            Io::Wss(_) => Transport::Wss,
        }
    }

    /// The TCP socket under it all, for socket options.
    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.io {
            Io::Tcp(socket) => Some(socket),
            Io::Tls(secured) => Some(secured.stream.get_ref().0),
            Io::Ws(socket) => Some(socket.get_ref()),
            Io::Wss(socket) => Some(socket.get_ref().stream.get_ref().0),
            Io::Other(_) => None,
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} {})", self.transport(), self.peer())
    }
}

/// Runs a poll function on whatever the stream is made of.
macro_rules! on_io {
    ($stream:expr, $io:ident => $call:expr) => {
        match &mut $stream.get_mut().io {
            Io::Tcp($io) => $call,
            Io::Tls($io) => $call,
            Io::Ws($io) => $call,
            Io::Wss($io) => $call,
            Io::Other($io) => $call,
        }
    };
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_io!(self, io => Pin::new(io).poll_read(cx, to))
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        on_io!(self, io => Pin::new(io).poll_write(cx, from))
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_io!(self, io => Pin::new(io).poll_write_vectored(cx, from))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Tcp(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
            Io::Ws(io) => io.is_write_vectored(),
            Io::Wss(io) => io.is_write_vectored(),
            Io::Other(io) => io.is_write_vectored(),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_io!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_io!(self, io => Pin::new(io).poll_shutdown(cx))
    }
}

/// Everything but plain TCP is boxed: most connections are plain and idle, and pay for the largest variant.
enum Io {
    Tcp(TcpStream),
    Tls(Box<Secured>),
    Ws(Box<WebSocket<TcpStream>>),
    Wss(Box<WebSocket<Secured>>),
    // Boxed twice, so that it takes one word here.
    Other(Box<Box<dyn Bytes>>),
}

trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A `SocketAddr` takes 32 bytes, this 16.
enum Peer {
    V4(SocketAddrV4),
    V6(Box<SocketAddrV6>),
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(address),
            SocketAddr::V6(address) => Self::V6(Box::new(address)),
        }
    }
}

/// TLS over TCP, with whom the client's certificate names.
pub(super) struct Secured {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) certificate: Option<Box<str>>,
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_stays_small() {
        assert!(size_of::<Stream>() <= 48, "{} bytes", size_of::<Stream>());
    }
}
