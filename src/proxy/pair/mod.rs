//! One client and its connection to the upstream: a state machine polled by one task.
//!
//! From each side is read only while the other side's output is below a bound. An idle pair holds no buffers: reading and
//! writing use memory that belongs to the thread, and only what could not be finished stays with the pair.

mod client;
mod consumer;
mod half;
mod held;
mod ledger;
mod subscribe;
mod upstream;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_plugin::Publisher;
use tokio::time::Sleep;

use self::client::Alias;
use self::consumer::Consumer;
use self::half::Half;
use self::ledger::Arrivals;
use self::subscribe::Waiting;
use super::Proxy;
use super::inbox::Inbox;
use super::upstreams::Connected;
use crate::broker::clock::Millis;
use crate::broker::held::HeldInput;
use crate::chain::Hooks;
use crate::hold::Gate;
use crate::listen::Stream;
use crate::wire::{Connect, Encoder, Filter, Outgoing, QoS, ReasonCode};

/// Bytes that wait for one side before the other one is no longer read.
const BOUND: usize = 64 * 1024;
/// Our own answers that wait for a client before it is no longer read.
const ANSWERS: usize = 256 * 1024;
/// Bytes read at a time.
const READ_SIZE: usize = 64 * 1024;
/// How long a closing pair may take to send its last bytes.
const LINGER: Millis = 2_000;
/// The timer of a pair that waits for nothing.
const IDLE_TIMER: Millis = 24 * 3600 * 1000;

/// What a pair is made of.
pub(super) struct Made {
    pub(super) client: (Stream, Vec<u8>),
    pub(super) upstream: Connected,
    pub(super) hooks: Hooks,
    pub(super) client_id: Arc<str>,
    pub(super) assigned: bool,
    pub(super) publisher: Arc<Publisher>,
    pub(super) encoder: Encoder,
}

pub(super) struct Pair {
    proxy: Arc<Proxy>,
    client: Half,
    upstream: Half,
    /// Which address the upstream is.
    address: usize,
    client_id: Arc<str>,
    assigned: bool,
    publisher: Arc<Publisher>,
    inbox: Arc<Inbox>,
    hooks: Hooks,
    encoder: Encoder,
    /// The upstream has let the client in.
    accepted: bool,
    /// The change of its rate that the client was told of last.
    told_rate: u32,
    held: Option<Box<HeldInput>>,
    /// Since when the packet that is being handled was held.
    held_since: Option<Millis>,
    /// Since when nothing is read from the client because enough is held; 0 while something may be read.
    deaf_since: Millis,
    /// When the upstream last heard something.
    spoke: Millis,
    /// Milliseconds of the keep-alive; 0 is none.
    keep_alive: Millis,
    /// PINGRESPs that are for us.
    own_pings: u32,
    aliases: BTreeMap<u16, Alias>,
    alias_maximum: u16,
    /// Aliases that the client allows the upstream.
    aliases_taken: u16,
    /// Largest packet that the upstream takes, where it says so.
    largest: u32,
    /// SUBSCRIBEs and UNSUBSCRIBEs that the upstream has not answered, as far as they matter.
    subscribing: Waiting<Filter>,
    unsubscribing: Waiting<Box<str>>,
    /// Control topics that the client subscribes to.
    control: BTreeSet<Box<str>>,
    /// QoS 2 messages that were answered here.
    local_qos2: BTreeSet<u16>,
    /// The client as a consumer, once the upstream has let it in.
    consumer: Option<Box<Consumer>>,
    /// Messages that it takes at a time.
    receive_maximum: u16,
    /// How long its session outlives the connection, in seconds.
    session_expiry: u32,
    /// Messages that are not booked yet.
    arrivals: Arrivals,
    unbooked: u32,
    /// Closed while a queue that it feeds is over its bound.
    gate: Arc<Gate>,
    /// Messages that may pass before other publishers have their turn.
    grant: u32,
    timer: Pin<Box<Sleep>>,
    timer_at: Millis,
    ending: Ending,
}

/// What becomes of a packet.
enum Fate {
    /// It goes on as it came.
    Pass,
    /// This goes on in its place, perhaps nothing.
    Replace(Vec<u8>),
    /// It goes on, and nothing after it counts.
    Last,
}

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Not in sight.
    No,
    /// The client says nothing more: what it sent goes to the upstream, until this moment at the latest, then the pair ends.
    ClientLeft(Millis),
    /// The upstream is lost, by this loss of its address; the client is told at this moment at the earliest.
    UpstreamLost { loss: u64, at: Millis },
    /// Only what is there is still written, until this moment at the latest.
    Closing(Millis),
    /// Nothing more can be done.
    Over,
}

/// Memory of the thread, lent to whichever pair is polled.
pub(super) struct Scratch {
    /// A pair has it now; true for the next one only after a panic.
    lent: bool,
    read: Box<[u8]>,
    to_client: Vec<u8>,
    to_upstream: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

impl Scratch {
    fn new() -> Self {
        Self { lent: false, read: vec![0; READ_SIZE].into(), to_client: Vec::new(), to_upstream: Vec::new() }
    }
}

impl Pair {
    pub(super) fn new(proxy: Arc<Proxy>, made: Made, connect: &Connect) -> Self {
        let now = proxy.clock.now();
        let inbox = Arc::new(Inbox::new(proxy.sessions.next()));
        let gate = Arc::new(Gate::new(inbox.number, Arc::clone(&made.publisher)));
        proxy.sessions.enter(&made.publisher, &inbox);
        proxy.stats.connects.add(1);
        tracing::debug!(client = &*made.client_id, peer = %made.client.0.peer(), "connected");
        let mut pair = Self {
            client: Half::new(made.client.0, made.client.1),
            upstream: Half::new(made.upstream.stream, made.upstream.input),
            address: made.upstream.address,
            client_id: made.client_id,
            assigned: made.assigned,
            publisher: made.publisher,
            inbox,
            hooks: made.hooks,
            encoder: made.encoder,
            accepted: false,
            told_rate: 0,
            held: None,
            held_since: None,
            deaf_since: 0,
            spoke: now,
            keep_alive: u64::from(connect.keep_alive) * 1000,
            own_pings: 0,
            aliases: BTreeMap::new(),
            alias_maximum: 0,
            aliases_taken: connect.topic_alias_maximum,
            largest: u32::MAX,
            subscribing: Waiting::default(),
            unsubscribing: Waiting::default(),
            control: BTreeSet::new(),
            local_qos2: BTreeSet::new(),
            consumer: None,
            session_expiry: connect.session_expiry,
            receive_maximum: connect.receive_maximum,
            arrivals: Vec::new(),
            unbooked: 0,
            gate,
            grant: 0,
            timer: Pin::from(Box::new(tokio::time::sleep(Duration::from_secs(3600)))),
            timer_at: 0,
            ending: Ending::No,
            proxy,
        };
        pair.arm(now + IDLE_TIMER);
        pair
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.lent {
                *scratch = Scratch::new();
            }
            scratch.lent = true;
            self.client.borrow_output(&mut scratch.to_client);
            self.upstream.borrow_output(&mut scratch.to_upstream);
            let poll = self.poll_with(cx, scratch);
            self.client.return_output(&mut scratch.to_client);
            self.upstream.return_output(&mut scratch.to_upstream);
            scratch.lent = false;
            poll
        })
    }

    pub(super) fn panicked(&mut self) -> Poll<()> {
        if self.proxy.lines.panicked.allows(self.proxy.clock.now()) {
            tracing::error!(client = &*self.client_id, "a panic ended the connection");
        }
        self.ending = Ending::Over;
        Poll::Ready(())
    }

    fn poll_with(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()> {
        loop {
            let now = self.proxy.clock.now();
            self.check_timer(cx, now);
            if self.proxy.draining() {
                self.close(ReasonCode::SERVER_SHUTTING_DOWN, None, now);
            }
            // the upstream first: its CONNACK says what the client may do
            let mut progress = self.poll_upstream(cx, scratch, now);
            self.deliver_notes(cx);
            progress |= self.poll_client(cx, scratch, now);
            progress |= self.upstream.poll_output(cx, &self.proxy.counts.bytes_sent);
            progress |= self.client.poll_output(cx, &self.proxy.stats.bytes_sent);
            self.settle_consumer(now);
            self.look_for_the_end(now);
            match self.ending {
                Ending::Over => return Poll::Ready(()),
                Ending::Closing(_) if self.client.is_flushed() && self.upstream.is_flushed() => {
                    return Poll::Ready(());
                }
                Ending::ClientLeft(_)
                    if self.held.is_none() && !self.client.ready && self.upstream.is_flushed() =>
                {
                    return Poll::Ready(());
                }
                _ if progress => {}
                _ => return Poll::Pending,
            }
        }
    }

    /// Sees whether one of the sides is gone.
    fn look_for_the_end(&mut self, now: Millis) {
        if !matches!(self.ending, Ending::No | Ending::ClientLeft(_)) {
            return;
        }
        // one that takes nothing more may still have said why: what it sent is read to the end
        if self.upstream.ended && !self.upstream.ready {
            self.lose_upstream(now);
        } else if self.client.broken || self.client.ended {
            self.client_leaves(now);
        }
    }

    /// Messages of the gateway itself for the client.
    fn deliver_notes(&mut self, cx: &mut Context<'_>) {
        // nothing may follow a DISCONNECT
        let over = matches!(self.ending, Ending::Closing(_) | Ending::Over);
        let room = self.accepted && !over && self.client.pending_in_all() < ANSWERS;
        for note in self.inbox.take(cx.waker(), room) {
            let publish = Outgoing {
                dup: false,
                qos: QoS::AtMostOnce,
                retain: note.retain,
                topic: note.topic.as_bytes(),
                packet_id: 0,
                topic_alias: None,
                message_expiry: None,
                subscription_ids: &[],
                properties: &note.properties,
                payload: &note.payload,
            };
            if self.encoder.publish(self.client.answers(), &publish) {
                self.proxy.stats.delivered.add(1);
            }
        }
    }

    fn check_timer(&mut self, cx: &mut Context<'_>, now: Millis) {
        while std::future::Future::poll(self.timer.as_mut(), cx).is_ready() {
            self.timer_at = 0;
            match self.ending {
                Ending::Closing(until) if now >= until => {
                    self.ending = Ending::Over;
                    return;
                }
                Ending::Closing(until) => self.arm(until),
                Ending::ClientLeft(until) if now >= until => self.give_up_waiting(now),
                Ending::ClientLeft(until) => self.arm(until),
                Ending::UpstreamLost { loss, at } if now >= at => self.tell_of_loss(loss, now),
                Ending::UpstreamLost { at, .. } => self.arm(at),
                _ => self.arm(now + IDLE_TIMER),
            }
        }
    }

    /// Sets the timer to a moment, if that is earlier than what it is set to.
    fn arm(&mut self, at: Millis) {
        if self.timer_at == 0 || at < self.timer_at {
            self.timer_at = at;
            self.timer.as_mut().reset(self.proxy.clock.instant(at).into());
        }
    }

    /// Ends the pair for a reason of ours: tells the client, writes what is there, then closes both sides.
    fn close(&mut self, reason: ReasonCode, text: Option<&str>, now: Millis) {
        if matches!(self.ending, Ending::Closing(_) | Ending::Over) {
            return;
        }
        if self.accepted {
            self.encoder.disconnect(self.client.answers(), reason, text, None);
        }
        let client = &*self.client_id;
        tracing::debug!(client, reason = format_args!("0x{:02x}", reason.0), text, "closing");
        self.finish(now);
    }

    /// Writes what is there, then closes both sides.
    fn finish(&mut self, now: Millis) {
        self.ending = Ending::Closing(now + LINGER);
        // what is to be acknowledged comes again
        let lost = self.held.take().map_or(0, |held| held.publishes() - held.acknowledged);
        self.proxy.stats.dropped_left.add(lost as u64);
        self.timer_at = 0;
        self.arm(now + LINGER);
    }

    /// Gives up what is shared; the streams that are to be parted from with care.
    pub(super) fn end(mut self) -> (Option<Stream>, Option<Stream>) {
        let hooks = &mut self.hooks;
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hooks.on_disconnect()));
        for filter in &self.control {
            self.proxy.control.unsubscribe(filter, &self.inbox);
        }
        self.gate.leave();
        self.end_consuming(self.proxy.clock.now());
        self.proxy.sessions.leave(&self.inbox);
        self.proxy.stats.disconnects.add(1);
        tracing::debug!(client = &*self.client_id, "disconnected");
        let told = matches!(self.ending, Ending::Closing(_)) && !self.client.broken;
        (
            told.then_some(self.client.stream),
            (!self.upstream.broken && !self.upstream.ended).then_some(self.upstream.stream),
        )
    }
}
