//! Opening the listening sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::connections::Connections;
use super::rate::AcceptRate;
use super::run::Shared;
use super::stream::Transport;
use super::{ListenError, Tls};
use crate::config::ListenSettings;

/// Connections that the kernel may hold for us while we are busy; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 16 * 1024;

/// Listening sockets that don't accept yet.
#[derive(Debug)]
pub struct Listeners {
    pub(super) listeners: Vec<Listener>,
    pub(super) shared: Arc<Shared>,
}

/// One listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) transport: Transport,
    pub(super) address: SocketAddr,
    pub(super) socket: TcpListener,
}

impl Listeners {
    /// Binds every configured address, or none. Must be called within a Tokio runtime.
    ///
    /// `max_packet_size` bounds WebSocket frames, which may be a little larger than one packet.
    pub fn bind(
        settings: &ListenSettings,
        tls: Option<Tls>,
        max_packet_size: u32,
    ) -> Result<Self, ListenError> {
        let mut listeners = Vec::new();
        for (transport, addresses) in by_transport(settings) {
            if transport.is_secure() && tls.is_none() && !addresses.is_empty() {
                return Err(ListenError::NoCertificate(transport));
            }
            for &address in addresses {
                let opened = open(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
                let (bound, socket) =
                    opened.map_err(|source| ListenError::Bind { transport, address, source })?;
                listeners.push(Listener { transport, address: bound, socket });
            }
        }
        let shared = Shared {
            connections: Connections::new(settings.max_connections),
            rate: AcceptRate::new(settings.max_accept_rate).map(Mutex::new),
            tls,
            handshake_timeout: Duration::from_secs(settings.connect_timeout.into()),
            max_packet_size: max_packet_size as usize,
            handshake_log: Mutex::default(),
            stopping: watch::Sender::new(false),
        };
        Ok(Self { listeners, shared: Arc::new(shared) })
    }

    /// Where clients can connect, with the port that was chosen if 0 was asked for.
    pub fn local_addresses(&self) -> Vec<(Transport, SocketAddr)> {
        self.listeners.iter().map(|listener| (listener.transport, listener.address)).collect()
    }

    /// The counts of connections, which stay readable while and after the listeners run.
    pub fn connections(&self) -> Connections {
        self.shared.connections.clone()
    }
}

/// Where clients could connect if the configuration were served.
pub fn configured_addresses(settings: &ListenSettings) -> Vec<(Transport, SocketAddr)> {
    let pairs = |(transport, addresses): (Transport, &[SocketAddr])| {
        addresses.iter().map(|address| (transport, *address)).collect::<Vec<_>>()
    };
    by_transport(settings).into_iter().flat_map(pairs).collect()
}

fn by_transport(settings: &ListenSettings) -> [(Transport, &[SocketAddr]); 4] {
    [
        (Transport::Mqtt, &settings.mqtt),
        (Transport::Mqtts, &settings.mqtts),
        (Transport::Ws, &settings.ws),
        (Transport::Wss, &settings.wss),
    ]
}

/// Opens a listening socket; also for the admin endpoint.
pub(crate) fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `0.0.0.0:1883` and `[::]:1883` can then be given side by side, on every system alike.
        socket.set_only_v6(true)?;
    }
    // Restarting must not wait for old connections to time out. (It does not let two programs share a port.)
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
