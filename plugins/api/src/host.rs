//! What a plugin learns about consumer queues and publishers, and what it may do beyond answering.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_control::flow::Reading;
use tidegate_control::time::{Moment, Span};

use crate::overrun::Overrun;

/// What the gateway does for its plugins.
pub trait Host: Send + Sync {
    /// Publishes a message of the gateway itself, under the control topics most often. An empty payload with
    /// `retain` deletes what is retained there. When too many messages of the gateway itself wait, it is not sent to
    /// those who subscribe now, and counted; with `retain` it is still retained.
    fn publish(&self, topic: &str, payload: &[u8], retain: bool);

    /// Retains a message of the gateway itself for those who subscribe later, without sending it to those who subscribe
    /// now. An empty payload deletes what is retained there. Default: nothing, for a gateway that retains nothing.
    fn retain(&self, _topic: &str, _payload: &[u8]) {}

    /// Publishes an answer to a client's request, with the correlation data that came with it, which MQTT 5 clients see.
    /// Not retained. False when too many messages of the gateway itself wait: it was not sent, and may be tried again soon.
    /// Default: as [`Host::publish`], without the correlation data.
    fn respond(&self, topic: &str, payload: &[u8], _correlation_data: Option<&[u8]>) -> bool {
        self.publish(topic, payload, false);
        true
    }

    /// How many clients would get a message on this topic now.
    fn subscribers(&self, topic: &str) -> usize;

    /// The publisher with this number, while it is connected.
    fn publisher(&self, number: u64) -> Option<Arc<Publisher>>;

    /// Says who feeds a queue at this gateway, for other gateways before the same broker. Said again in each turn, for
    /// queues whose report has something to say of [`QueueReport::elsewhere`]. Default: nothing.
    fn tell_crowds(&self, _queue: u64, _crowds: Vec<Crowd>) {}
}

/// One turn of the control loop.
pub struct Tick<'a> {
    /// Now, on the gateway's monotonic clock.
    pub now: Moment,
    /// Now, in milliseconds since 1970, for messages that people read.
    pub wall_ms: u64,
    /// The consumer queues that something happened to lately. A queue that is no longer told of is empty and idle.
    pub queues: &'a [QueueReport],
    /// What the gateway does for plugins.
    pub host: &'a dyn Host,
}

/// What one consumer queue did since the last turn.
#[derive(Debug, Clone)]
pub struct QueueReport {
    /// Tells it from all other queues, for as long as the gateway runs.
    pub id: u64,
    /// Its name, no other queue's: `group:filter` or `client/ID:filter`, cut if it is long.
    pub name: Arc<str>,
    /// The shared group, if it is one.
    pub group: Option<Arc<str>>,
    /// The filter, without `$share/group/`; of a client that has several the one that it has had for the longest time.
    pub filter: Arc<str>,
    /// All filters that feed it: of a client all of its own, but for those that start with `$` where it has others.
    pub filters: Arc<[Arc<str>]>,
    /// The highest QoS that a member of the group asks for, or else a subscription of the client, on any filter.
    pub qos: u8,
    /// Consumers that are connected now.
    pub consumers: u32,
    /// What the curves say: messages depart when a consumer is done with them, that is when it acknowledges them or, at
    /// QoS 0, when they are sent. So the depth counts what waits and what consumers have.
    pub reading: Reading,
    /// Messages that wait to be sent, exactly.
    pub waiting: u64,
    /// How long the oldest of them has waited, exactly.
    pub age: Span,
    /// Messages that consumers have and have not acknowledged.
    pub in_flight: u64,
    /// Milliseconds from sending to the quickest acknowledgement of this turn: a round trip and the work on one message.
    pub soonest: Option<u64>,
    /// Messages thrown away on purpose since the last turn.
    pub dropped: u64,
    /// Messages that went missing since the last turn.
    pub lost: u64,
    /// How long messages waited that were sent since the last turn.
    pub delays: Delays,
    /// Who fed it since the last turn: numbers of publishers with their messages, each publisher once.
    pub feeders: Vec<(u64, u32)>,
    /// Publishers that the queue itself holds because it is over its bound.
    pub held: u32,
    /// Whether the operator says that nobody is to be held for it (`queue.never_hold`).
    pub never_holds: bool,
    /// Publishers that feed it at other gateways before the same broker; none when this gateway is alone. All other figures
    /// but `delays`, `feeders` and `held` are those of the whole queue, as far as is known.
    pub elsewhere: Option<Vec<Crowd>>,
}

/// Publishers of one class that want about the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Crowd {
    /// The name of their class.
    pub class: Arc<str>,
    /// How many they are.
    pub publishers: u32,
    /// What each of them would send if nobody held it back, in messages a second.
    pub wants: f64,
}

/// Counts of waiting times, in steps of powers of two: bucket 0 is under a millisecond, bucket k is under 2^k ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delays {
    /// Messages in each step; the last one has no end.
    pub counts: [u32; Self::STEPS],
}

impl Delays {
    /// Number of steps: the last one is over 16 seconds.
    pub const STEPS: usize = 16;

    /// Counts one message that waited this long.
    pub fn add(&mut self, millis: u64) {
        let step = (u64::BITS - millis.leading_zeros()) as usize;
        self.counts[step.min(Self::STEPS - 1)] += 1;
    }

    /// A waiting time in the middle of a step, in seconds.
    pub fn seconds(step: usize) -> f64 {
        if step == 0 { 0.0005 } else { 0.00075 * f64::from(1_u32 << step.min(31)) }
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}

/// A connected client as a publisher. Plugins share it: one says what rate it may use, another holds it to that, and the
/// gateway tells it with its acknowledgements.
#[derive(Debug)]
pub struct Publisher {
    /// Its client identifier.
    pub client: Arc<str>,
    /// Its user name.
    pub user: Option<Arc<str>>,
    /// Seconds of its keep-alive; 0 is none.
    pub keep_alive: u16,
    /// Protocol level: 4 (3.1.1) or 5.
    pub level: u8,
    /// A rate in messages a second as bits; infinity is no limit.
    rate: AtomicU64,
    /// How often the rate changed.
    changes: AtomicU32,
    exempt: AtomicBool,
    passes: AtomicBool,
    share: AtomicU32,
    accepted: AtomicU64,
    overrun: Mutex<Option<Arc<Overrun>>>,
}

impl Publisher {
    /// A publisher without a limit.
    pub fn new(client: Arc<str>, user: Option<Arc<str>>, keep_alive: u16, level: u8) -> Self {
        let rate = AtomicU64::new(f64::INFINITY.to_bits());
        let (changes, share) = (AtomicU32::new(0), AtomicU32::new(1));
        let (exempt, passes) = (AtomicBool::new(false), AtomicBool::new(false));
        let (accepted, overrun) = (AtomicU64::new(0), Mutex::new(None));
        Self { client, user, keep_alive, level, rate, changes, exempt, passes, share, accepted, overrun }
    }

    /// The rate that it may use, in messages a second; infinity is no limit.
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Says what rate it may use from now on; NaN and less than nothing count as nothing.
    pub fn set_rate(&self, rate: f64) {
        let bits = if rate >= 0.0 { rate } else { 0.0 }.to_bits();
        if self.rate.swap(bits, Ordering::Relaxed) != bits {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether it is held only where a queue is full, and not where one is late.
    pub fn is_exempt(&self) -> bool {
        self.exempt.load(Ordering::Relaxed)
    }

    /// Says whether it is held only where a queue is full.
    pub fn set_exempt(&self, exempt: bool) {
        self.exempt.store(exempt, Ordering::Relaxed);
    }

    /// Whether the message that its hooks are asked about is not held to its rate, and overtakes others in the queues of
    /// consumers.
    pub fn passes(&self) -> bool {
        self.passes.load(Ordering::Relaxed)
    }

    /// Says whether the message that its hooks are asked about, and those after it, are not held to its rate and overtake
    /// others. To be the same for all its messages on one topic, or they would come out of order.
    pub fn set_passes(&self, passes: bool) {
        self.passes.store(passes, Ordering::Relaxed);
    }

    /// How many messages it may send where one with a share of 1 may send one, while they stand in line.
    pub fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// Says how many messages it may send where one with a share of 1 may send one; at least 1.
    pub fn set_share(&self, share: u32) {
        self.share.store(share.max(1), Ordering::Relaxed);
    }

    /// Messages that were accepted from it since it connected, but for those that are not held to its rate. Each counts
    /// once, however many queues it goes to.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// The message that its hooks were asked about is accepted. Said by the gateway.
    pub fn note_accepted(&self) {
        if !self.passes() {
            self.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Where it is counted what becomes of its messages over the rate: the counts of the queue that limits it. Behind a
    /// lock: for messages that are over the rate, not for every one.
    pub fn overrun(&self) -> Option<Arc<Overrun>> {
        self.overrun.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says where it is counted what becomes of its messages over the rate.
    pub fn set_overrun(&self, overrun: Option<Arc<Overrun>>) {
        *self.overrun.lock().unwrap_or_else(PoisonError::into_inner) = overrun;
    }

    /// A number that is another one after each change of the rate.
    pub fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_fall_into_their_steps() {
        let mut delays = Delays::default();
        for millis in [0, 1, 2, 3, 4, 1000, u64::MAX] {
            delays.add(millis);
        }
        assert_eq!(delays.counts[..4], [1, 1, 2, 1]);
        assert_eq!((delays.counts[10], delays.counts[15]), (1, 1));
        assert!((Delays::seconds(10) - 0.768).abs() < 1e-9);
    }

    #[test]
    fn only_a_real_change_of_rate_counts() {
        let publisher = Publisher::new("c".into(), None, 60, 5);
        assert_eq!((publisher.rate(), publisher.changes()), (f64::INFINITY, 0));
        publisher.set_rate(f64::INFINITY);
        assert_eq!(publisher.changes(), 0);
        publisher.set_rate(f64::NAN);
        assert_eq!((publisher.rate(), publisher.changes()), (0.0, 1));
    }
}
