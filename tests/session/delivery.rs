//! What is delivered: everything that was acknowledged to a publisher reaches every persistent subscriber, at
//! least once or exactly once, in order, though connections break at any moment on both sides.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::common::PATIENCE;
use crate::common::decode::Packet;
use crate::common::packet::*;
use crate::common::property::{RECEIVE_MAXIMUM, short};
use crate::house::{End, House, Link, Random, number_from, run};

/// Messages of each publisher.
const MESSAGES: u32 = 60;
/// Messages that a publisher has unacknowledged.
const WINDOW: usize = 6;
/// Connections that an actor breaks; its last one is left alone, so that a run ends.
const BREAKS: u32 = 12;

/// How an actor's connection ends.
enum Break {
    /// The stream is gone, with what was not read yet.
    Vanish,
    /// The same in the middle of a packet.
    Torn,
    /// The next connection takes the session over.
    TakeOver,
    /// A DISCONNECT, behind which nothing is read.
    Leave,
}

/// A client with a persistent session and a will of its own.
struct Actor {
    house: Arc<House>,
    random: Random,
    connect: Connect,
    link: Option<Link>,
    breaks: u32,
}

impl Actor {
    fn new(house: &Arc<House>, seed: u64, id: String) -> Self {
        let mut random = Random::new(seed);
        let version = if random.one_in(2) { Version::V311 } else { Version::V5 };
        let mut connect = Connect::persistent(version, &id);
        if version == Version::V5 && random.one_in(2) {
            connect = connect.with(short(RECEIVE_MAXIMUM, 1 + random.below(5) as u16));
        }
        Self { house: Arc::clone(house), random, connect, link: None, breaks: 0 }
    }

    /// A connection to the session, which must still be there.
    async fn connect(&mut self) {
        let (link, present) = self.house.connect(&self.connect).await;
        assert_eq!(present, self.breaks > 0, "the session of {}", self.connect.id);
        if let Some(mut old) = self.link.replace(link) {
            // it was taken over: it is told so, if its version can be, and ends
            loop {
                match old.recv().await {
                    Ok(Packet::Disconnect(disconnect)) => assert_eq!(disconnect.code, 0x8E),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
    }

    fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("connected")
    }

    async fn send(&mut self, what: &impl Encode) {
        self.link().send(what).await.expect("the gateway does not close");
    }

    /// Whether the connection breaks now; if so, it has.
    async fn breaks(&mut self) -> bool {
        if self.breaks >= BREAKS || !self.random.one_in(15) {
            return false;
        }
        self.breaks += 1;
        let kind = match self.random.below(4) {
            0 => Break::Vanish,
            1 => Break::Torn,
            2 => Break::TakeOver,
            _ => Break::Leave,
        };
        match kind {
            Break::TakeOver => return true,
            Break::Vanish => {}
            Break::Torn => {
                let whole = Publish::new("torn", "never whole").qos(1).id(9).encode(self.connect.version());
                let at = 1 + self.random.below(whole.len() as u64 - 1) as usize;
                self.send(&whole[..at].to_vec()).await;
            }
            Break::Leave => self.send(&Disconnect::default()).await,
        }
        self.link = None;
        true
    }
}

/// Publishes numbers to a topic of its own, and sends again what was not acknowledged.
struct Publisher {
    actor: Actor,
    topic: String,
    qos: u8,
    next: u32,
    unacknowledged: VecDeque<Unacknowledged>,
}

struct Unacknowledged {
    id: u16,
    number: u32,
    /// PUBREC has come: PUBREL goes out instead of PUBLISH.
    received: bool,
}

impl Publisher {
    async fn run(mut self) {
        loop {
            self.actor.connect().await;
            self.send_again().await;
            while !self.actor.breaks().await {
                if self.next == MESSAGES && self.unacknowledged.is_empty() {
                    return;
                }
                self.step().await;
            }
        }
    }

    async fn send_again(&mut self) {
        for index in 0..self.unacknowledged.len() {
            let Unacknowledged { id, number, received } = self.unacknowledged[index];
            if received {
                self.actor.send(&Ack::new(Kind::Pubrel, id)).await;
            } else {
                let publish = self.publish(id, number).dup();
                self.actor.send(&publish).await;
            }
        }
    }

    async fn step(&mut self) {
        let may_send = self.next < MESSAGES && self.unacknowledged.len() < WINDOW;
        if may_send && (self.unacknowledged.is_empty() || self.actor.random.one_in(2)) {
            // identifiers come again soon
            let id = (self.next % 50) as u16 + 1;
            let publish = self.publish(id, self.next);
            self.unacknowledged.push_back(Unacknowledged { id, number: self.next, received: false });
            self.next += 1;
            return self.actor.send(&publish).await;
        }
        let ack = match self.actor.link().recv().await {
            Ok(Packet::Ack(ack)) => ack,
            other => panic!("{other:?} to a publisher"),
        };
        let known = self.unacknowledged.iter().position(|sent| sent.id == ack.id);
        let index = known.unwrap_or_else(|| panic!("{ack:?} was not due"));
        match (ack.kind, self.qos) {
            (Kind::Puback, 1) | (Kind::Pubcomp, 2) => drop(self.unacknowledged.remove(index)),
            (Kind::Pubrec, 2) => {
                self.unacknowledged[index].received = true;
                self.actor.send(&Ack::new(Kind::Pubrel, ack.id)).await;
            }
            _ => panic!("{ack:?} at QoS {}", self.qos),
        }
    }

    fn publish(&self, id: u16, number: u32) -> Publish {
        Publish::new(&self.topic, number.to_string()).qos(self.qos).id(id)
    }
}

/// Receives what all publishers send.
struct Subscriber {
    actor: Actor,
    filter: String,
    qos: u8,
    /// QoS 2 messages received and not released; lives as long as the session.
    received: HashSet<u16>,
    /// Acknowledgements to be sent, in order.
    late: VecDeque<Ack>,
    /// Numbers by topic, in the order in which they came, and the QoS that they came with.
    got: HashMap<String, Vec<u32>>,
}

impl Subscriber {
    /// Until everything has come from as many publishers; they count themselves out when they are done.
    async fn run(mut self, publishers: Arc<AtomicUsize>, subscribed: Arc<AtomicUsize>) -> Self {
        loop {
            self.actor.connect().await;
            if self.actor.breaks == 0 {
                let (filter, qos) = (self.filter.clone(), self.qos);
                self.actor.link().subscribe(&filter, qos).await;
                subscribed.fetch_sub(1, Ordering::AcqRel);
            }
            self.late.clear();
            while !self.actor.breaks().await {
                if !self.late.is_empty() && self.actor.random.one_in(2) {
                    let ack = self.late.pop_front().expect("not empty");
                    self.actor.send(&ack).await;
                }
                match self.actor.link().try_recv() {
                    Ok(packet) => self.take(packet),
                    Err(End::Nothing) if self.done(&publishers) => return self,
                    Err(End::Nothing) => tokio::time::sleep(Duration::from_millis(1)).await,
                    Err(End::Closed) => panic!("the gateway closed {}", self.actor.connect.id),
                }
            }
        }
    }

    /// All publishers are done, everything has come and is acknowledged to the end.
    fn done(&self, publishers: &AtomicUsize) -> bool {
        let all = |numbers: &Vec<u32>| numbers.iter().collect::<HashSet<_>>().len() == MESSAGES as usize;
        publishers.load(Ordering::Acquire) == 0
            && self.late.is_empty()
            && self.received.is_empty()
            && self.got.values().all(all)
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Publish(publish) => {
                let known = publish.qos == 2 && !self.received.insert(publish.id);
                assert!(!known || publish.dup, "identifier {} is in use", publish.id);
                if !known {
                    let number = publish.text().parse().expect("a number");
                    self.got.get_mut(&publish.topic).expect("a known topic").push(number);
                }
                let kind = if publish.qos == 2 { Kind::Pubrec } else { Kind::Puback };
                self.late.push_back(Ack::new(kind, publish.id));
            }
            Packet::Ack(ack) if ack.kind == Kind::Pubrel => {
                self.received.remove(&ack.id);
                self.late.push_back(Ack::new(Kind::Pubcomp, ack.id));
            }
            other => panic!("{other:?} to a subscriber"),
        }
    }

    fn check(&self, qos_of: &HashMap<String, u8>) {
        for (topic, numbers) in &self.got {
            let mut seen = HashSet::new();
            let first: Vec<u32> = numbers.iter().copied().filter(|number| seen.insert(*number)).collect();
            assert!(first.iter().copied().eq(0..MESSAGES), "{topic} came as {numbers:?}");
            if qos_of[topic] == 2 && self.qos == 2 {
                assert_eq!(numbers.len(), first.len(), "{topic} came more than once: {numbers:?}");
            }
        }
    }
}

async fn deliver(house: &Arc<House>, seed: u64) {
    let prefix = format!("delivery/{seed}");
    let topics: Vec<(String, u8)> = (0..4).map(|n| (format!("{prefix}/{n}"), 1 + n % 2)).collect();
    let publishing = Arc::new(AtomicUsize::new(topics.len()));
    let subscribing = Arc::new(AtomicUsize::new(3));
    let mut subscribers = JoinSet::new();
    for n in 0..3 {
        let actor = Actor::new(house, seed * 100 + n, format!("{prefix}/s{n}"));
        let got = topics.iter().map(|(topic, _)| (topic.clone(), Vec::new())).collect();
        let (filter, qos) = (format!("{prefix}/+"), 1 + (n as u8 + 1) % 2);
        let (received, late) = (HashSet::new(), VecDeque::new());
        let subscriber = Subscriber { actor, filter, qos, received, late, got };
        subscribers.spawn(subscriber.run(Arc::clone(&publishing), Arc::clone(&subscribing)));
    }
    while subscribing.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut publishers = JoinSet::new();
    for (n, (topic, qos)) in topics.iter().cloned().enumerate() {
        let actor = Actor::new(house, seed * 100 + 50 + n as u64, format!("{prefix}/p{n}"));
        let publisher = Publisher { actor, topic, qos, next: 0, unacknowledged: VecDeque::new() };
        let publishing = Arc::clone(&publishing);
        publishers.spawn(async move {
            publisher.run().await;
            publishing.fetch_sub(1, Ordering::AcqRel);
        });
    }
    publishers.join_all().await;
    let qos_of = topics.into_iter().collect();
    for subscriber in subscribers.join_all().await {
        subscriber.check(&qos_of);
    }
}

#[test]
fn everything_acknowledged_is_delivered() {
    let house = Arc::new(House::start(|_| {}));
    let first = number_from("TIDEGATE_TEST_SEED", 1);
    for seed in first..first + number_from("TIDEGATE_TEST_CASES", 400) / 40 {
        run(async {
            let delivered = tokio::time::timeout(3 * PATIENCE, deliver(&house, seed)).await;
            assert!(delivered.is_ok(), "not everything was delivered (seed {seed})");
        });
    }
}
