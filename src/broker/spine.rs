//! The spine: rumqttd's router, in this process, between those who publish and those who dispatch.
//!
//! Batches of accepted messages go into its log under one constant topic a shard; one dispatcher reads each
//! shard. Users' topics never reach rumqttd. What is in flight is bounded well under the log's size, so that its
//! cursor can't jump over messages that nobody has read. This is the only file that names rumqttd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;
use rumqttd::local::{LinkBuilder, LinkError, LinkRx, LinkTx};
use rumqttd::protocol::{Packet, Publish};
use rumqttd::{Notification, Router, RouterConfig};

/// Why the spine could not start or stopped.
#[derive(Debug, thiserror::Error)]
pub enum SpineError {
    /// The embedded router did not accept a link.
    #[error("the embedded rumqttd router did not accept a link: {0}")]
    Link(Box<LinkError>),
    /// The system did not give a thread for a dispatcher.
    #[error("could not start a dispatcher's thread: {0}")]
    Thread(std::io::Error),
}

impl From<LinkError> for SpineError {
    fn from(error: LinkError) -> Self {
        Self::Link(Box::new(error))
    }
}

/// Most bytes in flight in a shard before publishers wait, whatever is asked for.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Batches in flight in a shard before publishers wait.
const MAX_BATCHES: usize = 1024;
/// A log keeps this many segments of this size: more than may be in flight, counted in whole segments.
const SEGMENT_SIZE: usize = 1024 * 1024;
const SEGMENT_COUNT: usize = 8;
/// Notifications that the router hands to a link in one go; it pauses a link at 199.
const READ_COUNT: u64 = 128;
/// The last that goes into a shard. No batch is as short.
const LAST: &[u8] = b"last";

/// How many batches had gone into each shard at some moment.
pub type Fence = Box<[u64]>;

/// The way in. When it is dropped, its outlets end.
pub struct Spine {
    shards: Vec<Shard>,
    depot: Arc<Depot>,
}

/// The way out of one shard.
pub struct Outlet {
    /// Taken when the outlet ends.
    link: Option<LinkRx>,
    shard: usize,
    depot: Arc<Depot>,
    /// The last has come out.
    ended: bool,
    flight: Arc<Flight>,
    /// Batches and bytes received and not settled.
    taken: (usize, usize),
    next_offset: u64,
    lost: u64,
}

struct Shard {
    /// Taken when the spine is dropped.
    link: Mutex<Option<LinkTx>>,
    topic: Bytes,
    flight: Arc<Flight>,
}

/// A router with its links. It runs for as long as the process does, because rumqttd has no way to stop it: one that is
/// no longer needed waits in [`IDLE`] for the next spine.
struct Line {
    ways: Vec<Way>,
}

/// The links of one shard, and the offset in its log of what comes out next.
struct Way {
    publish: LinkTx,
    receive: LinkRx,
    next_offset: u64,
}

/// Where the links of a spine that ends are gathered: the ways in first, then each way out when it has ended.
#[derive(Default)]
struct Depot {
    publish: Mutex<Vec<LinkTx>>,
    receive: Mutex<BTreeMap<usize, (LinkRx, u64)>>,
}

/// Routers that nobody uses now. No more than there were spines at the same time.
static IDLE: Mutex<Vec<Line>> = Mutex::new(Vec::new());

struct Flight {
    max_bytes: usize,
    batches: AtomicUsize,
    bytes: AtomicUsize,
    /// Batches that ever went in, and those of them that consumer queues have seen.
    sent: AtomicU64,
    settled: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Spine {
    /// Starts the router and links to it: one way in and one way out for each shard. Publishers wait when
    /// `max_bytes` are in flight in their shard.
    pub fn start(shards: usize, max_bytes: usize) -> Result<(Self, Vec<Outlet>), SpineError> {
        let line = match Line::idle(shards) {
            Some(line) => line,
            None => Line::start(shards)?,
        };
        let depot = Arc::new(Depot::default());
        let mut ways_in = Vec::with_capacity(shards);
        let mut ways_out = Vec::with_capacity(shards);
        for (shard, way) in line.ways.into_iter().enumerate() {
            let flight = Arc::new(Flight::new(max_bytes.min(MAX_BYTES)));
            ways_out.push(Outlet {
                link: Some(way.receive),
                shard,
                depot: Arc::clone(&depot),
                ended: false,
                flight: Arc::clone(&flight),
                taken: (0, 0),
                next_offset: way.next_offset,
                lost: 0,
            });
            ways_in.push(Shard {
                link: Mutex::new(Some(way.publish)),
                topic: topic_of(shard).into(),
                flight,
            });
        }
        Ok((Self { shards: ways_in, depot }, ways_out))
    }

    /// Offers a batch of this publisher's messages, in order.
    ///
    /// `Err` gives the batch back when the shard is full; `waker` is woken when it no longer is.
    pub fn offer(&self, publisher: u64, batch: Bytes, waker: &Waker) -> Result<(), Bytes> {
        let shard = self.shard(publisher);
        if !shard.flight.enter(batch.len()) {
            shard.flight.waiting.lock().push(waker.clone());
            // it may have emptied before we were on the list
            if !shard.flight.enter(batch.len()) {
                return Err(batch);
            }
        }
        shard.send(batch);
        Ok(())
    }

    /// What has gone in so far, over all shards.
    pub fn fence(&self) -> Fence {
        self.shards.iter().map(|shard| shard.flight.sent.load(Ordering::Acquire)).collect()
    }

    /// Whether consumer queues have seen all that had gone in at a fence.
    pub fn passed(&self, fence: &Fence) -> bool {
        let settled = |(shard, sent): (&Shard, &u64)| shard.flight.settled.load(Ordering::Acquire) >= *sent;
        self.shards.iter().zip(fence).all(settled)
    }

    /// How many batches have gone into the shard of this publisher so far.
    pub fn sent(&self, publisher: u64) -> u64 {
        self.shard(publisher).flight.sent.load(Ordering::Acquire)
    }

    /// Whether consumer queues have seen the first `sent` batches of the shard of this publisher.
    pub fn settled(&self, publisher: u64, sent: u64) -> bool {
        self.shard(publisher).flight.settled.load(Ordering::Acquire) >= sent
    }

    /// A publisher always uses the same shard, so that its order is kept.
    fn shard(&self, publisher: u64) -> &Shard {
        &self.shards[(publisher % self.shards.len() as u64) as usize]
    }
}

impl Drop for Spine {
    fn drop(&mut self) {
        // locked, so that the last outlet to end finds them all
        let mut publish = self.depot.publish.lock();
        for shard in &self.shards {
            shard.send(Bytes::from_static(LAST));
            publish.extend(shard.link.lock().take());
        }
    }
}

impl Line {
    fn idle(shards: usize) -> Option<Self> {
        let mut idle = IDLE.lock();
        let fits = idle.iter().position(|line| line.ways.len() == shards)?;
        Some(idle.swap_remove(fits))
    }

    fn start(shards: usize) -> Result<Self, SpineError> {
        let config = RouterConfig {
            max_connections: 2 * shards + 1,
            max_outgoing_packet_count: READ_COUNT,
            max_segment_size: SEGMENT_SIZE,
            max_segment_count: SEGMENT_COUNT,
            ..RouterConfig::default()
        };
        let router = Router::new(0, config).spawn();
        let mut ways = Vec::with_capacity(shards);
        for shard in 0..shards {
            let (mut subscribe, receive, _) =
                LinkBuilder::new(&format!("out-{shard}"), router.clone()).build()?;
            subscribe.subscribe(topic_of(shard))?;
            let (publish, _, _) = LinkBuilder::new(&format!("in-{shard}"), router.clone()).build()?;
            ways.push(Way { publish, receive, next_offset: 0 });
        }
        Ok(Self { ways })
    }
}

impl Depot {
    /// Takes a way out back; with the last of them, puts the router aside for the next spine.
    fn give_back(&self, shard: usize, link: LinkRx, next_offset: u64) {
        let (mut publish, mut receive) = (self.publish.lock(), self.receive.lock());
        receive.insert(shard, (link, next_offset));
        if publish.len() != receive.len() {
            return;
        }
        let outs = std::mem::take(&mut *receive).into_values();
        let ways = publish.drain(..).zip(outs);
        let ways = ways.map(|(publish, (receive, next_offset))| Way { publish, receive, next_offset });
        IDLE.lock().push(Line { ways: ways.collect() });
    }
}

fn topic_of(shard: usize) -> String {
    format!("shard/{shard}")
}

impl Shard {
    /// Puts a batch where the router finds it, and tells the router only when nothing waited there: so at most
    /// one event for each shard is under way and the router's bounded channel never blocks us.
    fn send(&self, batch: Bytes) {
        let mut link = self.link.lock();
        // there until the spine is dropped
        let Some(link) = link.as_mut() else { return };
        let mut waiting = link.buffer();
        if waiting.is_empty() {
            drop(waiting);
            // fails only when the router's thread is gone, which `Outlet::receive` reports
            let _ = link.publish(self.topic.clone(), batch);
        } else {
            waiting.push_back(Packet::Publish(Publish::new(self.topic.clone(), batch, false), None));
        }
    }
}

impl Outlet {
    /// Waits for batches and appends what is there, up to about `most` bytes. They count as in flight until
    /// [`Outlet::settle`]. `false` when the spine was dropped: nothing more comes.
    pub fn receive(&mut self, batches: &mut Vec<Bytes>, most: usize) -> Result<bool, SpineError> {
        // taken only by `drop`
        let Some(mut link) = self.link.take() else { return Ok(false) };
        let received = self.receive_from(&mut link, batches, most);
        self.link = Some(link);
        received.map(|()| !self.ended)
    }

    fn receive_from(
        &mut self,
        link: &mut LinkRx,
        batches: &mut Vec<Bytes>,
        most: usize,
    ) -> Result<(), SpineError> {
        while batches.is_empty() && !self.ended {
            if let Some(notification) = link.recv()? {
                self.take(notification, link, batches)?;
            }
        }
        while self.taken.1 < most && !self.ended {
            match link.recv_deadline(std::time::Instant::now()) {
                Ok(Some(notification)) => self.take(notification, link, batches)?,
                Ok(None) => {}
                Err(LinkError::RecvTimeout(_)) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        notification: Notification,
        link: &LinkRx,
        batches: &mut Vec<Bytes>,
    ) -> Result<(), SpineError> {
        match notification {
            Notification::Forward(forward) => {
                if let Some((_, offset)) = forward.cursor {
                    self.lost += offset.saturating_sub(self.next_offset);
                    self.next_offset = offset + 1;
                }
                if forward.publish.payload == LAST {
                    self.ended = true;
                    return Ok(());
                }
                self.taken.0 += 1;
                self.taken.1 += forward.publish.payload.len();
                batches.push(forward.publish.payload);
            }
            // the router stops serving a link that it found full until the link says that it is ready
            Notification::Unschedule => link.ready()?,
            _ => {}
        }
        Ok(())
    }

    /// Says that consumer queues have seen all that was received: it is no longer in flight.
    pub fn settle(&mut self) {
        let (batches, bytes) = std::mem::take(&mut self.taken);
        self.flight.settled.fetch_add(batches as u64, Ordering::AcqRel);
        self.flight.leave(batches, bytes);
    }

    /// Batches that were sent but never came out, so far: 0 unless there is a defect.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        // one that ended early, such as by a panic, leaves things behind: its router is not used again
        if let Some(link) = self.link.take().filter(|_| self.ended) {
            self.depot.give_back(self.shard, link, self.next_offset);
        }
    }
}

impl Flight {
    fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            batches: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    fn full(&self) -> bool {
        self.batches.load(Ordering::Acquire) >= MAX_BATCHES
            || self.bytes.load(Ordering::Acquire) >= self.max_bytes
    }

    /// Takes room for a batch; `false` when there is none. Taken before it is judged, so that many at the same time
    /// can't all find the last free place.
    fn enter(&self, bytes: usize) -> bool {
        let batches_before = self.batches.fetch_add(1, Ordering::AcqRel);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let room = batches_before < MAX_BATCHES && bytes_before < self.max_bytes;
        if room {
            self.sent.fetch_add(1, Ordering::AcqRel);
        } else {
            self.leave(1, bytes);
        }
        room
    }

    fn leave(&self, batches: usize, bytes: usize) {
        self.batches.fetch_sub(batches, Ordering::AcqRel);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if !self.full() {
            for waker in std::mem::take(&mut *self.waiting.lock()) {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn drain(outlet: &mut Outlet, count: usize) -> Vec<Bytes> {
        let mut batches = Vec::new();
        while batches.len() < count {
            let mut some = Vec::new();
            assert!(outlet.receive(&mut some, 64 * 1024).unwrap());
            outlet.settle();
            batches.extend(some);
        }
        batches
    }

    /// Many times the log's size passes through the real router: nothing is lost, order is kept.
    #[test]
    fn everything_comes_out_in_order() {
        const COUNT: u32 = 60_000;
        let (spine, mut outlets) = Spine::start(1, 1024 * 1024).unwrap();
        let mut outlet = outlets.pop().unwrap();
        let reader = std::thread::spawn(move || (drain(&mut outlet, COUNT as usize), outlet.lost()));
        let body = vec![7; 1000];
        for number in 0..COUNT {
            let mut batch = number.to_le_bytes().to_vec();
            batch.extend_from_slice(&body);
            let mut batch = Bytes::from(batch);
            while let Err(full) = spine.offer(5, batch, Waker::noop()) {
                batch = full;
                std::thread::yield_now();
            }
        }
        let (batches, lost) = reader.join().unwrap();
        let numbers = batches.iter().map(|batch| u32::from_le_bytes(batch[..4].try_into().unwrap()));
        assert!(numbers.eq(0..COUNT));
        assert_eq!(lost, 0);
    }

    /// A shard that nobody reads takes only what fits into its log, and says so.
    #[test]
    fn a_full_shard_gives_the_batch_back() {
        let (spine, mut outlets) = Spine::start(1, 64 * 1024).unwrap();
        let mut accepted = 0;
        while spine.offer(1, Bytes::from(vec![0; 1024]), Waker::noop()).is_ok() {
            accepted += 1;
        }
        assert_eq!(accepted, 64);
        assert_eq!(drain(&mut outlets[0], accepted).len(), accepted);
        assert!(spine.offer(1, Bytes::from_static(b"x"), Waker::noop()).is_ok());
    }

    /// A spine that is dropped ends its outlets, and the next one begins where it ended.
    #[test]
    fn a_router_is_used_again() {
        // a number of shards that no other test has
        for round in 0..20_u8 {
            let (spine, mut outlets) = Spine::start(3, 64 * 1024).unwrap();
            for number in 0..10 {
                spine.offer(1, Bytes::from(vec![round; 100 + number]), Waker::noop()).unwrap();
            }
            let seen = if round % 2 == 0 { drain(&mut outlets[1], 10) } else { Vec::new() };
            drop(spine);
            for mut outlet in outlets {
                while outlet.receive(&mut Vec::new(), 64 * 1024).unwrap() {}
                assert_eq!(outlet.lost(), 0);
            }
            assert!(seen.iter().all(|batch| batch[0] == round), "a batch of another spine");
            assert_eq!(IDLE.lock().iter().filter(|line| line.ways.len() == 3).count(), 1);
        }
    }
}
