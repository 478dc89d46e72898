//! A relay between clients and a broker that drops, repeats and swaps messages, and says what it did.
//!
//! Only PUBLISH towards the client (or, if wished, towards the broker) is touched, so that connections live on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_control::random::{Random, Seeded};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::codec::{self, kind};

/// A message that is to change places with the next one waits no longer than this for it.
const WAIT: Duration = Duration::from_millis(100);
const CHUNK: usize = 64 * 1024;

/// What a relay does to messages, as shares of them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Plan {
    /// Dropped.
    pub drop: f64,
    /// Passed on twice.
    pub repeat: f64,
    /// Changes places with the next one.
    pub swap: f64,
    /// The seed of the choice.
    pub seed: u64,
    /// Whether messages towards the broker are meant instead of those towards clients.
    pub towards_broker: bool,
}

/// What a relay did.
#[derive(Debug, Default)]
pub struct Deeds {
    /// Messages that came.
    pub seen: AtomicU64,
    /// Dropped.
    pub dropped: AtomicU64,
    /// Passed on twice.
    pub repeated: AtomicU64,
    /// Pairs that changed places.
    pub swapped: AtomicU64,
    connections: AtomicU64,
}

/// A relay that runs until this value goes.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it did so far.
    pub deeds: Arc<Deeds>,
    running: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Listens on a free loopback port and passes on to the target.
    pub async fn start(target: SocketAddr, plan: Plan) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let deeds = Arc::new(Deeds::default());
        let (running, seen) = watch::channel(true);
        let accepting = tokio::spawn(accept(listener, target, plan, deeds.clone(), seen));
        Ok(Self { address, deeds, running, accepting })
    }

    /// Passes nothing on and reads nothing until told otherwise.
    pub fn stop(&self) {
        self.running.send_replace(false);
    }

    /// Passes on again.
    pub fn resume(&self) {
        self.running.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    plan: Plan,
    deeds: Arc<Deeds>,
    running: watch::Receiver<bool>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (deeds, running) = (deeds.clone(), running.clone());
        tokio::spawn(async move {
            // A connection that ends is passed on as one: both sides are dropped.
            let _ = connect(client, target, plan, &deeds, running).await;
        });
    }
}

async fn connect(
    client: TcpStream,
    target: SocketAddr,
    plan: Plan,
    deeds: &Deeds,
    running: watch::Receiver<bool>,
) -> io::Result<()> {
    let broker = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let number = deeds.connections.fetch_add(1, Relaxed);
    let ((client_in, client_out), (broker_in, broker_out)) = (client.into_split(), broker.into_split());
    let touched = |touched: bool| {
        let plan = if touched { plan } else { Plan::default() };
        Direction::new(plan, Seeded::stream(plan.seed, number), deeds, touched, running.clone())
    };
    tokio::select! {
        done = touched(plan.towards_broker).pass(client_in, broker_out) => done,
        done = touched(!plan.towards_broker).pass(broker_in, client_out) => done,
    }
}

/// One direction of one connection.
struct Direction<'a> {
    plan: Plan,
    random: Seeded,
    deeds: &'a Deeds,
    counts: bool,
    running: watch::Receiver<bool>,
    /// The message that waits for the next one.
    held: Option<Vec<u8>>,
}

impl<'a> Direction<'a> {
    fn new(
        plan: Plan,
        random: Seeded,
        deeds: &'a Deeds,
        counts: bool,
        running: watch::Receiver<bool>,
    ) -> Self {
        Self { plan, random, deeds, counts, running, held: None }
    }

    async fn pass(
        mut self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        loop {
            // The sender goes only when the relay does.
            let _ = self.running.wait_for(|running| *running).await;
            input.reserve(CHUNK);
            let reading = from.read_buf(&mut input);
            let read = match self.held.is_some() {
                true => tokio::time::timeout(WAIT, reading).await,
                false => Ok(reading.await),
            };
            match read {
                Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    read?;
                    let _ = self.running.wait_for(|running| *running).await;
                    self.sort(&mut input, &mut output)?;
                }
                Err(_) => output.extend(self.held.take().unwrap_or_default()),
            }
            to.write_all(&output).await?;
            output.clear();
        }
    }

    /// Moves whole packets from the input to the output, each after its fate.
    fn sort(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>) -> io::Result<()> {
        let mut taken = 0;
        while let Some(packet) = codec::packet(&input[taken..]).map_err(io::Error::other)? {
            let bytes = &input[taken..taken + packet.size];
            taken += packet.size;
            if packet.kind() == kind::PUBLISH && self.counts {
                self.decide(bytes, output);
            } else {
                output.extend_from_slice(bytes);
            }
        }
        input.drain(..taken);
        Ok(())
    }

    fn decide(&mut self, packet: &[u8], output: &mut Vec<u8>) {
        self.deeds.seen.fetch_add(1, Relaxed);
        if let Some(held) = self.held.take() {
            output.extend_from_slice(packet);
            output.extend(held);
            self.deeds.swapped.fetch_add(1, Relaxed);
            return;
        }
        let fate = self.random.uniform();
        let Plan { drop, repeat, swap, .. } = self.plan;
        if fate < drop {
            self.deeds.dropped.fetch_add(1, Relaxed);
        } else if fate < drop + repeat {
            output.extend_from_slice(packet);
            output.extend_from_slice(packet);
            self.deeds.repeated.fetch_add(1, Relaxed);
        } else if fate < drop + repeat + swap {
            self.held = Some(packet.to_vec());
        } else {
            output.extend_from_slice(packet);
        }
    }
}
