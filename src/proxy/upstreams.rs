//! The addresses of the upstream broker: which one is used, and when one that failed is tried again.
//!
//! A circuit breaker for each: after a failure an address is left alone for a while, twice as long each time. Then it is
//! probed, and clients use it again once the probe gets through.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::counts::{Counts, Lines};
use super::dial::{DialError, Dialer};
use super::frames;
use crate::broker::clock::{Clock, Millis};
use crate::config::ProxySettings;
use crate::listen::Stream;
use crate::wire::Version;

/// How often addresses that failed are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// All addresses.
pub(super) struct Upstreams {
    addresses: Vec<Address>,
    dialer: Dialer,
    settings: ProxySettings,
    /// Where the next client begins, when clients are spread.
    next: AtomicUsize,
    /// The second of the last loss, and how many there were in it.
    losses: (AtomicU64, AtomicU64),
}

struct Address {
    name: String,
    breaker: Mutex<Breaker>,
}

#[derive(Debug, Default)]
struct Breaker {
    /// Nobody uses the address until a probe gets through.
    open: bool,
    /// Failures since a CONNECT was answered last.
    failures: u32,
    /// Connections lost so far.
    losses: u64,
    /// How many of them there were when the last probe that ended began.
    explained: u64,
    /// No probe before this moment.
    until: Millis,
}

/// What is known of an address after one of its connections was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// A probe since then got through.
    Works,
    /// Nobody can use it.
    Gone,
    /// No probe since then has ended.
    Unknown,
}

/// An upstream connection that has answered CONNECT.
pub(super) struct Connected {
    pub(super) stream: Stream,
    /// Which address it is, for failures to come.
    pub(super) address: usize,
    /// What it sent: its first packet, and perhaps more.
    pub(super) input: Vec<u8>,
}

/// What came in the place of an answer to CONNECT.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no answer in time")]
    Late,
    #[error("it closed the connection before it answered CONNECT")]
    Closed,
    #[error("its answer to CONNECT is not MQTT: {0}")]
    Nonsense(&'static str),
}

impl Upstreams {
    pub(super) fn new(settings: &ProxySettings) -> Result<Self, DialError> {
        let address = |name: &String| Address { name: name.clone(), breaker: Mutex::default() };
        Ok(Self {
            addresses: settings.upstream.iter().map(address).collect(),
            dialer: Dialer::new(settings)?,
            settings: settings.clone(),
            next: AtomicUsize::new(0),
            losses: (AtomicU64::new(0), AtomicU64::new(0)),
        })
    }

    /// Passes a CONNECT, of this client or our own, to the first address that answers it. None when there is no such address.
    pub(super) async fn connect(
        &self,
        connect: &[u8],
        version: Version,
        client: Option<SocketAddr>,
        maximum: usize,
        watch: &Watch<'_>,
    ) -> Option<Connected> {
        let count = self.addresses.len();
        let first = if self.settings.spread { self.next.fetch_add(1, Ordering::Relaxed) } else { 0 };
        for index in (0..count).map(|offset| (first + offset) % count) {
            if self.addresses[index].breaker.lock().open {
                continue;
            }
            let asking = self.ask(index, connect, version, client, maximum);
            let patience = Duration::from_millis(self.settings.timeout_ms);
            match tokio::time::timeout(patience, asking).await.unwrap_or(Err(Failure::Late)) {
                Ok((stream, input)) => {
                    self.addresses[index].breaker.lock().failures = 0;
                    watch.counts.connected.add(1);
                    return Some(Connected { stream, address: index, input });
                }
                Err(failure) => {
                    if matches!(failure, Failure::Nonsense(_)) {
                        watch.counts.nonsense.add(1);
                    }
                    self.failed(index, &failure.to_string(), watch);
                }
            }
        }
        watch.counts.unavailable.add(1);
        None
    }

    /// The name of an address.
    pub(super) fn name(&self, address: usize) -> &str {
        self.addresses.get(address).map_or("", |address| &address.name)
    }

    /// Addresses that can be used as far as we know.
    pub(super) fn usable(&self) -> usize {
        self.addresses.iter().filter(|address| !address.breaker.lock().open).count()
    }

    /// A connection to this address was lost: whether others can be made is looked at soon. The number of the loss.
    pub(super) fn suspect(&self, index: usize) -> u64 {
        self.addresses.get(index).map_or(0, |address| {
            let mut breaker = address.breaker.lock();
            breaker.losses += 1;
            breaker.losses
        })
    }

    /// What is known of an address since this loss.
    pub(super) fn health(&self, index: usize, loss: u64) -> Health {
        let Some(address) = self.addresses.get(index) else { return Health::Gone };
        let breaker = address.breaker.lock();
        match (breaker.open, breaker.explained >= loss) {
            (true, _) => Health::Gone,
            (false, true) => Health::Works,
            (false, false) => Health::Unknown,
        }
    }

    /// How long a client that lost its upstream waits before it is told: nothing unless many did in this second.
    pub(super) fn parting_delay(&self, now: Millis) -> Millis {
        const FEW: u64 = 16;
        let (second, count) = &self.losses;
        if second.swap(now / 1000, Ordering::Relaxed) != now / 1000 {
            count.store(0, Ordering::Relaxed);
        }
        let crowded = count.fetch_add(1, Ordering::Relaxed) >= FEW;
        if crowded { random_below(self.settings.jitter_ms + 1) } else { 0 }
    }

    /// Notes that an address failed.
    pub(super) fn failed(&self, index: usize, why: &str, watch: &Watch<'_>) {
        watch.counts.failed.add(1);
        let Some(address) = self.addresses.get(index) else { return };
        let now = watch.clock.now();
        let mut breaker = address.breaker.lock();
        breaker.failures = breaker.failures.saturating_add(1);
        let longest = self.settings.max_retry_ms;
        let pause = (self.settings.retry_ms << (breaker.failures - 1).min(16)).min(longest);
        // between half of it and all of it, so that gateways that lost it together do not come together
        let pause = pause / 2 + random_below(pause / 2 + 1);
        breaker.until = now + pause;
        let first = !std::mem::replace(&mut breaker.open, true);
        drop(breaker);
        if first {
            watch.counts.opened.add(1);
        }
        if watch.lines.upstream.allows(now) {
            let upstream = &*address.name;
            tracing::warn!(upstream, why, "the upstream cannot be used; trying again in {pause} ms");
        }
    }

    /// How many addresses there are.
    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Probes an address that failed, once its time has come, or that is suspected.
    pub(super) async fn probe(&self, index: usize, watch: &Watch<'_>) {
        let Some(address) = self.addresses.get(index) else { return };
        let losses = {
            let breaker = address.breaker.lock();
            let due = match breaker.open {
                true => breaker.until <= watch.clock.now(),
                false => breaker.explained < breaker.losses,
            };
            if !due {
                return;
            }
            breaker.losses
        };
        let patience = Duration::from_millis(self.settings.timeout_ms);
        match tokio::time::timeout(patience, self.dialer.dial(&address.name, None)).await {
            Ok(Ok(_)) => {
                // Those who come next find out whether it answers. If not, the pause goes on growing.
                let mut breaker = address.breaker.lock();
                breaker.explained = losses;
                let (open, failures) = (std::mem::take(&mut breaker.open), breaker.failures);
                drop(breaker);
                if open {
                    watch.counts.recovered.add(1);
                    tracing::info!(upstream = &*address.name, failures, "the upstream can be used again");
                }
            }
            Ok(Err(error)) => self.failed(index, &error.to_string(), watch),
            Err(_) => self.failed(index, "no answer in time", watch),
        }
    }

    /// The time between two probes.
    pub(super) fn interval(&self) -> Duration {
        LOOK
    }

    async fn ask(
        &self,
        index: usize,
        connect: &[u8],
        version: Version,
        client: Option<SocketAddr>,
        maximum: usize,
    ) -> Result<(Stream, Vec<u8>), Failure> {
        let mut stream = self.dialer.dial(&self.addresses[index].name, client).await?;
        stream.write_all(connect).await?;
        stream.flush().await?;
        let (mut input, mut chunk) = (Vec::new(), [0; 2048]);
        loop {
            match frames::find(&input, version, maximum) {
                Ok(Some(found)) if matches!(found.first >> 4, frames::CONNACK | frames::AUTH) => {
                    return Ok((stream, input));
                }
                Ok(Some(_)) => return Err(Failure::Nonsense("its first packet is not CONNACK")),
                Ok(None) => {}
                Err(what) => return Err(Failure::Nonsense(what)),
            }
            match stream.read(&mut chunk).await? {
                0 => return Err(Failure::Closed),
                count => input.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

/// What is needed to tell of failures.
pub(super) struct Watch<'a> {
    pub(super) counts: &'a Counts,
    pub(super) lines: &'a Lines,
    pub(super) clock: &'a Clock,
}

/// A random number below this one, from the standard library's random hash keys; 0 when that is 0.
pub(super) fn random_below(end: u64) -> u64 {
    RandomState::new().build_hasher().finish().checked_rem(end).unwrap_or(0)
}
