//! The broker: sessions, queues, topic tree, retained messages, wills, groups.
//!
//! Locks are taken in this order, each briefly: a session's state, registry, retained, groups, a group's members,
//! the queues that hold publishers, a queue, tree, gates, a gate's place, a queue's line.

pub mod clock;
pub(crate) mod connection;
mod dispatch;
mod group;
pub(crate) mod held;
mod inflight;
mod lifecycle;
pub(crate) mod lines;
mod measure;
mod message;
mod own;
mod queue;
pub(crate) mod refusals;
mod retained;
mod service;
mod session;
mod spine;
pub(crate) mod stats;
mod subscribe;
mod sys;
mod timers;
pub(crate) mod topic;
pub(crate) mod tree;
mod window;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tidegate_plugin::{Host, Tick};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use self::clock::{Clock, Millis, moment};
use self::group::Group;
use self::lines::Lines;
use self::message::{BatchWriter, Message, Parts};
use self::own::Own;
use self::queue::{Limits, OVERSHOOT};
use self::refusals::Refusals;
use self::retained::Retained;
use self::session::Registry;
use self::spine::Spine;
pub use self::spine::SpineError;
pub use self::stats::Stats;
use self::timers::Timers;
use self::tree::{Subscribed as _, Subscription, Tree};
use crate::chain::Chain;
use crate::config::Settings;
use crate::hold::{Gate, Gates, Released};
use crate::ledger::Ledger;

pub use self::connection::serve;

/// Retained messages looked at in one go when expired ones are sought.
const SWEEP: usize = 1024;
/// How often in a second queues that hold publishers go on with their lines.
const TURNS: u32 = 10;

/// Everything that connections share.
pub struct Broker {
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    /// What was counted so far.
    pub stats: Stats,
    /// What was refused, and by whom.
    pub(crate) refusals: Refusals,
    lines: Lines,
    pub(crate) chain: Chain,
    spine: Spine,
    tree: RwLock<Tree>,
    /// Changes whenever the tree does.
    generation: AtomicU64,
    retained: RwLock<Retained>,
    ordinal: AtomicU64,
    connections: AtomicU64,
    session_numbers: AtomicU64,
    registry: Registry,
    gates: Gates,
    ledger: Ledger,
    /// Bytes that all held publishers wait with.
    held_bytes: Arc<AtomicUsize>,
    groups: Mutex<HashMap<Arc<str>, Arc<Group>>>,
    /// Its task waits for it without keeping the broker.
    timers: Arc<Timers>,
    /// Subscriptions whose queues hold publishers, to be checked for progress.
    watched: Mutex<HashMap<(bool, usize), Arc<Subscription>>>,
    /// Whether publishers wait for their turn with one of them.
    holding: AtomicBool,
    /// How often a queue began to hold publishers.
    holds_begun: AtomicU64,
    draining: AtomicBool,
    drained: Notify,
    own: Own,
}

impl Broker {
    /// Starts the spine, its dispatchers and the housekeeping. Must be called within a tokio runtime.
    pub fn start(settings: Settings, chain: Chain) -> Result<Arc<Self>, SpineError> {
        let shards = std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 16);
        // Publishers learn late that a queue is over its bound: about twice what fits into the spine passes before all
        // are held, and a tiny message weighs five times as much in a queue as its frame in the spine. A queue takes that
        // without dropping.
        let in_flight = (settings.queue.max_bytes / (4 * OVERSHOOT * shards)).max(64 * 1024);
        let (spine, outlets) = Spine::start(shards, in_flight)?;
        let (own, messages) = Own::new();
        let broker = Arc::new(Self {
            limits: Limits { measured: chain.ticks(), ..Limits::from(&settings.queue) },
            settings,
            clock: Clock::start(),
            stats: Stats::default(),
            refusals: Refusals::default(),
            lines: Lines::default(),
            chain,
            spine,
            tree: RwLock::default(),
            generation: AtomicU64::new(1),
            retained: RwLock::default(),
            ordinal: AtomicU64::new(1),
            connections: AtomicU64::new(1),
            session_numbers: AtomicU64::new(1),
            registry: Registry::default(),
            gates: Gates::default(),
            ledger: Ledger::default(),
            held_bytes: Arc::default(),
            groups: Mutex::default(),
            timers: Arc::default(),
            watched: Mutex::default(),
            holding: AtomicBool::new(false),
            holds_begun: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            drained: Notify::new(),
            own,
        });
        for (shard, outlet) in outlets.into_iter().enumerate() {
            let broker = Arc::downgrade(&broker);
            let thread = std::thread::Builder::new().name(format!("dispatch-{shard}"));
            // fails only when the system has no thread to give, before anybody is served
            thread.spawn(move || dispatch::run(broker, outlet)).map_err(SpineError::Thread)?;
        }
        let weak = Arc::downgrade(&broker);
        let host: Weak<dyn Host> = weak;
        broker.chain.start(&host);
        broker.start_housekeeping(messages);
        Ok(broker)
    }

    /// Stops serving: every connection is told to leave.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.drained.notify_waiters();
        let sessions: Vec<_> = self.registry.sessions.lock().values().cloned().collect();
        for session in sessions {
            // once we have had the lock, its connection has seen the flag or waits to be woken
            drop(session.state.lock());
            session.queue.nudge();
        }
    }

    /// Whether it stops.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Returns when it stops.
    async fn drained(&self) {
        // made before the flag is looked at, so that no notice is missed
        let notice = self.drained.notified();
        if !self.draining() {
            notice.await;
        }
    }

    /// Connected clients, sessions, subscriptions, retained messages and their bytes, messages waiting.
    pub fn levels(&self) -> Levels {
        // read first, so that it is never ahead of the connects
        let disconnects = self.stats.disconnects.get();
        let sessions: Vec<_> = self.registry.sessions.lock().values().cloned().collect();
        let retained = self.retained.read();
        let groups: Vec<_> = self.groups.lock().values().cloned().collect();
        // not in the expression below: the tree is locked after queues, never around them
        let subscriptions = self.tree.read().len();
        Levels {
            connected: self.stats.connects.get().saturating_sub(disconnects),
            sessions: sessions.len(),
            subscriptions,
            retained: retained.len(),
            retained_bytes: retained.bytes(),
            waiting: sessions.iter().map(|session| session.queue.depth()).sum::<usize>()
                + groups.iter().map(|group| group.queue.depth()).sum::<usize>(),
        }
    }

    /// The next moment on the scale on which messages and subscriptions are ordered: a subscription gets
    /// the messages that were accepted after it.
    fn next_ordinal(&self) -> u64 {
        self.ordinal.fetch_add(1, Ordering::AcqRel)
    }

    fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Groups are counted with connections, far from the numbers of sessions.
    fn next_group(&self) -> u64 {
        1 << 63 | self.next_connection()
    }

    /// Sessions are counted on their own: their numbers spread publishers over the spine's shards.
    fn next_session(&self) -> u64 {
        self.session_numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Retains a message if it is to be, and returns the moment at which it was accepted.
    ///
    /// Both happen under the store's lock, and so does subscribing: a new subscription sees a retained message
    /// either in the store or live, never twice and never not at all.
    fn retain(&self, publisher: u64, parts: Parts<'_>) -> u64 {
        let mut store = self.retained.write();
        let ordinal = self.next_ordinal();
        let message = Message::new(publisher, &Parts { ordinal, ..parts });
        let queue = &self.settings.queue;
        if store.store(Arc::new(message), queue.max_retained, queue.max_retained_bytes).is_err() {
            self.stats.retained_refused.add(1);
            if self.lines.not_retained.allows(self.clock.now()) {
                tracing::warn!(
                    topic = parts.topic,
                    "not retained: the store is full (queue.max_retained, queue.max_retained_bytes)"
                );
            }
        }
        ordinal
    }

    /// Forgets retained messages that have expired, a slice at a time: others need the store as well.
    async fn sweep_retained(&self, now: Millis) {
        let mut at = None;
        loop {
            at = self.retained.write().sweep(at, SWEEP, now);
            if at.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Publishes a message of the broker itself or a will, in order with what `publisher` published before.
    fn publish_own(&self, publisher: u64, parts: Parts<'_>) {
        let ordinal = if parts.retain { self.retain(publisher, parts) } else { self.next_ordinal() };
        let mut batch = BatchWriter::default();
        batch.start(publisher);
        batch.push(&Parts { ordinal, ..parts }, |_| {});
        self.own.send(publisher, batch.finish());
    }

    /// Looks after a queue that holds publishers, and may just have begun to.
    fn watch_progress(&self, subscription: &Arc<Subscription>, began: bool) {
        let mut watched = self.watched.lock();
        watched.entry(subscription.key()).or_insert_with(|| Arc::clone(subscription));
        if began {
            self.holding.store(true, Ordering::Release);
            self.holds_begun.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How often a queue has begun to hold publishers, while one may still do so.
    fn holds_begun(&self) -> Option<u64> {
        self.holding.load(Ordering::Acquire).then(|| self.holds_begun.load(Ordering::Acquire))
    }

    /// Closes the gate of a publisher that is about to send to a topic, if a queue behind it holds its publishers.
    fn hold_newcomer(&self, topic: &str, gate: &Arc<Gate>, now: Millis) -> bool {
        let mut targets: Vec<Arc<Subscription>> = Vec::new();
        self.tree.read().each_match(topic, |subscription| targets.push(Arc::clone(subscription)));
        let mut held = false;
        for target in targets.iter().filter(|target| !target.leaves_out(gate.number)) {
            held |= target.queue().hold_newcomer(gate.number, gate, now, &self.limits);
        }
        self.stats.holds.add(u64::from(held));
        held
    }

    /// Lets publishers go whose turn it is, where those before them had nothing to send.
    fn go_on_with_lines(&self, now: Millis) {
        let go_on = |subscription: &Arc<Subscription>| subscription.queue().go_on(now, &self.limits);
        let released: Vec<_> = self.watched.lock().values().map(go_on).collect();
        released.into_iter().for_each(Released::open);
    }

    fn check_progress(&self, now: Millis) {
        let mut watched = self.watched.lock();
        let mut holding = false;
        watched.retain(|_, subscription| {
            let queue = subscription.queue();
            if queue.check_progress(now, &self.limits) {
                self.stats.stalled.add(1);
                if self.lines.stalled.allows(now) {
                    let timeout = self.settings.queue.progress_timeout;
                    tracing::warn!(
                        consumer = subscription.consumer(),
                        "no progress for {timeout} s: it no longer holds its publishers"
                    );
                }
            }
            holding |= queue.holds_lasting();
            queue.holds()
        });
        self.holding.store(holding, Ordering::Release);
    }

    /// Turns the control loop while the broker lives, if a plugin wants it.
    async fn run_control_loop(broker: Weak<Self>, period: Duration) {
        let mut turn = tokio::time::interval(period);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            let Some(broker) = broker.upgrade() else { return };
            // thousands of queues and publishers take their time
            let turned = tokio::task::spawn_blocking(move || broker.turn_control_loop());
            if turned.await.is_err() {
                tracing::error!("a turn of the control loop failed");
            }
        }
    }

    fn turn_control_loop(&self) {
        let (now, wall_ms) = (moment(self.clock.now()), clock::wall());
        let queues = self.ledger.read(now);
        self.chain.tick(&Tick { now, wall_ms, queues: &queues, host: self });
    }

    fn start_housekeeping(self: &Arc<Self>, messages: own::Messages) {
        tokio::spawn(own::run(Arc::downgrade(self), messages));
        tokio::spawn(lifecycle::run_timers(Arc::downgrade(self)));
        tokio::spawn(sys::run(Arc::downgrade(self)));
        if self.limits.measured {
            let period = Duration::from_millis(self.settings.overload.period_ms);
            tokio::spawn(Self::run_control_loop(Arc::downgrade(self), period));
        }
        let broker = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut turn = tokio::time::interval(Duration::from_secs(1) / TURNS);
            for turns in 0_u64.. {
                turn.tick().await;
                let Some(broker) = broker.upgrade() else { return };
                let now = broker.clock.now();
                let (tick, part) = (turns / u64::from(TURNS), turns % u64::from(TURNS));
                if part > 0 {
                    broker.go_on_with_lines(now);
                    continue;
                }
                broker.check_progress(now);
                broker.lines.report();
                if tick % 60 == 59 {
                    broker.sweep_retained(now).await;
                }
            }
        });
    }
}

impl Drop for Broker {
    /// Sessions and groups know their subscriptions and these know them: without this they would stay in memory.
    fn drop(&mut self) {
        let sessions = std::mem::take(&mut *self.registry.sessions.lock());
        for session in sessions.into_values() {
            let state = std::mem::take(&mut *session.state.lock());
            for (filter, subscription) in &state.subscriptions {
                self.forget(&session, filter, subscription);
            }
            session.queue.clear();
        }
    }
}

/// How much there is of everything now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// Connected clients.
    pub connected: u64,
    /// Sessions, those of absent clients included.
    pub sessions: usize,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Retained messages.
    pub retained: usize,
    /// Bytes of retained messages.
    pub retained_bytes: usize,
    /// Messages waiting in queues.
    pub waiting: usize,
}

/// For the micro-benches, which time these parts alone: not a part of the interface, they change without notice.
#[doc(hidden)]
pub mod internals {
    pub use super::message::{Message, Parts};
    pub use super::queue::{Entry, HoldPolicy, Limits, Queue};
    pub use super::session::Session;
    pub use super::tree::{Subscription, Target, Tree};
}
