//! Shared groups against a model: each message goes to one member, to another one only when the connection that
//! had it broke, and at QoS 2 to one member whatever happens.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::common::PATIENCE;
use crate::common::decode::Packet;
use crate::common::packet::*;
use crate::delivery::{Actor, each_seed};
use crate::house::{End, House};

/// Messages at each QoS.
const MESSAGES: u32 = 150;

/// What has come to whom.
#[derive(Default)]
struct Record {
    /// Messages of QoS 1: the connections to which they went.
    once: HashMap<u32, Vec<u32>>,
    /// Messages of QoS 2, as often as they came.
    exactly: Vec<u32>,
    broken: HashSet<u32>,
}

impl Record {
    fn complete(&self) -> bool {
        let distinct: HashSet<u32> = self.exactly.iter().copied().collect();
        self.once.len() == MESSAGES as usize && distinct.len() == MESSAGES as usize
    }

    fn missing(&self) -> String {
        let once: Vec<u32> = (0..MESSAGES).filter(|number| !self.once.contains_key(number)).collect();
        let exactly: Vec<u32> = (0..MESSAGES).filter(|number| !self.exactly.contains(number)).collect();
        format!("of QoS 1 {once:?} never came, of QoS 2 {exactly:?}")
    }

    fn check(&self) {
        assert_eq!(self.exactly.len(), MESSAGES as usize, "QoS 2 came more than once: {:?}", self.exactly);
        for (number, connections) in &self.once {
            let alive = connections.iter().filter(|connection| !self.broken.contains(connection)).count();
            assert!(alive <= 1, "{number} went to several living connections: {connections:?}");
            let distinct: HashSet<&u32> = connections.iter().collect();
            assert_eq!(distinct.len(), connections.len(), "{number} came twice to a connection");
        }
    }
}

/// The groups of one run.
struct Groups {
    prefix: String,
    record: Mutex<Record>,
    next_connection: AtomicU32,
    /// Members that have not subscribed yet.
    joining: AtomicU32,
}

impl Groups {
    fn filter(&self, qos: u8) -> String {
        format!("$share/g/{}/{qos}", self.prefix)
    }
}

struct Member {
    actor: Actor,
    groups: Arc<Groups>,
    /// A member with a session that stays takes QoS 2 too: what it was sent must not go to another.
    persistent: bool,
    /// The one that never leaves keeps the groups alive.
    first: bool,
    connection: u32,
    received: HashSet<u16>,
    late: VecDeque<Ack>,
}

impl Member {
    async fn run(mut self) {
        loop {
            self.actor.connect().await;
            self.connection = self.groups.next_connection.fetch_add(1, Ordering::Relaxed);
            self.late.clear();
            if self.actor.breaks == 0 {
                self.subscribe().await;
                self.groups.joining.fetch_sub(1, Ordering::AcqRel);
            } else if !self.persistent {
                self.subscribe().await;
            }
            while !self.actor.breaks().await {
                if self.step().await {
                    return;
                }
            }
            self.groups.record.lock().broken.insert(self.connection);
        }
    }

    /// One thing to do; `true` when all is done.
    async fn step(&mut self) -> bool {
        if !self.late.is_empty() && self.actor.random.one_in(2) {
            let ack = self.late.pop_front().expect("not empty");
            self.actor.send(&ack).await;
        }
        if !self.first && self.actor.random.one_in(40) {
            self.leave_and_join().await;
        }
        match self.actor.link().try_recv() {
            Ok(packet) => self.take(packet),
            Err(End::Nothing) if self.late.is_empty() && self.groups.record.lock().complete() => {
                return true;
            }
            Err(End::Nothing) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(End::Closed) => panic!("the gateway closed {}", self.actor.connect.id),
        }
        false
    }

    async fn subscribe(&mut self) {
        let mut filters = vec![(self.groups.filter(1), 1)];
        if self.persistent {
            filters.push((self.groups.filter(2), 2));
        }
        let packet = Subscribe { id: 60_000, filters, properties: Vec::new() };
        self.actor.send(&packet).await;
        self.take_until(|packet| matches!(packet, Packet::Suback(_))).await;
    }

    async fn leave_and_join(&mut self) {
        let filters: Vec<String> = [1, 2].map(|qos| self.groups.filter(qos)).into();
        self.actor.send(&Unsubscribe { id: 60_001, filters }).await;
        self.take_until(|packet| matches!(packet, Packet::Unsuback(_))).await;
        self.subscribe().await;
    }

    async fn take_until(&mut self, wanted: impl Fn(&Packet) -> bool) {
        loop {
            match self.actor.link().recv().await.expect("open") {
                packet if wanted(&packet) => return,
                packet => self.take(packet),
            }
        }
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Publish(publish) => {
                let number = publish.text().parse().expect("a number");
                let mut record = self.groups.record.lock();
                if publish.qos == 1 {
                    record.once.entry(number).or_default().push(self.connection);
                    self.late.push_back(Ack::new(Kind::Puback, publish.id));
                } else {
                    if self.received.insert(publish.id) {
                        record.exactly.push(number);
                    }
                    self.late.push_back(Ack::new(Kind::Pubrec, publish.id));
                }
            }
            Packet::Ack(ack) if ack.kind == Kind::Pubrel => {
                self.received.remove(&ack.id);
                self.late.push_back(Ack::new(Kind::Pubcomp, ack.id));
            }
            other => panic!("{other:?} to a member"),
        }
    }
}

async fn share(house: Arc<House>, seed: u64) {
    let groups = Arc::new(Groups {
        prefix: format!("shared/{seed}"),
        record: Mutex::default(),
        next_connection: AtomicU32::new(0),
        joining: AtomicU32::new(4),
    });
    let mut members = JoinSet::new();
    for n in 0..4 {
        let mut actor = Actor::new(&house, seed * 100 + n, format!("{}/m{n}", groups.prefix));
        let persistent = n < 2;
        if !persistent {
            actor.connect.clean = true;
            actor.connect.properties.clear();
        }
        let groups = Arc::clone(&groups);
        let (received, late) = (HashSet::new(), VecDeque::new());
        let member = Member { actor, groups, persistent, first: n == 0, connection: 0, received, late };
        members.spawn(member.run());
    }
    while groups.joining.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (mut publisher, _) = house.connect(&Connect::v311(&format!("{}/p", groups.prefix))).await;
    for number in 0..MESSAGES {
        let topic = format!("{}/1", groups.prefix);
        publisher.publish(&topic, number.to_string()).await;
        let topic = format!("{}/2", groups.prefix);
        let publish = Publish::new(&topic, number.to_string()).qos(2).id(1);
        publisher.send(&publish).await.expect("open");
        assert_eq!(publisher.recv().await, Ok(Packet::Ack(Ack::new(Kind::Pubrec, 1))));
        publisher.send(&Ack::new(Kind::Pubrel, 1)).await.expect("open");
        assert_eq!(publisher.recv().await, Ok(Packet::Ack(Ack::new(Kind::Pubcomp, 1))));
    }
    if tokio::time::timeout(PATIENCE, members.join_all()).await.is_err() {
        panic!("{}", groups.record.lock().missing());
    }
    groups.record.lock().check();
}

#[test]
fn each_message_goes_to_one_member() {
    each_seed(|house, seed| async move { share(house, seed).await });
}
