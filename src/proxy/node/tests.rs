//! Nodes before one broker, in virtual time: the queues of the proxy and the plugin as they are, all else is simulated.

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
struct Device {
    gate: Arc<Gate>,
    /// When it sends next.
    next: f64,
    /// Messages that it may send although others stand in line.
    grant: u32,
    /// Messages that it sends at a time, and how many of these it has sent.
    burst: (u32, u32),
}

impl Device {
    /// Sends one message, if it is time and the queue lets it; whether it did.
    fn send(&mut self, now: Millis, queue: &Queue) -> bool {
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
struct Node {
    rank: Rank,
    queue: Queue,
    plugin: Overload,
    host: FakeHost,
    devices: Vec<Device>,
    /// Messages that each consumer has, and when it is done with the first of them.
    in_flight: Vec<u64>,
    ready: Vec<f64>,
}

impl Node {
    fn new(number: u64, devices: u64, consumers: usize) -> Self {
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

    fn send(&mut self, now: Millis) -> u64 {
        let mut sent = 0;
        for device in &mut self.devices {
            while device.send(now, &self.queue) {
                sent += 1;
            }
        }
        sent
    }

    /// Consumers are done with what they worked on, for so many milliseconds on average; how many messages these are.
    fn work(&mut self, now: Millis, millis: Millis, rough: &mut Option<Seeded>) -> u64 {
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
    fn give(&mut self, now: Millis, consumer: usize, sent: u64) -> bool {
        let Some(in_flight) = self.in_flight.get_mut(consumer).filter(|in_flight| **in_flight < sent) else {
            return false;
        };
        self.queue.deliver(now, QoS::AtLeastOnce, false);
        *in_flight += 1;
        true
    }

    fn tick(&self, now: Millis) {
        let reports: Vec<_> = self.queue.measure(moment(now)).into_iter().collect();
        let tick = Tick { now: moment(now), wall_ms: now, queues: &reports, host: &self.host };
        self.plugin.on_tick(&tick);
    }

    fn says(&self) -> Heard {
        Heard { crowds: self.host.crowds.lock().clone(), ..self.queue.own(self.rank) }
    }

    fn announced(&self) -> f64 {
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
struct World {
    nodes: Vec<Node>,
    /// What is on its way from node to node, and how long that takes.
    news: Vec<News>,
    transit: Millis,
    /// Nothing takes as long as it does on average, and devices send many messages at a time.
    rough: Option<Seeded>,
    /// Messages on their way to the broker, by the time when they are there.
    coming: BTreeMap<Millis, u64>,
    /// Messages that the broker is about to lose.
    losing: u64,
    waiting: u64,
    /// The most that waited.
    most: u64,
    /// Messages that consumers are done with, and milliseconds that one works on a message.
    done: u64,
    work: Millis,
    /// Whose turn it is to get a message.
    turn: usize,
    now: Millis,
    /// Messages that the broker sends a consumer before the first one is acknowledged.
    sent: u64,
    /// For how long nodes say nothing, and how often.
    silence: (Millis, Millis),
    /// Nodes have something new to say right after they spoke.
    eager: bool,
}

impl World {
    fn new(shape: &[(u64, usize)]) -> Self {
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
    fn rough(shape: &[(u64, usize)], seed: u64) -> Self {
        let mut world = Self::new(shape);
        (world.rough, world.transit) = (Some(Seeded::new(seed)), 20);
        let devices = world.nodes.iter_mut().flat_map(|node| &mut node.devices);
        devices.for_each(|device| device.burst.0 = 5);
        world
    }

    /// How long something takes that takes so many milliseconds on average.
    fn takes(rough: &mut Option<Seeded>, millis: Millis) -> Millis {
        rough.as_mut().map_or(millis, |random| random.below(2 * millis + 1))
    }

    fn step(&mut self) {
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
    fn announced(&mut self, millis: Millis) -> f64 {
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

#[test]
fn two_nodes_announce_what_one_would() {
    let announced = |shape: &[(u64, usize)]| {
        let mut world = World::new(shape);
        world.announced(40_000);
        world.announced(40_000)
    };
    let one = announced(&[(6, 2)]);
    assert!((190.0..=215.0).contains(&one), "{one}: two consumers take 100 messages a second each");
    for (name, shape) in [
        ("both everywhere", [(3, 1), (3, 1)]),
        ("devices everywhere", [(3, 2), (3, 0)]),
        ("apart", [(6, 0), (0, 2)]),
        ("uneven", [(5, 1), (1, 1)]),
    ] {
        let two = announced(&shape);
        assert!((two / one - 1.0).abs() <= 0.05, "{name}: two announce {two}, one {one}");
    }
}

/// The same where nothing is even: messages come many at a time, take their time to the broker, and consumers theirs with them.
#[test]
fn what_is_uneven_evens_out() {
    let announced = |work, shape: &[(u64, usize)], seed| {
        let mut world = World::rough(shape, seed);
        world.work = work;
        world.announced(40_000);
        let (before, announced) = (world.done, world.announced(40_000));
        (announced, (world.done - before) as f64 / 40.0)
    };
    for work in [10, 2] {
        let one: f64 = (1..=2).map(|seed| announced(work, &[(6, 2)], seed).0).sum::<f64>() / 2.0;
        for (name, shape) in [
            ("both everywhere", [(3, 1), (3, 1)]),
            ("devices everywhere", [(3, 2), (3, 0)]),
            ("consumers at the other node", [(3, 0), (3, 2)]),
            ("apart", [(6, 0), (0, 2)]),
            ("apart, the other way round", [(0, 2), (6, 0)]),
            ("uneven", [(5, 1), (1, 1)]),
        ] {
            for seed in 1..=2 {
                let (two, done) = announced(work, &shape, seed);
                let told = format!("{work} ms, {name}, {seed}: two announce {two}, one {one}");
                // of 200 a second, devices send a quarter of what may wait at a time
                let band = if work == 10 { 0.08 } else { 0.03 };
                assert!((two / one - 1.0).abs() <= band, "{told}");
                assert!(done >= (1.0 - band) * one, "{told}: consumers were done with {done} a second");
            }
        }
    }
}

/// The broker loses about as many messages as may wait: consumers are hardly slower for it, though nobody is told.
#[test]
fn messages_that_the_broker_lost_are_not_waited_for() {
    for (work, lost) in [(10, 5), (10, 20), (2, 10), (2, 60)] {
        let mut world = World::new(&[(6, 2)]);
        world.work = work;
        world.announced(20_000);
        world.losing = lost;
        world.announced(20_000);
        let (before, share) = (world.done, work as f64 / 2_000.0 / 20.0);
        world.announced(20_000);
        let busy = (world.done - before) as f64 * share;
        assert!(busy >= 0.94, "{work} ms, {lost} lost: consumers are busy to {busy}");
    }
}

/// As many messages as may wait come and go faster than nodes speak, and within a turn of the control loop.
#[test]
fn a_queue_that_is_quicker_than_news_is_known_all_the_same() {
    let settled = |transit, shape: &[(u64, usize)]| {
        let mut world = World::new(shape);
        (world.work, world.transit) = (2, transit);
        world.announced(40_000);
        (world.done, world.most) = (0, 0);
        (world.announced(40_000), world.done, world.most)
    };
    let (one, ..) = settled(0, &[(6, 2)]);
    assert!((950.0..=1_050.0).contains(&one), "{one}: two consumers take 500 messages a second each");
    for (name, shape) in [
        ("both everywhere", [(3, 1), (3, 1)].as_slice()),
        ("devices everywhere, consumers at the node that knows the queue for longer", &[(3, 2), (3, 0)]),
        ("devices everywhere, consumers at the other one", &[(3, 0), (3, 2)]),
        ("apart, devices at the node that knows the queue for longer", &[(6, 0), (0, 2)]),
        ("apart, consumers there", &[(0, 2), (6, 0)]),
        ("uneven", &[(5, 1), (1, 1)]),
        ("three, devices at the first", &[(6, 0), (0, 1), (0, 1)]),
        ("three, devices at the last", &[(0, 1), (0, 1), (6, 0)]),
        ("three, consumers at the last", &[(3, 0), (3, 0), (0, 2)]),
    ] {
        for transit in [0, 50] {
            let (all, done, most) = settled(transit, shape);
            let told = format!("{name}, news take {transit} ms");
            assert!((all / one - 1.0).abs() <= 0.05, "{told}: they announce {all}, one {one}");
            assert!(done >= 38_800, "{told}: consumers were done with {done} messages of 40,000");
            assert!(most <= 100, "{told}: {most} messages waited, which takes longer than 100 ms");
        }
    }
}

/// Devices flooded the broker before their node had heard of the queue. Nobody counted that, and brokers send consumers more
/// than they can be at work on. Once the flood is over, nodes announce what one does that knew of the queue from the start.
#[test]
fn a_flood_that_nobody_counted_changes_nothing() {
    let announced = |flood, shape: &[(u64, usize)]| {
        let mut world = World::new(shape);
        (world.waiting, world.sent) = (flood, 1_000);
        world.announced(40_000);
        world.announced(20_000)
    };
    let one = announced(0, &[(6, 2)]);
    for (flood, name, shape) in [
        (300, "both everywhere", [(3, 1), (3, 1)].as_slice()),
        (300, "devices everywhere", &[(3, 2), (3, 0)]),
        (300, "apart", &[(6, 0), (0, 2)]),
        (1_000, "apart", &[(6, 0), (0, 2)]),
        (300, "uneven", &[(5, 1), (1, 1)]),
        (1_000, "three", &[(2, 0), (2, 1), (2, 1)]),
    ] {
        let all = announced(flood, shape);
        assert!((all / one - 1.0).abs() <= 0.05, "{name} after {flood}: they announce {all}, one {one}");
    }
}

/// A flood that nobody counted is over when devices begin to send: they do not fill the place that it left in the books.
#[test]
fn nobody_sends_what_a_flood_left_uncounted() {
    for (name, shape) in [
        ("one", [(6, 2)].as_slice()),
        ("both everywhere", &[(3, 1), (3, 1)]),
        ("devices everywhere", &[(3, 2), (3, 0)]),
        ("apart", &[(6, 0), (0, 2)]),
        ("uneven", &[(5, 1), (1, 1)]),
        ("three", &[(2, 0), (2, 1), (2, 1)]),
    ] {
        let mut world = World::new(shape);
        world.waiting = 1_000;
        let devices = world.nodes.iter_mut().flat_map(|node| &mut node.devices);
        devices.for_each(|device| device.next += 5_000.0);
        world.announced(5_000);
        let mut most = 0;
        for _ in 0..20 {
            world.announced(1_000);
            most = most.max(world.waiting);
        }
        assert!(most <= 50, "{name}: {most} messages wait");
    }
}

/// Devices come to a queue that holds them from their first message on, so that they never show what they want. Once
/// consumers are done with what was there, these do not wait for devices that are told far too little.
#[test]
fn who_is_held_from_the_start_is_not_taken_to_want_nothing() {
    for (name, shape) in [
        ("one", [(6, 2)].as_slice()),
        ("both everywhere", &[(3, 1), (3, 1)]),
        ("devices everywhere", &[(3, 2), (3, 0)]),
        ("apart", &[(6, 0), (0, 2)]),
    ] {
        let mut world = World::new(shape);
        (world.waiting, world.sent) = (1_000, 1_000);
        let devices = world.nodes.iter_mut().flat_map(|node| &mut node.devices);
        devices.for_each(|device| device.next += 1_000.0);
        world.announced(7_000);
        let all = world.announced(5_000);
        assert!((190.0..=210.0).contains(&all), "{name}: they announce {all}, and consumers take 200");
    }
}

/// What nodes say comes late now and then: a machine is busy, or the network.
#[test]
fn late_news_change_nothing() {
    for (name, shape) in [
        ("both everywhere", [(3, 1), (3, 1)].as_slice()),
        ("devices everywhere", &[(3, 2), (3, 0)]),
        ("apart", &[(6, 0), (0, 2)]),
        ("uneven", &[(5, 1), (1, 1)]),
    ] {
        // with what they say in any case, that is for up to 0.7 s and for up to 2 s
        for silence in [(500, 5_000), (1_800, 10_000)] {
            let mut world = World::new(shape);
            world.sent = 1_000;
            // they have heard of each other
            world.announced(1_000);
            world.silence = silence;
            world.announced(20_000);
            let all = world.announced(20_000);
            let told = format!("{name}, silent for {silence:?}: they announce {all}, and consumers take 200");
            assert!((190.0..=210.0).contains(&all), "{told}");
        }
    }
}

/// Clients come and go, so that nodes have news all the time.
#[test]
fn early_news_change_nothing() {
    for (name, shape) in [
        ("both everywhere", [(3, 1), (3, 1)].as_slice()),
        ("devices everywhere", &[(3, 2), (3, 0)]),
        ("apart", &[(6, 0), (0, 2)]),
        ("uneven", &[(5, 1), (1, 1)]),
    ] {
        let mut world = World::new(shape);
        world.eager = true;
        world.announced(40_000);
        let all = world.announced(20_000);
        assert!((190.0..=210.0).contains(&all), "{name}: they announce {all}, and consumers take 200");
    }
}

/// A node that is silent for its ttl leaves its share to the others.
#[test]
fn a_silent_nodes_share_is_given_back() {
    let mut world = World::new(&[(3, 2), (3, 0)]);
    world.announced(40_000);
    let before = world.nodes[0].announced();
    world.nodes.pop();
    world.announced(1_000);
    let meanwhile = world.nodes[0].announced();
    assert!(meanwhile < 1.4 * before, "{meanwhile} after {before}: it may come back");
    world.announced(20_000);
    let after = world.announced(20_000);
    assert!(after > 1.5 * before, "{after} after {before}");
}
