//! Nodes before one broker, in virtual time: the queues of the proxy and the plugin as they are, all else is simulated.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_overload::{Overload, OverloadConfig};
use tidegate_plugin::{Crowd, Host, Plugin, Publisher, Tick};

use super::*;
use crate::broker::clock::moment;
use crate::ledger::Measured;
use crate::proxy::queue::{Bounds, Heard};
use crate::wire::QoS;

/// Milliseconds that a consumer works on a message, and messages that it is sent at a time.
const WORK: Millis = 10;
const WINDOW: u64 = 20;

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

/// A node with devices that want 200 messages a second each and keep to what they may, and consumers.
struct Node {
    rank: Rank,
    queue: Queue,
    plugin: Overload,
    host: FakeHost,
    /// When each device sends next.
    next: Vec<(u64, f64)>,
    /// Messages that each consumer has.
    in_flight: Vec<u64>,
}

impl Node {
    fn new(number: u64, devices: u64, consumers: usize) -> Self {
        let bounds =
            Bounds { window: WINDOW, messages: 5_000, delay: 100, progress: 10_000, nodes: true, limit: 0 };
        let queue = Queue::new(1, "w".into(), Some("w".into()), bounds, 1);
        queue.subscribed("s/#", QoS::AtLeastOnce, false);
        (0..consumers).for_each(|_| queue.join(1, u64::MAX));
        let device = |number| (number, Arc::new(Publisher::new(format!("d{number}").into(), None, 60, 5)));
        let publishers: HashMap<_, _> = (1..=devices).map(device).collect();
        let next = publishers.keys().map(|number| (*number, 1_000.0 + *number as f64)).collect();
        Self {
            rank: (1, number),
            queue,
            plugin: Overload::new(OverloadConfig::default()).unwrap(),
            host: FakeHost { publishers, ..FakeHost::default() },
            next,
            in_flight: vec![0; consumers],
        }
    }

    fn send(&mut self, now: Millis) -> u64 {
        let mut sent = 0;
        for (number, next) in &mut self.next {
            let rate = self.host.publishers[number].rate().min(200.0);
            while *next <= now as f64 {
                *next += 1e3 / rate;
                self.queue.arrive(now, *number, QoS::AtLeastOnce, 1);
                self.host.publishers[number].note_accepted();
                sent += 1;
            }
        }
        sent
    }

    /// Consumers are done with what they worked on.
    fn work(&mut self, now: Millis) {
        for in_flight in self.in_flight.iter_mut().filter(|in_flight| **in_flight > 0) {
            self.queue.finish(now, 1, true, WORK);
            *in_flight -= 1;
        }
    }

    /// One of its consumers gets a message, if it has room; whether it has.
    fn give(&mut self, now: Millis, consumer: usize) -> bool {
        let Some(in_flight) = self.in_flight.get_mut(consumer).filter(|in_flight| **in_flight < WINDOW)
        else {
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
        self.host.publishers.values().map(|publisher| publisher.rate().min(200.0)).sum()
    }
}

/// Nodes before a broker in which so much waits.
struct World {
    nodes: Vec<Node>,
    waiting: u64,
    /// Whose turn it is to get a message.
    turn: usize,
    now: Millis,
}

impl World {
    fn new(shape: &[(u64, usize)]) -> Self {
        let nodes = (0..)
            .zip(shape)
            .map(|(number, (devices, consumers))| Node::new(number, *devices, *consumers))
            .collect();
        Self { nodes, waiting: 0, turn: 0, now: 1_000 }
    }

    fn step(&mut self) {
        let (now, nodes) = (self.now, &mut self.nodes);
        self.now += 1;
        self.waiting += nodes.iter_mut().map(|node| node.send(now)).sum::<u64>();
        if now.is_multiple_of(WORK) {
            nodes.iter_mut().for_each(|node| node.work(now));
        }
        // one after the other, as brokers do
        let mut misses = 0;
        while self.waiting > 0 && misses < 2 * nodes.len() {
            self.turn += 1;
            let (node, consumer) = (self.turn % nodes.len(), self.turn / nodes.len() % 2);
            let given = nodes[node].give(now, consumer);
            self.waiting -= u64::from(given);
            misses = if given { 0 } else { misses + 1 };
        }
        if now.is_multiple_of(100) {
            nodes.iter().for_each(|node| node.tick(now));
        }
        // nodes speak every 200 ms, not all at the same time
        for from in (0..nodes.len()).filter(|from| now % 200 == 37 + 60 * *from as u64) {
            let said = nodes[from].says();
            for to in (0..nodes.len()).filter(|to| *to != from) {
                let (rank, own) = (nodes[from].rank, nodes[to].rank);
                let hearing = Hearing { rank, own, now, interval: 200, until: now + 3_000 };
                nodes[to].queue.hear(hearing, said.clone());
            }
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

/// A node that is silent for its ttl leaves its share to the others.
#[test]
fn a_silent_nodes_share_is_given_back() {
    let mut world = World::new(&[(3, 2), (3, 0)]);
    world.announced(40_000);
    let before = world.nodes[0].announced();
    world.nodes.pop();
    world.announced(2_000);
    let meanwhile = world.nodes[0].announced();
    assert!(meanwhile < 1.4 * before, "{meanwhile} after {before}: it may come back");
    world.announced(20_000);
    let after = world.announced(20_000);
    assert!(after > 1.5 * before, "{after} after {before}");
}
