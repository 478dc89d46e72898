//! What all devices and consumers of a run share.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_control::overload::Phase;
use tokio::sync::Semaphore;
use tokio::sync::watch;

use crate::acks::Acks;
use crate::check::{Resent, Sent, Stream};
use crate::clock::{Clock, Nanos, SECOND};
use crate::codec::reasons::{self, Disconnect};
use crate::codec::{Connack, Connect, Malformed, Packet, Version};
use crate::gaps::Gaps;
use crate::link::{ConnectError, Limits, Link};
use crate::scaler::Told;
use crate::scenario::Scenario;
use crate::stats::{Counts, Latencies};
use crate::topic::filter_matches;
use crate::transport::Route;

/// What a client is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Not be connected.
    Away,
    /// Be connected; devices send nothing yet.
    Ready,
    /// Be connected; devices send.
    Active,
    /// Send nothing new, wait for acknowledgements.
    Finish,
    /// Leave for good.
    Quit,
}

/// What the run wants of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// What to do.
    pub stage: Stage,
    /// Grows when the connection is to be lost.
    pub drops: u32,
}

/// The wishes of one client, as it sees them.
pub type Wishes = watch::Receiver<Wish>;

/// What one device sends to one topic.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The class of its device.
    pub class: u16,
    /// Its topic.
    pub topic: String,
    /// The streams that should get it, in order.
    pub streams: Vec<u32>,
    /// How many of them belong to which kind of consumers.
    pub owed: Vec<(u16, u32)>,
}

impl Flow {
    /// Whether this stream should get it.
    pub fn is_for(&self, stream: usize) -> bool {
        u32::try_from(stream).is_ok_and(|stream| self.streams.binary_search(&stream).is_ok())
    }
}

/// What one kind of consumers is owed and has got.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Deliveries owed for accepted messages.
    pub owed: AtomicU64,
    /// First deliveries.
    pub done: AtomicU64,
    /// Consumers that work on a message now.
    pub busy: AtomicU64,
}

impl Ledger {
    /// What waits; a message may be delivered before its acknowledgement has come back.
    pub fn waiting(&self) -> u64 {
        self.owed.load(Relaxed).saturating_sub(self.done.load(Relaxed))
    }

    /// What waits and is not worked on.
    pub fn queued(&self) -> u64 {
        self.waiting().saturating_sub(self.busy.load(Relaxed))
    }
}

/// Who should get each message once.
pub struct Recipient {
    /// What it has got.
    pub stream: Mutex<Stream>,
    /// The kind of consumers.
    pub set: u16,
    /// Its filter, without group.
    pub filter: String,
    /// Whether it was there all the time.
    pub always_there: AtomicBool,
    /// Whether it is meant to be there now.
    pub wanted: AtomicBool,
    /// Whether the broker keeps messages for it while nobody is connected.
    pub persistent: bool,
    /// Consumers of it that are subscribed now.
    pub members: AtomicU32,
}

impl Recipient {
    /// It is meant to be there now, or not to be.
    pub fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Relaxed);
        self.always_there.fetch_and(wanted, Relaxed);
    }
}

/// What all devices and consumers share.
pub struct World {
    /// The time of the run.
    pub clock: Clock,
    /// The number of the run, in every payload.
    pub run: u32,
    /// What is run.
    pub scenario: Scenario,
    /// How devices connect.
    pub device_route: Route,
    /// How consumers connect.
    pub consumer_route: Route,
    /// What is counted.
    pub counts: Counts,
    /// What is measured.
    pub latencies: Latencies,
    /// From the acknowledgement until a consumer begins.
    pub waits: Latencies,
    /// The time between messages of devices.
    pub gaps: Gaps,
    /// When messages of each flow were acknowledged.
    pub acks: Vec<Mutex<Acks>>,
    /// What may be on its way.
    pub sent: Sent,
    /// What was sent more than once.
    pub resent: Resent,
    /// All flows.
    pub flows: Vec<Flow>,
    /// All streams.
    pub recipients: Vec<Recipient>,
    /// How many of them nobody is subscribed for, so that nothing is owed to them.
    absent: AtomicU32,
    /// What consumers of each kind wait for.
    pub ledgers: Vec<Ledger>,
    /// When the measured part began; the far future before.
    pub measured_from: AtomicU64,
    /// When it ends; the far future before it began.
    pub measured_until: AtomicU64,
    /// Whether consumers take what is left without processing it.
    pub draining: AtomicBool,
    /// Whether everything is counted: who leaves now leaves messages to others, and they are not to be counted twice.
    pub over: AtomicBool,
    /// The last thing that went wrong with a connection.
    pub trouble: Mutex<Option<String>>,
    /// By reason code: how often the target said why it ends a connection, and its words the last time.
    pub farewells: Mutex<BTreeMap<u8, (u64, String)>>,
    /// What makes going on pointless.
    pub fatal: Mutex<Option<String>>,
    /// The first subscription that was granted less than it asked for.
    pub downgrade: Mutex<Option<String>>,
    /// What the gateway said last that it is doing.
    pub phase: Mutex<Phase>,
    /// What came of telling the target about the auto-scaler.
    pub told: Mutex<Told>,
    handshakes: Semaphore,
    next_handshake: AtomicU64,
}

impl World {
    /// Prepares a run.
    pub fn new(clock: Clock, run: u32, scenario: Scenario, devices: Route, consumers: Route) -> Self {
        let recipients = recipients(&scenario);
        let flows = flows(&scenario, &recipients);
        Self {
            counts: Counts::default(),
            latencies: Latencies::new(scenario.classes.len()),
            waits: Latencies::new(scenario.classes.len()),
            gaps: Gaps::new(scenario.duration),
            acks: flows.iter().map(|_| Mutex::new(Acks::new(scenario.duration))).collect(),
            sent: Sent::new(flows.len()),
            resent: Resent::default(),
            flows,
            absent: AtomicU32::new(recipients.iter().filter(|one| !one.persistent).count() as u32),
            recipients,
            ledgers: scenario.consumers.iter().map(|_| Ledger::default()).collect(),
            measured_from: AtomicU64::new(Nanos::MAX),
            measured_until: AtomicU64::new(Nanos::MAX),
            draining: AtomicBool::new(false),
            over: AtomicBool::new(false),
            trouble: Mutex::new(None),
            farewells: Mutex::default(),
            fatal: Mutex::new(None),
            downgrade: Mutex::new(None),
            phase: Mutex::new(Phase::Idle),
            told: Mutex::default(),
            handshakes: Semaphore::new(scenario.connect.at_once as usize),
            next_handshake: AtomicU64::new(0),
            clock,
            run,
            scenario,
            device_route: devices,
            consumer_route: consumers,
        }
    }

    /// Connects when it is this client's turn.
    pub async fn open(
        &self,
        route: &Route,
        client: &str,
        wants: &Wants,
    ) -> Result<(Link, Connack), ConnectError> {
        // The semaphore is never closed.
        let _turn = self.handshakes.acquire().await;
        self.wait_for_turn().await;
        let settings = &self.scenario.connect;
        let login = settings.login.as_ref().map(|[user, password]| (user.as_str(), password.as_str()));
        let connect = Connect {
            version: wants.version,
            client,
            login,
            keep_alive: settings.keep_alive,
            persistent: wants.persistent,
            receive_maximum: wants.receive_maximum,
        };
        let limits = Limits {
            timeout: Duration::from_secs_f64(settings.timeout),
            chunk: wants.chunk,
            receive_buffer: wants.receive_buffer,
        };
        let opened = Link::open(route, &connect, &limits).await;
        match &opened {
            Ok(_) => self.counts.connects.fetch_add(1, Relaxed),
            Err(error) => {
                *self.trouble.lock() = Some(error.to_string());
                self.counts.failed_connects.fetch_add(1, Relaxed)
            }
        };
        opened
    }

    /// Notes that a connection ended though nobody here wanted it.
    pub fn lost(&self, client: &str, error: &io::Error) {
        self.counts.disconnects.fetch_add(1, Relaxed);
        let words = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the target closed the connection".to_owned(),
            // What it had not read then makes the kernel say so less politely.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                format!("the target closed the connection ({error})")
            }
            _ => error.to_string(),
        };
        *self.trouble.lock() = Some(format!("{client}: {words}"));
    }

    /// Takes in the target's DISCONNECT; what it says is why the connection is lost.
    pub fn dismissed(&self, packet: &Packet<'_>, version: Version) -> io::Error {
        if version == Version::V311 {
            return io::Error::other(
                "the target ended the connection with a packet that only clients may send",
            );
        }
        let Ok(Disconnect { code, words }) = reasons::disconnect(packet) else {
            return io::Error::other(Malformed);
        };
        let words = words.unwrap_or_default();
        let more = if words.is_empty() { String::new() } else { format!(": {words}") };
        let mut farewells = self.farewells.lock();
        let (count, last) = farewells.entry(code).or_default();
        *count += 1;
        *last = words;
        let reason = reasons::in_words(version, code);
        io::Error::other(format!("the target ended the connection with reason {reason}{more}"))
    }

    /// The measured part; empty before it began.
    pub fn measured(&self) -> Range<Nanos> {
        self.measured_from.load(Relaxed)..self.measured_until.load(Relaxed)
    }

    /// The share of the duration that has passed; 0 before the measured part.
    pub fn share(&self, now: Nanos) -> f64 {
        let from = self.measured_from.load(Relaxed);
        now.saturating_sub(from) as f64 / SECOND as f64 / self.scenario.duration
    }

    /// The time at which this share of the duration has passed; the far future while that is unknown.
    pub fn time_of(&self, share: f64) -> Nanos {
        let from = self.measured_from.load(Relaxed);
        from.saturating_add((share * self.scenario.duration * SECOND as f64) as Nanos)
    }

    /// A consumer has subscribed for a stream.
    pub fn join(&self, recipient: usize) {
        let recipient = &self.recipients[recipient];
        if recipient.members.fetch_add(1, Relaxed) == 0 && !recipient.persistent {
            self.absent.fetch_sub(1, Relaxed);
        }
    }

    /// A consumer is not subscribed any more, or only its session is: if it was the last one and there is none, nothing is
    /// owed to the stream until somebody comes back.
    pub fn leave(&self, recipient: usize, unsubscribed: bool) {
        let recipient = &self.recipients[recipient];
        if recipient.members.fetch_sub(1, Relaxed) > 1 {
            return;
        }
        if !recipient.persistent {
            self.absent.fetch_add(1, Relaxed);
        }
        if (unsubscribed || !recipient.persistent) && !self.over.load(Relaxed) {
            recipient.always_there.store(false, Relaxed);
            recipient.stream.lock().be_away();
        }
    }

    /// A message of a flow was accepted: it is owed to those who are there.
    pub fn owe(&self, flow: &Flow) {
        let add = |set: u16, count: u32| {
            self.ledgers[usize::from(set)].owed.fetch_add(u64::from(count), Relaxed);
        };
        if self.absent.load(Relaxed) == 0 {
            return flow.owed.iter().for_each(|(set, count)| add(*set, *count));
        }
        let there = |one: &&Recipient| one.persistent || one.members.load(Relaxed) > 0;
        let streams = flow.streams.iter().map(|stream| &self.recipients[*stream as usize]);
        streams.filter(there).for_each(|recipient| add(recipient.set, 1));
    }

    /// What waits for all consumers together.
    pub fn waiting(&self) -> u64 {
        self.ledgers.iter().map(Ledger::waiting).sum()
    }

    async fn wait_for_turn(&self) {
        let rate = self.scenario.connect.rate;
        if rate > 0.0 {
            let step = (SECOND as f64 / rate) as Nanos;
            let now = self.clock.now();
            let book = |next: Nanos| Some(next.max(now) + step);
            let turn = self.next_handshake.fetch_update(Relaxed, Relaxed, book).unwrap_or_else(|next| next);
            self.clock.sleep_until(turn.max(now)).await;
        }
    }
}

/// What a client asks for when it connects.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    /// The protocol.
    pub version: Version,
    /// Whether the session outlives the connection.
    pub persistent: bool,
    /// Messages in flight towards it.
    pub receive_maximum: Option<u16>,
    /// Bytes read at most at a time.
    pub chunk: usize,
    /// The kernel's receive buffer.
    pub receive_buffer: Option<u32>,
}

/// A world that tasks share.
pub type Shared = Arc<World>;

fn recipients(scenario: &Scenario) -> Vec<Recipient> {
    let mut all = Vec::new();
    for (set, consumers) in scenario.consumers.iter().enumerate() {
        let streams = if consumers.group.is_some() { 1 } else { consumers.instances };
        for index in 0..streams {
            all.push(Recipient {
                stream: Mutex::default(),
                set: set as u16,
                filter: consumers.filter_of(index),
                always_there: AtomicBool::new(true),
                wanted: AtomicBool::new(true),
                persistent: consumers.persistent,
                members: AtomicU32::new(0),
            });
        }
    }
    all
}

fn flows(scenario: &Scenario, recipients: &[Recipient]) -> Vec<Flow> {
    // Most filters of a scenario with thousands of consumers have no wildcard.
    let mut exact: HashMap<&str, Vec<u32>> = HashMap::new();
    let mut wild: Vec<u32> = Vec::new();
    for (index, recipient) in recipients.iter().enumerate() {
        match recipient.filter.contains(['+', '#']) {
            true => wild.push(index as u32),
            false => exact.entry(&recipient.filter).or_default().push(index as u32),
        }
    }
    let mut flows = Vec::new();
    for (class, settings) in scenario.classes.iter().enumerate() {
        for device in 0..settings.devices {
            for turn in 0..settings.topics {
                let topic = settings.topic_of(device, turn);
                let mut streams = exact.get(topic.as_str()).cloned().unwrap_or_default();
                let is_match = |index: &&u32| filter_matches(&recipients[**index as usize].filter, &topic);
                streams.extend(wild.iter().filter(is_match));
                streams.sort_unstable();
                let owed = owed(&streams, recipients);
                flows.push(Flow { class: class as u16, topic, streams, owed });
            }
        }
    }
    flows
}

fn owed(streams: &[u32], recipients: &[Recipient]) -> Vec<(u16, u32)> {
    let mut owed: Vec<(u16, u32)> = Vec::new();
    for stream in streams {
        let set = recipients[*stream as usize].set;
        match owed.iter_mut().find(|(known, _)| *known == set) {
            Some((_, count)) => *count += 1,
            None => owed.push((set, 1)),
        }
    }
    owed
}
