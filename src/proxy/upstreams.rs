//! The addresses of the upstream broker: which one is used, and when one that failed is tried again.
//!
//! A circuit breaker for each: after a failure an address is left alone for a while, twice as long each time. Then it is
//! probed, and clients use it again once the probe's CONNECT is answered: a broker may take connections long before it lets
//! anybody in. A client's CONNECT that is not answered may be the client's own doing, so it only has the address probed; it takes several
//! probes in a row that are not answered to leave it alone. Some brokers answer no stranger: where a probe is not answered either, one client at
//! a time may try.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::counts::{Counts, Lines};
use super::dial::{DialError, Dialer};
use super::frames::{self, Nonsense};
use crate::broker::clock::{Clock, Millis};
use crate::config::ProxySettings;
use crate::listen::Stream;
use crate::wire::Version;

/// How often addresses that failed are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a probe waits at most: one that is never answered must not put off the next one.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);
/// An address that takes connections is not left alone for longer, in milliseconds: it may let clients in at any moment.
const LONGEST_PAUSE_IF_REACHED: Millis = 300;
/// Probes in a row that were not answered, after which nobody uses an address.
const UNANSWERED: u32 = 3;
/// The time between two probes of an address that is used, in milliseconds: its clients must not make us knock all the time.
const PROBE_SPACING: Millis = 250;
/// The largest answer to a probe.
const PROBE_ANSWER: usize = 64 * 1024;

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
    /// Nobody uses the address until a CONNECT is answered.
    open: bool,
    /// One client may try all the same.
    trial: bool,
    /// Failures since a CONNECT was answered last.
    failures: u32,
    /// Connections lost so far.
    losses: u64,
    /// How many of them there were when the last CONNECT that was answered was sent.
    explained: u64,
    /// No probe before this moment.
    until: Millis,
}

/// What is known of an address after one of its connections was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// A CONNECT since then was answered.
    Works,
    /// Nobody can use it.
    Gone,
    /// Nothing that was asked since then was answered, nor left unanswered often enough.
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
    /// There is no connection.
    #[error(transparent)]
    Unreachable(io::Error),
    /// There was nothing for too long.
    #[error("no answer in time")]
    Late,
    /// It ended the connection. It may do so because of this client: one that is banned, or whose identifier comes too often.
    #[error("it closed the connection before it answered CONNECT")]
    Closed,
    /// It is no MQTT broker.
    #[error("its answer to CONNECT is not MQTT: {0}")]
    Nonsense(#[from] Nonsense),
    /// It says itself that it lets nobody in.
    #[error("it says that it is not available")]
    Unavailable,
}

impl Failure {
    /// Whether there is a connection, and nothing but silence on it.
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Late | Self::Closed)
    }
}

impl Breaker {
    /// Lets a client use the address, or the only one try it; how many connections were lost so far.
    fn admit(&mut self) -> Option<u64> {
        (!self.open || std::mem::take(&mut self.trial)).then_some(self.losses)
    }
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
            let Some(losses) = self.addresses[index].breaker.lock().admit() else { continue };
            let asking = self.ask(index, connect, version, client, maximum);
            let patience = Duration::from_millis(self.settings.timeout_ms);
            match tokio::time::timeout(patience, asking).await.unwrap_or(Err(Failure::Late)) {
                Ok((stream, input)) => {
                    self.answered(index, losses, watch);
                    watch.counts.connected.add(1);
                    return Some(Connected { stream, address: index, input });
                }
                Err(failure) => {
                    if matches!(failure, Failure::Nonsense(_)) {
                        watch.counts.nonsense.add(1);
                    }
                    match failure.is_unanswered() {
                        true => self.doubted(index, &failure, watch),
                        false => self.failed(index, &failure, watch),
                    }
                }
            }
        }
        watch.counts.unavailable.add(1);
        None
    }

    /// Notes that an address did not answer one client; whether it answers others is looked at soon.
    fn doubted(&self, index: usize, failure: &Failure, watch: &Watch<'_>) {
        watch.counts.failed.add(1);
        self.suspect(index);
        if watch.lines.upstream.allows(watch.clock.now()) {
            let (upstream, why) = (self.name(index), failure.to_string());
            tracing::warn!(upstream, why, "the upstream did not let a client in");
        }
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

    /// Notes that an address failed, or did not answer a probe.
    fn failed(&self, index: usize, failure: &Failure, watch: &Watch<'_>) {
        watch.counts.failed.add(1);
        let Some(address) = self.addresses.get(index) else { return };
        let now = watch.clock.now();
        let mut breaker = address.breaker.lock();
        breaker.failures = breaker.failures.saturating_add(1);
        let longest = match failure {
            Failure::Unreachable(_) => self.settings.max_retry_ms,
            _ => self.settings.max_retry_ms.min(LONGEST_PAUSE_IF_REACHED),
        };
        let pause = (self.settings.retry_ms << (breaker.failures - 1).min(16)).min(longest);
        // between half of it and all of it, so that gateways that lost it together do not come together
        let pause = pause / 2 + random_below(pause / 2 + 1);
        breaker.until = now + pause;
        if failure.is_unanswered() && breaker.failures < UNANSWERED && !breaker.open {
            return;
        }
        let first = !std::mem::replace(&mut breaker.open, true);
        drop(breaker);
        if first {
            watch.counts.opened.add(1);
        }
        if watch.lines.upstream.allows(now) {
            let (upstream, why) = (&*address.name, failure.to_string());
            tracing::warn!(upstream, why, "the upstream cannot be used; trying again in {pause} ms");
        }
    }

    /// Notes that an address answered a CONNECT that was sent after so many losses.
    fn answered(&self, index: usize, losses: u64, watch: &Watch<'_>) {
        let Some(address) = self.addresses.get(index) else { return };
        let mut breaker = address.breaker.lock();
        breaker.explained = breaker.explained.max(losses);
        breaker.trial = false;
        let failures = std::mem::take(&mut breaker.failures);
        let open = std::mem::take(&mut breaker.open);
        drop(breaker);
        if open {
            watch.counts.recovered.add(1);
            tracing::info!(upstream = &*address.name, failures, "the upstream can be used again");
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
            let wanted = breaker.open || breaker.explained < breaker.losses;
            if !wanted || breaker.until > watch.clock.now() {
                return;
            }
            breaker.losses
        };
        let patience = Duration::from_millis(self.settings.timeout_ms).min(PROBE_PATIENCE);
        match tokio::time::timeout(patience, self.try_out(index)).await.unwrap_or(Err(Failure::Late)) {
            Ok(()) => {
                self.answered(index, losses, watch);
                address.breaker.lock().until = watch.clock.now() + PROBE_SPACING;
            }
            Err(failure) => {
                self.failed(index, &failure, watch);
                address.breaker.lock().trial = failure.is_unanswered();
            }
        }
    }

    /// Whether a client would be answered, as one that nobody knows: who is refused is answered, too.
    async fn try_out(&self, index: usize) -> Result<(), Failure> {
        let (mut stream, input) =
            self.ask(index, &probe_connect(), Version::V311, None, PROBE_ANSWER).await?;
        // The broker need not hear the goodbye: it sees the connection end.
        let _ = stream.write_all(&[0xE0, 0]).await;
        let _ = stream.flush().await;
        const SERVER_UNAVAILABLE: u8 = 3;
        match input.get(3) {
            Some(&SERVER_UNAVAILABLE) => Err(Failure::Unavailable),
            _ => Ok(()),
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
        let dialled = self.dialer.dial(&self.addresses[index].name, client).await;
        let mut stream = dialled.map_err(Failure::Unreachable)?;
        stream.write_all(connect).await.map_err(|_| Failure::Closed)?;
        stream.flush().await.map_err(|_| Failure::Closed)?;
        let (mut input, mut chunk) = (Vec::new(), [0; 2048]);
        loop {
            match frames::find(&input, version, maximum) {
                Ok(Some(found)) if matches!(found.first >> 4, frames::CONNACK | frames::AUTH) => {
                    return Ok((stream, input));
                }
                Ok(Some(_)) => return Err(Nonsense::NotConnack.into()),
                Ok(None) => {}
                Err(what) => return Err(what.into()),
            }
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return Err(Failure::Closed),
                Ok(count) => input.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

/// A CONNECT of MQTT 3.1.1 with a clean session, under a name that nobody has.
fn probe_connect() -> Vec<u8> {
    let name = format!("tidegate-probe-{:08x}", random_below(1 << 32));
    let mut packet = vec![0x10, 12 + name.len() as u8];
    packet.extend(b"\x00\x04MQTT\x04\x02\x00\x0A\x00");
    packet.push(name.len() as u8);
    packet.extend(name.into_bytes());
    packet
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::net::TcpListener;

    use super::*;

    /// A broker that answers CONNECT so; nobody whose CONNECT holds this text is answered.
    async fn broker(answer: &'static [u8], turned_away: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut connect = [0; 256];
                let size = client.read(&mut connect).await.unwrap();
                if !connect[..size].windows(turned_away.len()).any(|part| part == turned_away) {
                    client.write_all(answer).await.unwrap();
                }
            }
        });
        address
    }

    struct World {
        upstreams: Upstreams,
        counts: Counts,
        lines: Lines,
        clock: Clock,
    }

    impl World {
        fn new(address: String) -> Self {
            let settings = ProxySettings { upstream: vec![address], ..ProxySettings::default() };
            Self {
                upstreams: Upstreams::new(&settings).unwrap(),
                counts: Counts::default(),
                lines: Lines::default(),
                clock: Clock::start(),
            }
        }

        fn watch(&self) -> Watch<'_> {
            Watch { counts: &self.counts, lines: &self.lines, clock: &self.clock }
        }

        /// Probes as if it were time to.
        async fn probe(&self) {
            self.upstreams.addresses[0].breaker.lock().until = 0;
            self.upstreams.probe(0, &self.watch()).await;
        }

        async fn is_let_in(&self, connect: &[u8]) -> bool {
            self.upstreams.connect(connect, Version::V311, None, 1024, &self.watch()).await.is_some()
        }
    }

    const BANNED: &[u8] = b"\x10\x12\x00\x04MQTT\x04\x02\x00\x0A\x00\x06banned";

    #[tokio::test]
    async fn a_client_that_is_turned_away_closes_the_address_for_nobody_else() {
        let world = World::new(broker(b"\x20\x02\x00\x00", b"banned").await);
        for _ in 0..10 {
            assert!(!world.is_let_in(BANNED).await);
        }
        assert!(world.is_let_in(&probe_connect()).await);
        let loss = world.upstreams.suspect(0);
        world.probe().await;
        assert_eq!(world.upstreams.health(0, loss), Health::Works);
        assert_eq!(world.upstreams.usable(), 1);
    }

    #[tokio::test]
    async fn an_address_that_answers_nobody_is_left_alone() {
        for answer in [&b""[..], b"\x20\x02\x00\x03", b"HTTP/1.1 400"] {
            let world = World::new(broker(answer, b"nobody").await);
            let loss = world.upstreams.suspect(0);
            for _ in 0..UNANSWERED {
                world.probe().await;
            }
            assert_eq!(world.upstreams.health(0, loss), Health::Gone, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn who_is_refused_is_answered() {
        let world = World::new(broker(b"\x20\x02\x00\x05", b"banned").await);
        let loss = world.upstreams.suspect(0);
        world.probe().await;
        assert_eq!(world.upstreams.health(0, loss), Health::Works);
    }

    #[tokio::test]
    async fn a_broker_that_answers_no_stranger_is_tried_by_one_client_at_a_time() {
        let world = World::new(broker(b"\x20\x02\x00\x00", b"tidegate-probe").await);
        world.upstreams.suspect(0);
        for _ in 0..UNANSWERED {
            world.probe().await;
        }
        assert_eq!(world.upstreams.usable(), 0);
        let admitted = [(); 2].map(|()| world.upstreams.addresses[0].breaker.lock().admit().is_some());
        assert_eq!(admitted, [true, false]);
        world.probe().await;
        assert!(world.is_let_in(BANNED).await);
        assert_eq!(world.upstreams.usable(), 1);
    }

    #[tokio::test]
    async fn clients_that_come_again_and_again_do_not_make_it_probe_all_the_time() {
        let world = World::new(broker(b"\x20\x02\x00\x00", b"banned").await);
        let first = world.upstreams.suspect(0);
        world.probe().await;
        assert_eq!(world.upstreams.health(0, first), Health::Works);
        let second = world.upstreams.suspect(0);
        world.upstreams.probe(0, &world.watch()).await;
        assert_eq!(world.upstreams.health(0, second), Health::Unknown, "it was just looked at");
    }
}
