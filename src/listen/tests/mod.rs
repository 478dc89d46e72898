//! The listeners with real sockets and an echo in place of the gateway.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod certificates;
mod descriptors;
mod tcp;
mod tls;
mod websocket;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::config::{ListenSettings, TlsSettings};

const MAX_PACKET: u32 = 256 * 1024;

/// Listeners that echo, until this is dropped.
struct Server {
    addresses: Vec<(Transport, SocketAddr)>,
    connections: Connections,
    /// What the handler learnt about each client.
    seen: mpsc::UnboundedReceiver<Seen>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

#[derive(Debug, PartialEq)]
struct Seen {
    transport: Transport,
    peer: SocketAddr,
    certificate: Option<String>,
    nodelay: bool,
}

impl Server {
    fn start(settings: &ListenSettings, tls: Option<Tls>) -> Self {
        let listeners = Listeners::bind(settings, tls, MAX_PACKET).unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (addresses, connections) = (listeners.local_addresses(), listeners.connections());
        let handler = move |stream: Stream| {
            let _ = tell.send(Seen::of(&stream));
            echo(stream)
        };
        let running = tokio::spawn(listeners.run(handler, async {
            let _ = stopped.await;
        }));
        Self { addresses, connections, seen, stop: Some(stop), running }
    }

    fn address(&self) -> SocketAddr {
        self.addresses[0].1
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    async fn seen(&mut self) -> Seen {
        soon(self.seen.recv()).await.unwrap()
    }

    /// Stops accepting.
    async fn stop(&mut self) {
        drop(self.stop.take());
        soon(&mut self.running).await.unwrap();
    }
}

impl Seen {
    fn of(stream: &Stream) -> Self {
        Self {
            transport: stream.transport(),
            peer: stream.peer(),
            certificate: stream.certificate().map(str::to_owned),
            nodelay: stream.socket().unwrap().nodelay().unwrap(),
        }
    }
}

async fn echo(mut stream: Stream) {
    let mut buffer = vec![0; 32 * 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(length) => {
                if stream.write_all(&buffer[..length]).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = stream.shutdown().await;
}

/// Port 0 for one kind of listener and nothing for the others.
fn on(transport: Transport) -> ListenSettings {
    let any = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let none = ListenSettings { mqtt: Vec::new(), ..ListenSettings::default() };
    match transport {
        Transport::Mqtt => ListenSettings { mqtt: any, ..none },
        Transport::Mqtts => ListenSettings { mqtts: any, ..none },
        Transport::Ws => ListenSettings { ws: any, ..none },
        Transport::Wss => ListenSettings { wss: any, ..none },
    }
}

/// Waits for what must come, far longer than it should take.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("nothing came within 30 s")
}

async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen within 30 s");
}

async fn assert_echoes(io: &mut (impl AsyncRead + AsyncWrite + Unpin), text: &str) {
    io.write_all(text.as_bytes()).await.unwrap();
    io.flush().await.unwrap();
    let mut back = vec![0; text.len()];
    soon(io.read_exact(&mut back)).await.unwrap();
    assert_eq!(back, text.as_bytes());
}

/// Whether the server closed the connection.
async fn is_closed(io: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut rest = Vec::new();
    // A reset closes it as well.
    soon(io.read_to_end(&mut rest)).await.unwrap_or_default();
    rest.is_empty()
}
