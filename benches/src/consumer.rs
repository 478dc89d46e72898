//! A consumer: takes all at once, or processes one message at a time and acknowledges it afterwards.

mod intake;
mod worker;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_control::random::Seeded;

use self::worker::Worker;
pub(crate) use self::worker::speed;
use crate::backoff;
use crate::check::Order;
use crate::clock::{Nanos, SECOND};
use crate::codec::{self, Version};
use crate::lasting::Lasting;
use crate::link::Link;
use crate::scenario::Consumers;
use crate::stats::Took;
use crate::world::{Shared, Stage, Wants, Wishes};

/// Bytes read at a time by a consumer that takes all at once.
const LARGE: usize = 256 * 1024;
/// Bytes read at a time by one that processes: what it has read waits in it, hence few.
const SMALL: usize = 1024;
/// Messages that may wait inside a consumer that processes before it stops to read.
const AHEAD: usize = 2;
/// How long a consumer that leaves works on what it has.
const PARTING: Nanos = 2 * SECOND;

/// A message that was received.
#[derive(Debug, Clone, Copy)]
struct Item {
    flow: u32,
    number: u64,
    intended: Nanos,
    qos: u8,
    id: u16,
    /// Not a message of this run: to be acknowledged, not to be counted.
    foreign: bool,
    /// When it was read, and later when it was begun with.
    taken: Nanos,
    /// The broker says that it has sent it before, in the session that this connection goes on with.
    again: bool,
}

/// A consumer.
pub struct Consumer {
    world: Shared,
    set: usize,
    settings: Consumers,
    recipient: usize,
    version: Version,
    client: String,
    subscription: String,
    wishes: Wishes,
    order: Order,
    worker: Option<Worker>,
    /// QoS 2: packet identifiers that were received and not released.
    unreleased: HashSet<u16>,
    /// QoS 1 in a group: by packet identifier, what was acknowledged on this connection, perhaps without the broker's knowledge.
    unsettled: HashMap<u16, (u32, u64)>,
    number: usize,
    random: Seeded,
    /// Connections before this one.
    connections: u64,
    lasting: Lasting,
    /// Whether it works on a message.
    busy: bool,
    /// Whether the scenario ended its last connection.
    dropped: bool,
    /// Whether it was granted less than it asked for.
    downgraded: bool,
    // Buffers, kept for their memory.
    items: Vec<Item>,
    latencies: Vec<Took>,
    waits: Vec<Took>,
    acks: Vec<u8>,
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Subscribing,
    Subscribed,
    Leaving { until: Nanos },
    Unsubscribed { until: Nanos },
}

enum End {
    Wished,
    Dropped,
    Lost(io::Error),
}

impl Consumer {
    /// A consumer of a kind; `recipient` is the stream that it belongs to, `number` counts all consumers.
    pub fn new(
        world: &Shared,
        set: usize,
        index: u32,
        recipient: usize,
        number: usize,
        wishes: Wishes,
    ) -> Self {
        let settings = world.scenario.consumers[set].clone();
        let random = Seeded::stream(world.scenario.seed ^ 0xC0_5EED, number as u64);
        Self {
            version: settings.version.unwrap_or(world.scenario.version),
            client: format!("{}{index}", settings.name),
            subscription: settings.subscription_of(index),
            worker: Worker::new(&settings, world.scenario.seed, number),
            world: world.clone(),
            order: Order::default(),
            unreleased: HashSet::new(),
            unsettled: HashMap::new(),
            items: Vec::new(),
            latencies: Vec::new(),
            waits: Vec::new(),
            lasting: Lasting::new(world.scenario.patience),
            busy: false,
            acks: Vec::new(),
            settings,
            set,
            recipient,
            wishes,
            number,
            random,
            connections: 0,
            dropped: false,
            downgraded: false,
        }
    }

    /// Does what is wished until it is to quit.
    pub async fn run(mut self) {
        let mut failures: u32 = 0;
        while self.stage() != Stage::Quit {
            if self.stage() == Stage::Away {
                self.wait_for_wish().await;
                continue;
            }
            let served = match self.open().await {
                Some(link) => self.serve(link).await,
                None => false,
            };
            failures = if served { 0 } else { failures.saturating_add(1) };
            // Until it tries to come back its absence is the scenario's wish, afterwards it is the target's doing.
            let dropped = u32::from(std::mem::take(&mut self.dropped));
            self.world.counts.dropped_consumers.fetch_add(dropped, Relaxed);
            self.back_off(failures).await;
            self.world.counts.dropped_consumers.fetch_sub(dropped, Relaxed);
        }
    }

    fn stage(&self) -> Stage {
        self.wishes.borrow().stage
    }

    async fn wait_for_wish(&mut self) {
        if self.wishes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn back_off(&mut self, failures: u32) {
        let wait = backoff::wait(&self.world.scenario.connect, failures, &mut self.random);
        let clock = self.world.clock.clone();
        let until = clock.now() + wait;
        // Wishes other than to go don't make a consumer impatient.
        while clock.now() < until && self.stage() < Stage::Quit && self.stage() > Stage::Away {
            tokio::select! {
                () = clock.sleep_until(until) => {}
                () = self.wait_for_wish() => {}
            }
        }
    }

    async fn open(&mut self) -> Option<Link> {
        let wants = Wants {
            version: self.version,
            persistent: self.settings.persistent,
            receive_maximum: self.settings.receive_maximum,
            chunk: if self.worker.is_some() { SMALL } else { LARGE },
            receive_buffer: self.settings.receive_buffer,
        };
        let world = self.world.clone();
        let opening = world.open(&world.consumer_route, &self.client, &wants);
        let mut quitting = self.wishes.clone();
        tokio::select! {
            opened = opening => opened.ok().map(|(link, _)| link),
            _ = quitting.wait_for(|wish| wish.stage == Stage::Quit) => None,
        }
    }

    /// Serves one connection; false if it was lost soon.
    async fn serve(&mut self, mut link: Link) -> bool {
        let begun = self.world.clock.now();
        let filters = [(self.subscription.as_str(), self.settings.qos)];
        codec::put_subscribe(self.version, 1, &filters, &mut link.output);
        self.lasting.begin(begun);
        self.unsettled.clear();
        self.order = Order::default();
        if !self.settings.persistent {
            self.unreleased.clear();
        }
        let mut standing = Standing::Subscribing;
        let end = self.converse(&mut link, &mut standing).await;
        if standing != Standing::Subscribing {
            self.world.counts.consumers.fetch_sub(1, Relaxed);
            self.world.leave(self.recipient, standing != Standing::Subscribed);
        }
        if let Some(worker) = &mut self.worker {
            // What was not acknowledged belongs to the broker again.
            worker.forget();
        }
        self.note_busy();
        self.connections += 1;
        match end {
            End::Wished => {
                self.lasting.succeed();
                link.close().await;
            }
            End::Dropped => {
                self.lasting.succeed();
                self.dropped = true;
                self.let_others_have();
                drop(link);
            }
            End::Lost(error) => {
                self.world.lost(&self.client, &error);
                return backoff::has_lasted(&self.world.scenario.connect, self.world.clock.now() - begun);
            }
        }
        true
    }

    async fn converse(&mut self, link: &mut Link, standing: &mut Standing) -> End {
        let clock = self.world.clock.clone();
        let drops = self.wishes.borrow().drops;
        let keep_alive = Nanos::from(self.world.scenario.connect.keep_alive) * SECOND / 2;
        let mut ping = clock.now() + keep_alive;
        loop {
            let now = clock.now();
            let wish = *self.wishes.borrow_and_update();
            match (wish.stage, *standing) {
                (Stage::Quit, _) => return End::Wished,
                _ if wish.drops != drops => return End::Dropped,
                (Stage::Away, Standing::Subscribing) => return End::Wished,
                (Stage::Away, Standing::Subscribed) => {
                    codec::put_unsubscribe(self.version, 2, &self.subscription, &mut link.output);
                    *standing = Standing::Leaving { until: now + PARTING };
                }
                (_, Standing::Leaving { until }) if now >= until => return End::Wished,
                (_, Standing::Unsubscribed { until }) if now >= until || self.is_idle() => {
                    return End::Wished;
                }
                _ => {}
            }
            let wake = self.work(link, now);
            if now >= ping && keep_alive > 0 {
                link.output.extend_from_slice(&codec::PINGREQ);
                ping = now + keep_alive;
            }
            let look = match standing {
                Standing::Subscribing => Nanos::MAX,
                _ => self.lasting.look(now, &self.world.counts),
            };
            let mut due = wake.min(if keep_alive > 0 { ping } else { Nanos::MAX }).min(look);
            if let Standing::Leaving { until } | Standing::Unsubscribed { until } = *standing {
                due = due.min(until);
            }
            tokio::select! {
                biased;
                event = link.event(self.may_read(now)) => match event.and_then(|_| self.handle(link, standing)) {
                    Ok(()) => {}
                    Err(error) => return End::Lost(error),
                },
                () = clock.sleep_until(due) => {}
                _ = self.wishes.changed() => {}
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.worker.as_ref().is_none_or(Worker::is_empty)
    }

    /// One that processes takes no more than it needs; one that stalls takes nothing.
    fn may_read(&self, now: Nanos) -> bool {
        if self.world.draining.load(Relaxed) {
            return true;
        }
        match &self.worker {
            Some(worker) => worker.len() < AHEAD,
            None => worker::speed(&self.settings.speed, self.world.share(now)) > 0.0,
        }
    }

    /// Processes what is due; returns when there is more to do.
    fn work(&mut self, link: &mut Link, now: Nanos) -> Nanos {
        if self.world.draining.load(Relaxed) {
            if let Some(mut worker) = self.worker.take() {
                link.set_chunk(LARGE);
                worker.forget_into(&mut self.items, now);
                self.note_busy();
                self.count(link);
            }
            return Nanos::MAX;
        }
        let Some(worker) = &mut self.worker else { return self.stalled_until(now) };
        let wake = worker.work(&self.world, now, &mut self.items);
        self.note_busy();
        self.count(link);
        wake
    }

    /// Keeps the number of those that work.
    fn note_busy(&mut self) {
        let busy = self.worker.as_ref().is_some_and(Worker::is_busy);
        if busy != std::mem::replace(&mut self.busy, busy) {
            let change = if busy { 1 } else { u64::MAX };
            self.world.ledgers[self.set].busy.fetch_add(change, Relaxed);
        }
    }

    /// The scenario has dropped the connection: what the broker may not know to be taken goes to another member of the group.
    fn let_others_have(&mut self) {
        let mut stream = self.world.recipients[self.recipient].stream.lock();
        self.unsettled.drain().for_each(|(_, (flow, number))| stream.allow_again(flow, number));
    }

    /// Without a worker there is nothing to do but to begin to read again.
    fn stalled_until(&self, now: Nanos) -> Nanos {
        if self.may_read(now) {
            return Nanos::MAX;
        }
        worker::next_change(&self.settings.speed, self.world.share(now))
            .map_or(Nanos::MAX, |at| self.world.time_of(at))
    }
}
