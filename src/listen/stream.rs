//! One accepted client as a stream of bytes.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4};
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
        f.pad(self.name())
    }
}

/// The bytes of one client, whatever the transport.
///
/// Plain TCP goes straight to the socket and holds no buffer. The others do buffer, so
/// [`poll_flush`](AsyncWrite::poll_flush) must follow the last write of a batch.
pub struct Stream {
    io: Io,
}

impl Stream {
    /// A plain TCP client.
    pub fn tcp(socket: TcpStream, peer: SocketAddr) -> Self {
        let io = match peer {
            SocketAddr::V4(peer) => Io::Tcp4(socket, peer),
            SocketAddr::V6(_) => Io::Tcp6(Box::new((socket, peer))),
        };
        Self { io }
    }

    /// Any other stream of bytes, for tests and for those who embed the gateway.
    pub fn other(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: SocketAddr) -> Self {
        Self { io: Io::Other(Box::new((Box::new(io), peer))) }
    }

    pub(super) fn tls(stream: Secured, peer: SocketAddr) -> Self {
        Self { io: Io::Tls(Box::new((stream, peer))) }
    }

    pub(super) fn ws(stream: WebSocket<TcpStream>, peer: SocketAddr) -> Self {
        Self { io: Io::Ws(Box::new((stream, peer))) }
    }

    pub(super) fn wss(stream: WebSocket<Secured>, peer: SocketAddr) -> Self {
        Self { io: Io::Wss(Box::new((stream, peer))) }
    }

    /// Where the client connects from.
    pub fn peer(&self) -> SocketAddr {
        match &self.io {
            Io::Tcp4(_, peer) => SocketAddr::V4(*peer),
            Io::Tcp6(boxed) => boxed.1,
            Io::Tls(boxed) => boxed.1,
            Io::Ws(boxed) => boxed.1,
            Io::Wss(boxed) => boxed.1,
            Io::Other(boxed) => boxed.1,
        }
    }

    /// The common name of its verified certificate (or else the first DNS name in it), if it showed one.
    pub fn certificate(&self) -> Option<&str> {
        match &self.io {
            Io::Tls(boxed) => boxed.0.certificate.as_deref(),
            Io::Wss(boxed) => boxed.0.get_ref().certificate.as_deref(),
            Io::Tcp4(..) | Io::Tcp6(_) | Io::Ws(_) | Io::Other(_) => None,
        }
    }

    /// How the client is connected; a stream made by [`Stream::other`] counts as plain.
    pub fn transport(&self) -> Transport {
        match &self.io {
            Io::Tcp4(..) | Io::Tcp6(_) | Io::Other(_) => Transport::Mqtt,
            Io::Tls(_) => Transport::Mqtts,
            Io::Ws(_) => Transport::Ws,
            Io::Wss(_) => Transport::Wss,
        }
    }

    /// The TCP socket under it all, for socket options.
    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.io {
            Io::Tcp4(socket, _) => Some(socket),
            Io::Tcp6(boxed) => Some(&boxed.0),
            Io::Tls(boxed) => Some(boxed.0.stream.get_ref().0),
            Io::Ws(boxed) => Some(boxed.0.get_ref()),
            Io::Wss(boxed) => Some(boxed.0.get_ref().stream.get_ref().0),
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
            Io::Tcp4($io, _) => $call,
            Io::Tcp6(boxed) => {
                let $io = &mut boxed.0;
                $call
            }
            Io::Tls(boxed) => {
                let $io = &mut boxed.0;
                $call
            }
            Io::Ws(boxed) => {
                let $io = &mut boxed.0;
                $call
            }
            Io::Wss(boxed) => {
                let $io = &mut boxed.0;
                $call
            }
            Io::Other(boxed) => {
                let $io = &mut boxed.0;
                $call
            }
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
            Io::Tcp4(io, _) => io.is_write_vectored(),
            Io::Tcp6(boxed) => boxed.0.is_write_vectored(),
            Io::Tls(boxed) => boxed.0.is_write_vectored(),
            Io::Ws(boxed) => boxed.0.is_write_vectored(),
            Io::Wss(boxed) => boxed.0.is_write_vectored(),
            Io::Other(boxed) => boxed.0.is_write_vectored(),
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

/// Everything but plain TCP is boxed, for every connection pays for the largest variant. TCP over IPv6 is boxed
/// for its address, which takes 32 bytes; that of IPv4 takes 6.
enum Io {
    Tcp4(TcpStream, SocketAddrV4),
    Tcp6(Box<(TcpStream, SocketAddr)>),
    Tls(Box<(Secured, SocketAddr)>),
    Ws(Box<(WebSocket<TcpStream>, SocketAddr)>),
    Wss(Box<(WebSocket<Secured>, SocketAddr)>),
    Other(Box<(Box<dyn Bytes>, SocketAddr)>),
}

trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

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
