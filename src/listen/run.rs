//! Accepting connections, and bringing each to the point where MQTT begins.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::bind::{Listener, Listeners};
use super::connections::{Connections, Place};
use super::rate::AcceptRate;
use super::stream::{Stream, Transport};
use super::tls::Tls;
use super::websocket::WebSocket;

/// Waiting after accept failed: at first this long, then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Least time between two log lines of the same kind.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// What all listeners share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) connections: Connections,
    pub(super) rate: Option<Mutex<AcceptRate>>,
    pub(super) tls: Option<Tls>,
    pub(super) handshake_timeout: Duration,
    pub(super) max_packet_size: usize,
    pub(super) handshake_log: Mutex<LogRate>,
    /// True when nobody is accepted any more: then nobody's handshake is waited for.
    pub(super) stopping: watch::Sender<bool>,
}

impl Listeners {
    /// Accepts until `shutdown` is done, running `handler` in a task of its own for every client.
    ///
    /// Afterwards the listening sockets are closed; connections that are open go on.
    pub async fn run<H, F>(self, handler: H, shutdown: impl Future<Output = ()>)
    where
        H: Fn(Stream) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut loops = JoinSet::new();
        for listener in self.listeners {
            loops.spawn(accept_all(listener, self.shared.clone(), handler.clone()));
        }
        shutdown.await;
        // Aborting is enough: a connection that was accepted is in a task of its own.
        loops.shutdown().await;
        self.shared.stopping.send_replace(true);
    }
}

/// Accepts for ever. A burst is drained without going to sleep: `accept` only waits when the kernel has no more.
async fn accept_all<H, F>(listener: Listener, shared: Arc<Shared>, handler: H)
where
    H: Fn(Stream) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (mut pause, mut log) = (FIRST_PAUSE, LogRate::default());
    loop {
        match listener.socket.accept().await {
            Ok((socket, peer)) => {
                pause = FIRST_PAUSE;
                let Some(place) = admit(&shared, peer, &mut log) else { continue };
                start(listener.transport, socket, peer, place, &shared, &handler);
            }
            Err(error) if concerns_one_client(&error) => shared.connections.count_accept_error(),
            Err(error) => {
                shared.connections.count_accept_error();
                if log.allows() {
                    tracing::warn!(address = %listener.address, %error, "cannot accept connections, trying again");
                }
                // Out of file descriptors, mostly: trying at once would burn a core and change nothing.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn admit(shared: &Shared, peer: SocketAddr, log: &mut LogRate) -> Option<Place> {
    if let Some(rate) = &shared.rate
        && !rate.lock().admit(peer.ip(), Instant::now())
    {
        shared.connections.count_over_rate();
        if log.allows() {
            tracing::warn!(%peer, "turned away: connects faster than `listen.max_accept_rate`");
        }
        return None;
    }
    let place = shared.connections.enter();
    if place.is_none() && log.allows() {
        tracing::warn!(%peer, "turned away: `listen.max_connections` are open");
    }
    place
}

/// Bytes that the system takes for a client beyond what is on its way: enough to keep the line busy.
#[cfg(target_os = "linux")]
const MAX_UNSENT: u32 = 128 * 1024;

/// Keeps the system from hiding a queue: what a slow client has no room for waits with us, where it is counted.
#[cfg(target_os = "linux")]
fn show_queue(socket: &TcpStream) {
    // Fails only if the client is gone.
    let _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(MAX_UNSENT);
}

#[cfg(not(target_os = "linux"))]
fn show_queue(_: &TcpStream) {}

/// Starts the task of one client. For plain TCP the task holds the handler and nothing else.
fn start<H, F>(
    transport: Transport,
    socket: TcpStream,
    peer: SocketAddr,
    place: Place,
    shared: &Arc<Shared>,
    handler: &H,
) where
    H: Fn(Stream) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    // Without it small packets wait for the acknowledgement of earlier ones. Fails only if the client is gone.
    let _ = socket.set_nodelay(true);
    show_queue(&socket);
    if transport == Transport::Mqtt {
        tokio::spawn(serve_plain(handler.clone(), Stream::tcp(socket, peer), place));
        return;
    }
    let (shared, handler) = (shared.clone(), handler.clone());
    tokio::spawn(async move {
        // Boxed, so that its memory is free once the handshake is done.
        let handshake = Box::pin(handshake(transport, socket, peer, shared));
        if let Some(stream) = handshake.await {
            handler(stream).await;
        }
        drop(place);
    });
}

/// The task of a plain client. It calls the handler itself: a future that is passed in would take its space twice.
async fn serve_plain<H, F>(handler: H, stream: Stream, place: Place)
where
    H: Fn(Stream) -> F,
    F: Future<Output = ()>,
{
    handler(stream).await;
    drop(place);
}

async fn handshake(
    transport: Transport,
    socket: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
) -> Option<Stream> {
    let mut stopping = shared.stopping.subscribe();
    let upgrading = upgrade(transport, socket, peer, &shared);
    let upgraded = tokio::select! {
        upgraded = tokio::time::timeout(shared.handshake_timeout, upgrading) => upgraded,
        _ = stopping.wait_for(|stopping| *stopping) => return None,
    };
    let error = match upgraded {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => error,
        Err(_) => io::ErrorKind::TimedOut.into(),
    };
    shared.connections.count_handshake_failed();
    if shared.handshake_log.lock().allows() {
        tracing::info!(%peer, %transport, %error, "TLS or WebSocket handshake failed");
    } else {
        tracing::debug!(%peer, %transport, %error, "TLS or WebSocket handshake failed");
    }
    None
}

async fn upgrade(
    transport: Transport,
    socket: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
) -> io::Result<Stream> {
    let max_packet_size = shared.max_packet_size;
    // `bind` refuses secure listeners without certificates.
    let tls = || shared.tls.as_ref().ok_or(io::ErrorKind::Unsupported);
    Ok(match transport {
        Transport::Mqtt => Stream::tcp(socket, peer),
        Transport::Mqtts => Stream::tls(tls()?.accept(socket).await?, peer),
        Transport::Ws => {
            Stream::ws(WebSocket::accept(socket, max_packet_size).await.map_err(io::Error::other)?, peer)
        }
        Transport::Wss => {
            let secured = tls()?.accept(socket).await?;
            Stream::wss(WebSocket::accept(secured, max_packet_size).await.map_err(io::Error::other)?, peer)
        }
    })
}

/// Whether accept failed because of one client, which is gone already, and will work for the next one.
fn concerns_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Keeps an attack from filling the log.
#[derive(Debug, Default)]
pub(super) struct LogRate {
    last: Option<Instant>,
}

impl LogRate {
    fn allows(&mut self) -> bool {
        let now = Instant::now();
        let allowed = self.last.is_none_or(|last| now >= last + LOG_INTERVAL);
        if allowed {
            self.last = Some(now);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_task_of_a_plain_client_is_little_more_than_its_handler() {
        let handler = |_: Stream| async {
            let kept = [0_u8; 2_000];
            tokio::task::yield_now().await;
            std::hint::black_box(kept);
        };
        let stream = || Stream::other(tokio::io::empty(), ([127, 0, 0, 1], 1).into());
        let place = Connections::new(1).enter().unwrap();
        let alone = size_of_val(&handler(stream()));
        let task = size_of_val(&serve_plain(handler, stream(), place));
        assert!(task <= alone + 128, "{task} bytes for a handler of {alone}");
    }
}
