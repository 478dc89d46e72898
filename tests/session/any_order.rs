//! Any packets in any order from several clients.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestRunner};

use crate::common::decode::Packet;
use crate::common::packet::*;
use crate::common::property::*;
use crate::house::{House, assert_no_panics, number_from, run};
use crate::peer::{Fault, Owed, Peer};

/// Clients at the same time; fewer identifiers, so that they take each other's sessions over.
const SLOTS: usize = 4;
const IDS: u8 = 3;
const FILTERS: [&str; 8] =
    ["t/a", "t/+", "t/#", "t/a/b", "$share/g/t/#", "$share/g/t/a", "$share/h/t/a", "t/a/#"];
const TOPICS: [&str; 4] = ["t/a", "t/b", "t/a/b", "t"];

#[derive(Debug, Clone)]
enum Action {
    Connect(Connecting),
    Leave(bool),
    Vanish,
    Subscribe(Vec<(u8, u8)>, Option<u8>),
    Unsubscribe(u8),
    Publish(Publishing),
    Acknowledge,
    Stray(u8, u8, bool),
    Ping,
    Cut(u8),
    Garbage(Vec<u8>),
    Read,
}

#[derive(Debug, Clone)]
struct Connecting {
    id: u8,
    v5: bool,
    clean: bool,
    /// Seconds that the session outlives the connection, for MQTT 5.
    expiry: u32,
    receive_maximum: Option<u16>,
    maximum_packet_size: Option<u32>,
    aliases: u16,
    will: Option<(u8, u8, u32)>,
    buffer: usize,
}

#[derive(Debug, Clone)]
struct Publishing {
    topic: u8,
    qos: u8,
    retain: bool,
    dup: bool,
    id: u8,
    /// An alias, and whether the topic's name goes with it.
    alias: Option<(u8, bool)>,
    size: u16,
    expiry: Option<u8>,
}

fn connecting() -> impl Strategy<Value = Connecting> {
    let limits = (
        prop::option::of(1..4_u16),
        prop::option::of(prop::sample::select(vec![16_u32, 30, 100, 1000])),
        prop::sample::select(vec![0_u16, 1, 3]),
    );
    let will = prop::option::weighted(0.3, (0..TOPICS.len() as u8, 0..3_u8, 0..2_u32));
    let buffer = prop::sample::select(vec![16, 200, 65_536]);
    let expiry = prop::sample::select(vec![0, 1, 600]);
    (0..IDS, any::<(bool, bool)>(), expiry, limits, will, buffer).prop_map(
        |(id, (v5, clean), expiry, (receive_maximum, maximum_packet_size, aliases), will, buffer)| {
            Connecting { id, v5, clean, expiry, receive_maximum, maximum_packet_size, aliases, will, buffer }
        },
    )
}

fn publishing() -> impl Strategy<Value = Publishing> {
    let alias = prop::option::weighted(0.2, (1..6_u8, any::<bool>()));
    let size = prop_oneof![8 => 0..40_u16, 1 => 900..2000_u16];
    let expiry = prop::option::weighted(0.2, 0..3_u8);
    (0..TOPICS.len() as u8, 0..3_u8, any::<(bool, bool)>(), 1..12_u8, alias, size, expiry).prop_map(
        |(topic, qos, (retain, dup), id, alias, size, expiry)| {
            let dup = dup && qos > 0;
            Publishing { topic, qos, retain, dup, id, alias, size, expiry }
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let filters = vec((0..FILTERS.len() as u8, 0..3_u8), 1..4);
    prop_oneof![
        5 => connecting().prop_map(Action::Connect),
        1 => any::<bool>().prop_map(Action::Leave),
        1 => Just(Action::Vanish),
        6 => (filters, prop::option::of(1..200_u8)).prop_map(|(list, id)| Action::Subscribe(list, id)),
        2 => (0..FILTERS.len() as u8).prop_map(Action::Unsubscribe),
        12 => publishing().prop_map(Action::Publish),
        10 => Just(Action::Acknowledge),
        2 => (4..8_u8, 1..12_u8, any::<bool>()).prop_map(|(kind, id, error)| Action::Stray(kind, id, error)),
        1 => Just(Action::Ping),
        2 => any::<u8>().prop_map(Action::Cut),
        1 => vec(any::<u8>(), 1..20).prop_map(Action::Garbage),
        6 => Just(Action::Read),
    ]
}

fn house() -> &'static House {
    static HOUSE: OnceLock<House> = OnceLock::new();
    HOUSE.get_or_init(|| {
        House::start(|settings| {
            settings.session.receive_maximum = 8;
            settings.session.topic_alias_maximum = 3;
            settings.session.max_packet_size = 2200;
            settings.session.max_subscriptions = 6;
            settings.queue.max_messages = 12;
            settings.queue.offline_messages = 10;
            settings.queue.progress_timeout = 1;
        })
    })
}

/// What happens in one case.
struct Scene {
    /// Comes before every identifier and topic, so that cases do not meet.
    prefix: String,
    peers: [Option<Peer>; SLOTS],
    /// What each session may have been subscribed to since it began.
    filters: HashMap<String, HashSet<String>>,
    next_id: u16,
}

impl Scene {
    fn new() -> Self {
        static CASE: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("{}/", CASE.fetch_add(1, Ordering::Relaxed));
        Self { prefix, peers: Default::default(), filters: HashMap::new(), next_id: 1000 }
    }

    fn filter(&self, index: u8) -> String {
        let filter = FILTERS[usize::from(index)];
        match filter.strip_prefix("$share/") {
            Some(rest) => {
                let (group, plain) = rest.split_once('/').expect("a group");
                format!("$share/{group}/{}{plain}", self.prefix)
            }
            None => format!("{}{filter}", self.prefix),
        }
    }

    fn topic(&self, index: u8) -> String {
        format!("{}{}", self.prefix, TOPICS[usize::from(index)])
    }

    async fn perform(&mut self, slot: usize, action: &Action) {
        match action {
            Action::Connect(connecting) => self.connect(slot, connecting).await,
            Action::Vanish => self.peers[slot] = None,
            _ if self.peers[slot].as_ref().is_none_or(|peer| !peer.is_open()) => {}
            Action::Subscribe(list, identifier) => self.subscribe(slot, list, *identifier).await,
            Action::Unsubscribe(filter) => {
                let (filter, id) = (self.filter(*filter), self.fresh_id());
                let packet = Unsubscribe::new(id, &[&filter]);
                self.peer(slot).send(&packet, Some(Owed::Unsuback(id, 1))).await;
            }
            Action::Publish(publishing) => self.publish(slot, publishing).await,
            Action::Leave(normal) => {
                let code = if *normal || self.peer(slot).version() == Version::V311 { 0 } else { 4 };
                self.peer(slot).send(&Disconnect::code(code), None).await;
                self.peer(slot).fault(Fault::Left);
            }
            Action::Acknowledge => self.peer(slot).acknowledge().await,
            Action::Stray(kind, id, error) => {
                let kinds = [Kind::Puback, Kind::Pubrec, Kind::Pubrel, Kind::Pubcomp];
                let kind = kinds[usize::from(*kind - 4)];
                let may_fail = matches!(kind, Kind::Puback | Kind::Pubrec);
                let error = *error && may_fail && self.peer(slot).version() == Version::V5;
                let ack = Ack::new(kind, u16::from(*id)).code(if error { 0x80 } else { 0 });
                self.peer(slot).stray(ack).await;
            }
            Action::Ping => self.peer(slot).send(&PINGREQ, Some(Owed::Pingresp)).await,
            Action::Cut(at) => self.peer(slot).cut_next(usize::from(*at % 20)),
            Action::Garbage(bytes) => {
                self.peer(slot).fault(Fault::Garbage);
                self.peer(slot).send(bytes, None).await;
            }
            Action::Read => {}
        }
        if let Some(peer) = &mut self.peers[slot] {
            peer.read();
        }
    }

    async fn connect(&mut self, slot: usize, connecting: &Connecting) {
        let id = format!("{}{}", self.prefix, connecting.id);
        let version = if connecting.v5 { Version::V5 } else { Version::V311 };
        let mut connect = Connect::new(version, &id);
        connect.clean = connecting.clean;
        if let Some((topic, qos, delay)) = connecting.will {
            let mut will = Will::new(&self.topic(topic), "will").qos(qos);
            if connecting.v5 {
                will = will.with(int(WILL_DELAY, delay));
            }
            connect = connect.will(will);
        }
        if connecting.v5 {
            connect = connect.with(int(SESSION_EXPIRY, connecting.expiry));
            connect = connect.with(short(TOPIC_ALIAS_MAXIMUM, connecting.aliases));
            if let Some(maximum) = connecting.receive_maximum {
                connect = connect.with(short(RECEIVE_MAXIMUM, maximum));
            }
            if let Some(maximum) = connecting.maximum_packet_size {
                // CONNACK itself needs some
                connect = connect.with(int(MAXIMUM_PACKET_SIZE, maximum.max(30)));
            }
        }
        for peer in self.peers.iter_mut().flatten().filter(|peer| peer.id == id) {
            peer.fault(Fault::TakenOver);
        }
        let mut peer = Peer::start(house().open(version, connecting.buffer), &connect).await;
        let present = peer.accepted().await;
        assert!(!(present && connecting.clean), "a clean start finds a session");
        let known = self.filters.entry(id).or_default();
        if !present {
            known.clear();
        }
        peer.filters.clone_from(known);
        self.peers[slot] = Some(peer);
    }

    async fn subscribe(&mut self, slot: usize, list: &[(u8, u8)], identifier: Option<u8>) {
        let filters: Vec<(String, u8)> =
            list.iter().map(|(filter, options)| (self.filter(*filter), *options)).collect();
        let id = self.fresh_id();
        let count = filters.len();
        let mut packet = Subscribe { id, filters: filters.clone(), properties: Vec::new() };
        let peer = self.peers[slot].as_mut().expect("a peer");
        if let Some(identifier) = identifier.filter(|_| peer.version() == Version::V5) {
            packet = packet.with(subscription_id(identifier.into()));
        }
        for (filter, _) in filters {
            self.filters.entry(peer.id.clone()).or_default().insert(filter.clone());
            peer.filters.insert(filter);
        }
        peer.send(&packet, Some(Owed::Suback(id, count))).await;
    }

    async fn publish(&mut self, slot: usize, publishing: &Publishing) {
        let topic = self.topic(publishing.topic);
        let peer = self.peers[slot].as_mut().expect("a peer");
        let id = u16::from(publishing.id);
        let mut packet = Publish::new(&topic, vec![b'x'; publishing.size.into()]).qos(publishing.qos).id(id);
        (packet.retain, packet.dup) = (publishing.retain, publishing.dup);
        if peer.version() == Version::V5 {
            if let Some((alias, named)) = publishing.alias {
                packet = packet.with(short(TOPIC_ALIAS, alias.into()));
                peer.fault(Fault::Alias);
                if !named {
                    packet.topic.clear();
                }
            }
            if let Some(seconds) = publishing.expiry {
                packet = packet.with(int(MESSAGE_EXPIRY, seconds.into()));
            }
            peer.fault(Fault::Many);
        }
        let owed = match publishing.qos {
            0 => None,
            1 => Some(Owed::Ack(Kind::Puback, id)),
            _ => Some(Owed::Ack(Kind::Pubrec, id)),
        };
        peer.send(&packet, owed).await;
    }

    fn peer(&mut self, slot: usize) -> &mut Peer {
        self.peers[slot].as_mut().expect("looked before")
    }

    fn fresh_id(&mut self) -> u16 {
        self.next_id += 1;
        self.next_id
    }

    /// Every connection answers or is closed for a reason; others are served; nothing is left behind.
    async fn finish(mut self) {
        for peer in self.peers.iter_mut().flatten() {
            let waiting = format!("{} waits for {:?}", peer.id, peer.owed());
            let settled = tokio::time::timeout(crate::common::PATIENCE, peer.settle()).await;
            assert!(settled.is_ok(), "{waiting}");
        }
        serve_others(&self.prefix).await;
        drop(self.peers);
        house().wait_until_empty().await;
        for id in 0..IDS {
            house().connect(&Connect::v311(&format!("{}{id}", self.prefix))).await;
        }
        house().wait_until_empty().await;
        assert_no_panics();
    }
}

async fn serve_others(prefix: &str) {
    let topic = format!("other/{prefix}");
    let (mut other, _) = house().connect(&Connect::v5(&format!("{prefix}other"))).await;
    other.send(&Subscribe::new(1, &[(&topic, 1)])).await.expect("open");
    other.send(&Publish::new(&topic, "served").qos(1).id(2)).await.expect("open");
    let mut due = vec!["SUBACK", "PUBACK", "PUBLISH"];
    while !due.is_empty() {
        let name = match other.recv().await.expect("open") {
            Packet::Suback(_) => "SUBACK",
            Packet::Ack(_) => "PUBACK",
            Packet::Publish(publish) => {
                assert_eq!(publish.text(), "served");
                "PUBLISH"
            }
            other => panic!("{other:?} was not due"),
        };
        due.retain(|left| *left != name);
    }
}

/// Whatever clients do, nobody panics or hangs, and what the gateway sends is sound.
#[test]
fn any_order_of_packets() {
    let config = ProptestConfig {
        cases: number_from("TIDEGATE_TEST_CASES", 400) as u32,
        rng_seed: RngSeed::Fixed(number_from("TIDEGATE_TEST_SEED", 1)),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/session/regressions.txt"))),
        max_shrink_iters: number_from("TIDEGATE_TEST_SHRINK", 300) as u32,
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    };
    let actions = vec((0..SLOTS, action()), 1..80);
    let result = TestRunner::new(config).run(&actions, |actions| {
        run(async {
            let mut scene = Scene::new();
            for (slot, action) in &actions {
                scene.perform(*slot, action).await;
            }
            scene.finish().await;
        });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
