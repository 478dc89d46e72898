//! Nodes before one broker in virtual time: the queues of the proxy and the plugin as they are, all else is simulated.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::random::{Random, Seeded};
use tidegate_control::time::Span;
use tidegate_overload::{Overload, OverloadConfig};
use tidegate_plugin::{Crowd, Host, Plugin, Publisher, Tick};

use super::*;
use crate::broker::clock::moment;
use crate::hold::Gate;
use crate::ledger::Measured;
use crate::proxy::queue::{Bounds, Heard};
use crate::wire::QoS;

/// Messages that a consumer is sent at a time.
const WINDOW: u64 = 20;
/// Messages a second that a device would send.
const WANTS: f64 = 2_000.0;

#[derive(Default)]
struct FakeHost {
    publishers: HashMap<u64, Arc<Publisher>>,
    crowds: Mutex<Vec<Crowd>>,
}

impl Host for FakeHost {
    fn publish(&self, _: &str, _: &[u8], _: bool) {}

    fn subscribers(&self, _: &str) -> usize {
        0
    }

    fn publisher(&self, number: u64) -> Option<Arc<Publisher>> {
        self.publishers.get(&number).cloned()
    }

    fn tell_crowds(&self, _: u64, crowds: Vec<Crowd>) {
        *self.crowds.lock() = crowds;
    }
}

/// A device: it keeps to what it may send, and waits while the queue holds it.
pub(super) struct Device {
    pub(super) gate: Arc<Gate>,
    /// When it sends next.
    pub(super) next: f64,
    /// Messages that it may send although others stand in line.
    pub(super) grant: u32,
    /// Messages that it sends at a time, and how many of these it has sent.
    pub(super) burst: (u32, u32),
}

impl Device {
    /// Sends one message, if it is time and the queue lets it; whether it did.
    pub(super) fn send(&mut self, now: Millis, queue: &Queue) -> bool {
        if self.next > now as f64 {
            return false;
        }
        if self.gate.held(now).is_some() {
            self.grant = 0;
            self.gate.stand_in_line();
            return false;
        }
        self.grant = self.gate.take_grant().unwrap_or(self.grant);
        if self.grant == 0 && queue.has_line() && queue.hold_newcomer(now, &self.gate) {
            self.gate.stand_in_line();
            return false;
        }
        self.grant = self.grant.saturating_sub(1);
        // time in which it was held is not made up for
        let rate = self.gate.publisher.rate().min(WANTS);
        self.burst.1 = (self.burst.1 + 1) % self.burst.0;
        if self.burst.1 == 0 {
            self.next = self.next.max(now as f64 - 1.0) + 1e3 / rate * f64::from(self.burst.0);
        }
        queue.arrive(now, self.gate.number, QoS::AtLeastOnce, 1);
        self.gate.publisher.note_accepted();
        if self.grant == 0 {
            queue.hold(now, &self.gate);
        }
        true
    }
}

/// A node with devices and consumers.
pub(super) struct Node {
    pub(super) rank: Rank,
    pub(super) queue: Queue,
    pub(super) plugin: Overload,
    host: FakeHost,
    pub(super) devices: Vec<Device>,
    /// Messages that each consumer has, and when it is done with the first of them.
    pub(super) in_flight: Vec<u64>,
    pub(super) ready: Vec<f64>,
}

impl Node {
    pub(super) fn new(number: u64, devices: u64, consumers: usize) -> Self {
        let bounds =
            Bounds { window: WINDOW, messages: 5_000, delay: 100, progress: 10_000, nodes: true, limit: 0 };
        let queue = Queue::new(1, "w".into(), Some("w".into()), bounds, 1);
        queue.subscribed("s/#", QoS::AtLeastOnce, false, false);
        (0..consumers).for_each(|_| queue.join(1, u64::MAX));
        let device = |number| (number, Arc::new(Publisher::new(format!("d{number}").into(), None, 60, 5)));
        let publishers: HashMap<_, _> = (1..=devices).map(device).collect();
        let gate = |(number, publisher): (&u64, &Arc<Publisher>)| Device {
            gate: Arc::new(Gate::new(*number, Arc::clone(publisher))),
            next: 1_000.0 + *number as f64,
            grant: 0,
            burst: (1, 0),
        };
        let mut devices: Vec<Device> = publishers.iter().map(gate).collect();
        devices.sort_by_key(|device| device.gate.number);
        Self {
            rank: (1, number),
            queue,
            plugin: Overload::new(OverloadConfig {
                hold_delay: Span::from_millis(100),
                ..OverloadConfig::default()
            })
            .unwrap(),
            host: FakeHost { publishers, ..FakeHost::default() },
            devices,
            in_flight: vec![0; consumers],
            ready: vec![0.0; consumers],
        }
    }

    pub(super) fn send(&mut self, now: Millis) -> u64 {
        let mut sent = 0;
        for device in &mut self.devices {
            while device.send(now, &self.queue) {
                sent += 1;
            }
        }
        sent
    }

    /// Consumers are done with what they worked on, for so many milliseconds on average; how many messages these are.
    pub(super) fn work(&mut self, now: Millis, millis: Millis, rough: &mut Option<Seeded>) -> u64 {
        let mut done = 0;
        for (in_flight, ready) in self.in_flight.iter_mut().zip(&mut self.ready) {
            // time without a message is not made up for
            *ready = ready.max(now as f64 - 1.0);
            while *in_flight > 0 && *ready <= now as f64 {
                self.queue.finish(now, 1, true, millis);
                *in_flight -= 1;
                *ready += millis as f64 * rough.as_mut().map_or(1.0, |random| random.uniform_in(0.2, 1.8));
                done += 1;
            }
        }
        done
    }

    /// One of its consumers gets a message, if it has room for it among so many; whether it has.
    pub(super) fn give(&mut self, now: Millis, consumer: usize, sent: u64) -> bool {
        let Some(in_flight) = self.in_flight.get_mut(consumer).filter(|in_flight| **in_flight < sent) else {
            return false;
        };
        self.queue.deliver(now, QoS::AtLeastOnce, false);
        *in_flight += 1;
        true
    }

    pub(super) fn tick(&self, now: Millis) {
        let reports: Vec<_> = self.queue.measure(moment(now)).into_iter().collect();
        let tick = Tick { now: moment(now), wall_ms: now, queues: &reports, host: &self.host };
        self.plugin.on_tick(&tick);
    }

    pub(super) fn says(&self) -> Heard {
        Heard { crowds: self.host.crowds.lock().clone(), ..self.queue.own(self.rank) }
    }

    pub(super) fn announced(&self) -> f64 {
        self.host.publishers.values().map(|publisher| publisher.rate().min(WANTS)).sum()
    }
}

/// What a node said to another one.
struct News {
    from: usize,
    to: usize,
    said: Millis,
    due: Millis,
    heard: Heard,
}

/// Nodes before a broker in which so much waits.
pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    /// What is on its way from node to node, and how long that takes.
    news: Vec<News>,
    pub(super) transit: Millis,
    /// Nothing takes as long as it does on average, and devices send many messages at a time.
    pub(super) rough: Option<Seeded>,
    /// Messages on their way to the broker, by the time when they are there.
    pub(super) coming: BTreeMap<Millis, u64>,
    /// Messages that the broker is about to lose.
    pub(super) losing: u64,
    pub(super) waiting: u64,
    /// The most that waited.
    pub(super) most: u64,
    /// Messages that consumers are done with, and milliseconds that one works on a message.
    pub(super) done: u64,
    pub(super) work: Millis,
    /// Whose turn it is to get a message.
    pub(super) turn: usize,
    pub(super) now: Millis,
    /// Messages that the broker sends a consumer before the first one is acknowledged.
    pub(super) sent: u64,
    /// For how long nodes say nothing, and how often.
    pub(super) silence: (Millis, Millis),
    /// Nodes have something new to say right after they spoke.
    pub(super) eager: bool,
}

impl World {
    pub(super) fn new(shape: &[(u64, usize)]) -> Self {
        let nodes = (0..)
            .zip(shape)
            .map(|(number, (devices, consumers))| Node::new(number, *devices, *consumers))
            .collect();
        let (waiting, most, done, work) = (0, 0, 0, 10);
        let (turn, now, sent, silence, eager) = (0, 1_000, WINDOW, (0, 1), false);
        let (news, transit, rough, coming) = (Vec::new(), 0, None, BTreeMap::new());
        Self {
            nodes,
            news,
            transit,
            rough,
            coming,
            losing: 0,
            waiting,
            most,
            done,
            work,
            turn,
            now,
            sent,
            silence,
            eager,
        }
    }

    /// A world in which nothing is even.
    pub(super) fn rough(shape: &[(u64, usize)], seed: u64) -> Self {
        let mut world = Self::new(shape);
        (world.rough, world.transit) = (Some(Seeded::new(seed)), 20);
        let devices = world.nodes.iter_mut().flat_map(|node| &mut node.devices);
        devices.for_each(|device| device.burst.0 = 5);
        world
    }

    /// How long something takes that takes so many milliseconds on average.
    pub(super) fn takes(rough: &mut Option<Seeded>, millis: Millis) -> Millis {
        rough.as_mut().map_or(millis, |random| random.below(2 * millis + 1))
    }

    pub(super) fn step(&mut self) {
        let (now, nodes) = (self.now, &mut self.nodes);
        self.now += 1;
        for node in nodes.iter_mut() {
            let there = now + if self.rough.is_some() { Self::takes(&mut self.rough, 10) } else { 0 };
            *self.coming.entry(there).or_default() += node.send(now);
            self.done += node.work(now, self.work, &mut self.rough);
        }
        while let Some(first) = self.coming.first_entry().filter(|first| *first.key() <= now) {
            let came = first.remove();
            let lost = came.min(self.losing);
            self.losing -= lost;
            self.waiting += came - lost;
        }
        // one after the other, as brokers do
        let mut misses = 0;
        while self.waiting > 0 && misses < 2 * nodes.len() {
            self.turn += 1;
            let (node, consumer) = (self.turn % nodes.len(), self.turn / nodes.len() % 2);
            let given = nodes[node].give(now, consumer, self.sent);
            self.waiting -= u64::from(given);
            misses = if given { 0 } else { misses + 1 };
        }
        self.most = self.most.max(self.waiting);
        if now.is_multiple_of(LET_GO.as_millis() as u64) {
            for node in nodes.iter() {
                node.queue.let_go_by_now(now);
            }
        }
        if now.is_multiple_of(100) {
            nodes.iter().for_each(|node| node.tick(now));
        }
        // nodes speak every 200 ms, not all at the same time
        let late = now % self.silence.1 < self.silence.0;
        let eager = self.eager;
        let speaks = |from: &usize| {
            let since = (now + 163 - 60 * *from as u64) % 200;
            !late && (since == 0 || eager && since == 20)
        };
        for from in (0..nodes.len()).filter(speaks) {
            let heard = nodes[from].says();
            for to in (0..nodes.len()).filter(|to| *to != from) {
                let due = now + Self::takes(&mut self.rough, self.transit);
                self.news.push(News { from, to, said: now, due, heard: heard.clone() });
            }
        }
        let age = self.transit;
        for News { from, to, said, heard, .. } in self.news.extract_if(.., |news| news.due <= now) {
            let (rank, own) = (nodes[from].rank, nodes[to].rank);
            let hearing = Hearing { rank, own, now, age, said, interval: 200, until: now + 3_000 };
            nodes[to].queue.hear(hearing, heard);
        }
    }

    /// What all devices together may send, on average over so many milliseconds.
    pub(super) fn announced(&mut self, millis: Millis) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for _ in 0..millis {
            self.step();
            if self.now.is_multiple_of(50) {
                sum += self.nodes.iter().map(Node::announced).sum::<f64>();
                count += 1.0;
            }
        }
        sum / count
    }
}
