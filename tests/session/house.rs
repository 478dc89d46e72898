//! A gateway in this process, and raw links to it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, Once};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use tidegate::config::Settings;
use tidegate::gateway::Gateway;
use tidegate::listen::Stream;
use tidegate_plugin::Plugin;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::common::PATIENCE;
use crate::common::decode::{Packet, decode, packet_length};
use crate::common::packet::{Connect, Encode, PINGREQ, Publish, Subscribe, Version};

/// A gateway with a runtime of its own.
pub struct House {
    pub gateway: Gateway,
    runtime: Runtime,
}

impl House {
    pub fn start(change: impl FnOnce(&mut Settings)) -> Self {
        Self::with_plugin(change, None)
    }

    pub fn with_plugin(change: impl FnOnce(&mut Settings), plugin: Option<Box<dyn Plugin>>) -> Self {
        watch_for_panics();
        let mut settings = Settings::default();
        change(&mut settings);
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(GATEWAY_THREAD)
            .enable_all()
            .build()
            .expect("a runtime");
        let mut builder = Gateway::builder(settings);
        if let Some(plugin) = plugin {
            builder = builder.plugin(plugin);
        }
        let inside = runtime.enter();
        let gateway = builder.build().expect("a gateway");
        drop(inside);
        Self { gateway, runtime }
    }

    /// A stream to the gateway on which nothing was sent; `buffer` bytes fit into each direction.
    pub fn open(&self, version: Version, buffer: usize) -> Link {
        let (ours, theirs) = tokio::io::duplex(buffer);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        self.runtime.spawn(self.gateway.clone().serve(Stream::other(theirs, peer)));
        Link { version, io: ours, input: Vec::new() }
    }

    /// A link with CONNECT sent and accepted, and whether there was a session.
    pub async fn connect(&self, connect: &Connect) -> (Link, bool) {
        let mut link = self.open(connect.version(), 64 * 1024);
        link.send(connect).await.expect("CONNECT is taken");
        match link.recv().await {
            Ok(Packet::Connack(connack)) if connack.code == 0 => (link, connack.session_present),
            other => panic!("{other:?} instead of CONNACK"),
        }
    }

    /// All connections are gone, as the gateway sees it.
    pub async fn wait_until_empty(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.gateway.connected() != 0 {
            assert!(Instant::now() < deadline, "{} connections never ended", self.gateway.connected());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Runs a test's side of the streams.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let result = runtime.block_on(test);
    assert_no_panics();
    result
}

/// Why there is no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The gateway closed the stream.
    Closed,
    /// Nothing is there now.
    Nothing,
}

/// One end of a stream to the gateway.
pub struct Link {
    pub version: Version,
    io: DuplexStream,
    input: Vec<u8>,
}

impl Link {
    /// Sends a packet or any bytes, reading what comes meanwhile; `Err` when the gateway has closed.
    pub async fn send(&mut self, what: &(impl Encode + ?Sized)) -> Result<(), End> {
        let bytes = what.encode(self.version);
        let mut left = &bytes[..];
        let sending = poll_fn(|cx| {
            while !left.is_empty() {
                while self.poll_fill(cx) == Poll::Ready(Ok(())) {}
                match ready!(Pin::new(&mut self.io).poll_write(cx, left)) {
                    Ok(count) if count > 0 => left = &left[count..],
                    _ => return Poll::Ready(Err(End::Closed)),
                }
            }
            Poll::Ready(Ok(()))
        });
        timeout(PATIENCE, sending).await.expect("the gateway stopped reading")
    }

    /// The next packet; waits for it.
    pub async fn recv(&mut self) -> Result<Packet, End> {
        let waited = timeout(PATIENCE, self.recv_for_ever()).await;
        waited.expect("neither a packet nor the end")
    }

    /// The next packet if it is there now.
    pub fn try_recv(&mut self) -> Result<Packet, End> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut Box::pin(self.recv_for_ever())).as_mut().poll(&mut context) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(End::Nothing),
        }
    }

    /// The next packet that is wanted; what comes before it is thrown away.
    pub async fn wait_for<T>(&mut self, mut wanted: impl FnMut(Packet) -> Option<T>) -> T {
        loop {
            let packet = self.recv().await.expect("open");
            if let Some(found) = wanted(packet) {
                return found;
            }
        }
    }

    /// The next packet, which must be a PUBLISH. Acknowledging it is up to the caller.
    pub async fn expect_publish(&mut self) -> Publish {
        match self.recv().await {
            Ok(Packet::Publish(publish)) => publish,
            other => panic!("{other:?} instead of PUBLISH"),
        }
    }

    /// Subscribes to one filter and waits for SUBACK; what comes before it is thrown away.
    pub async fn subscribe(&mut self, filter: &str, options: u8) {
        self.send(&Subscribe::new(60_000, &[(filter, options)])).await.expect("open");
        let codes = self.wait_for(|packet| match packet {
            Packet::Suback(suback) => Some(suback.codes),
            _ => None,
        });
        assert_eq!(codes.await, [options & 3], "{filter}");
    }

    /// Publishes at QoS 1 and waits for PUBACK; what comes before it is thrown away.
    pub async fn publish(&mut self, topic: &str, payload: impl Into<Vec<u8>>) {
        self.send(&Publish::new(topic, payload).qos(1).id(60_001)).await.expect("open");
        self.wait_for(|packet| matches!(packet, Packet::Ack(ack) if ack.id == 60_001).then_some(())).await;
    }

    /// Waits until everything that was sent is handled; what comes before that is thrown away.
    pub async fn ping(&mut self) {
        self.send(&PINGREQ).await.expect("open");
        self.wait_for(|packet| (packet == Packet::Pingresp).then_some(())).await;
    }

    async fn recv_for_ever(&mut self) -> Result<Packet, End> {
        loop {
            if let Some(length) = packet_length(&self.input) {
                let packet = decode(&self.input[..length], self.version);
                self.input.drain(..length);
                return Ok(packet);
            }
            if let Err(end) = poll_fn(|cx| self.poll_fill(cx)).await {
                assert!(self.input.is_empty(), "the gateway closed in the middle of a packet");
                return Err(end);
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let mut chunk = [0; 4096];
        let mut buffer = ReadBuf::new(&mut chunk);
        match ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)) {
            Ok(()) if !buffer.filled().is_empty() => {
                self.input.extend_from_slice(buffer.filled());
                Poll::Ready(Ok(()))
            }
            _ => Poll::Ready(Err(End::Closed)),
        }
    }
}

/// Random numbers from a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// One time in `count`.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A number from the environment, for longer or other runs.
pub fn number_from(variable: &str, usual: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is `{text}`, not a number")),
        Err(_) => usual,
    }
}

/// What a test's own plugin says when it panics.
pub const ON_PURPOSE: &str = "on purpose";

const GATEWAY_THREAD: &str = "gateway";

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A panic on a thread of the gateway is remembered: the task or thread alone would die silently.
fn watch_for_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            let text = format!("{name}: {info}");
            if text.contains(ON_PURPOSE) {
                return;
            }
            if name == GATEWAY_THREAD || name.starts_with("dispatch-") || name.starts_with("router") {
                PANICS.lock().expect("the list of panics").push(text);
            }
            before(info);
        }));
    });
}

/// No thread of any gateway has panicked since this was last asked.
pub fn assert_no_panics() {
    let panics = std::mem::take(&mut *PANICS.lock().expect("the list of panics"));
    assert!(panics.is_empty(), "the gateway panicked: {panics:#?}");
}
