//! A consumer: takes all at once, or processes one message at a time and acknowledges it afterwards.

mod worker;

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_control::random::{Random, Seeded};

use self::worker::Worker;
use crate::check::{Order, Stamp};
use crate::clock::{Nanos, SECOND};
use crate::codec::{self, Packet, Version, kind};
use crate::link::Link;
use crate::scenario::Consumers;
use crate::stats::{Took, add};
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
    number: usize,
    random: Seeded,
    // Buffers, kept for their memory.
    items: Vec<Item>,
    latencies: Vec<Took>,
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
            items: Vec::new(),
            latencies: Vec::new(),
            acks: Vec::new(),
            settings,
            set,
            recipient,
            wishes,
            number,
            random,
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
            match self.open().await {
                Some(link) => {
                    failures = 0;
                    self.serve(link).await;
                }
                None => failures += 1,
            }
            self.back_off(failures).await;
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
        if failures > 0 && self.stage() < Stage::Quit {
            let settings = &self.world.scenario.connect;
            let longest = (settings.backoff * 2f64.powi(failures as i32)).min(settings.backoff_max);
            let wait = (self.random.uniform() * longest).max(0.01);
            let clock = self.world.clock.clone();
            let until = clock.now() + (wait * SECOND as f64) as Nanos;
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

    async fn serve(&mut self, mut link: Link) {
        let filters = [(self.subscription.as_str(), self.settings.qos)];
        codec::put_subscribe(self.version, 1, &filters, &mut link.output);
        self.order = Order::default();
        if !self.settings.persistent {
            self.unreleased.clear();
        }
        let mut standing = Standing::Subscribing;
        let end = self.converse(&mut link, &mut standing).await;
        if standing != Standing::Subscribing {
            self.world.counts.consumers.fetch_sub(1, Relaxed);
        }
        if let Some(worker) = &mut self.worker {
            // What was not acknowledged belongs to the broker again.
            worker.forget();
        }
        if self.stage() != Stage::Quit && self.settings.group.is_none() && !self.settings.persistent {
            self.world.recipients[self.recipient].always_there.store(false, Relaxed);
        }
        match end {
            End::Wished => link.close().await,
            End::Dropped => drop(link),
            End::Lost(error) => self.world.lost(&self.client, &error),
        }
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
            let mut due = wake.min(if keep_alive > 0 { ping } else { Nanos::MAX });
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
                self.count(link);
            }
            return Nanos::MAX;
        }
        let Some(worker) = &mut self.worker else { return self.stalled_until(now) };
        let wake = worker.work(&self.world, now, &mut self.items);
        self.count(link);
        wake
    }

    /// Without a worker there is nothing to do but to begin to read again.
    fn stalled_until(&self, now: Nanos) -> Nanos {
        if self.may_read(now) {
            return Nanos::MAX;
        }
        worker::next_change(&self.settings.speed, self.world.share(now))
            .map_or(Nanos::MAX, |at| self.world.time_of(at))
    }

    fn handle(&mut self, link: &mut Link, standing: &mut Standing) -> io::Result<()> {
        let mut refused = None;
        let version = self.version;
        let parting = self.world.clock.now() + PARTING;
        while let Some(packet) = link.packet()? {
            match packet.kind() {
                kind::PUBLISH => self.receive(&packet)?,
                kind::PUBREL => {
                    let id = codec::ack(&packet, version).map_err(io::Error::other)?.id;
                    self.unreleased.remove(&id);
                    codec::put_ack(kind::PUBCOMP, id, &mut self.acks);
                }
                kind::SUBACK if *standing == Standing::Subscribing => {
                    let codes = codec::suback(&packet, version).map_err(io::Error::other)?;
                    refused = codes.iter().find(|code| **code >= 0x80).copied();
                    *standing = Standing::Subscribed;
                    if refused.is_none() {
                        self.world.counts.consumers.fetch_add(1, Relaxed);
                    }
                }
                kind::UNSUBACK => *standing = Standing::Unsubscribed { until: parting },
                _ => {}
            }
        }
        if let Some(code) = refused {
            *standing = Standing::Subscribing;
            let message =
                format!("the target refused the subscription {} with code {code:#04x}", self.subscription);
            *self.world.fatal.lock() = Some(message.clone());
            return Err(io::Error::other(message));
        }
        link.output.append(&mut self.acks);
        let now = self.world.clock.now();
        self.items.iter_mut().for_each(|item| item.taken = now);
        match &mut self.worker {
            Some(worker) => worker.receive(self.items.drain(..), now),
            None => self.count(link),
        }
        Ok(())
    }

    /// Puts one message among the items.
    fn receive(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let message = codec::message(packet, self.version).map_err(io::Error::other)?;
        if message.qos == 2 && !self.unreleased.insert(message.id) {
            // Known already: only the answer was lost.
            codec::put_ack(kind::PUBREC, message.id, &mut self.acks);
            return Ok(());
        }
        let stamp = Stamp::read(message.payload);
        let known = stamp.filter(|stamp| stamp.run == self.world.run && self.world.sent.knows(stamp));
        let (qos, id) = (message.qos, message.id);
        self.items.push(match known {
            Some(Stamp { flow, number, intended, .. }) => {
                Item { flow, number, intended, qos, id, foreign: false, taken: 0 }
            }
            None => Item { flow: 0, number: 0, intended: 0, qos, id, foreign: true, taken: 0 },
        });
        Ok(())
    }

    /// Counts all items as delivered and acknowledges them; only what comes for the first time is a delivery.
    fn count(&mut self, link: &mut Link) {
        if self.items.is_empty() {
            return;
        }
        let (mut duplicates, mut foreign) = (0, 0);
        let measured = self.world.measured();
        let mut stream = self.world.recipients[self.recipient].stream.lock();
        for item in &self.items {
            if item.foreign {
                foreign += 1;
            } else if stream.take(&mut self.order, item.flow, item.number) {
                let class = self.world.flows[item.flow as usize].class;
                let latency = item.taken.saturating_sub(item.intended);
                self.latencies.push(Took { class, latency, measured: measured.contains(&item.intended) });
            } else {
                duplicates += 1;
            }
        }
        drop(stream);
        let first = self.latencies.len() as u64;
        self.world.latencies.record(self.number, &self.latencies);
        self.latencies.clear();
        for item in self.items.drain(..) {
            match item.qos {
                1 => codec::put_ack(kind::PUBACK, item.id, &mut link.output),
                2 => codec::put_ack(kind::PUBREC, item.id, &mut link.output),
                _ => {}
            }
        }
        add(&self.world.counts.delivered, first);
        add(&self.world.counts.duplicates, duplicates);
        add(&self.world.counts.foreign, foreign);
        add(&self.world.ledgers[self.set].done, first);
    }
}
