//! A client that may do anything, and checks everything the gateway tells it.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::common::decode::Packet;
use crate::common::packet::{Ack, Connect, Encode, Kind, Publish, Version};
use crate::common::property::{
    Lookup, MAXIMUM_PACKET_SIZE, RECEIVE_MAXIMUM, TOPIC_ALIAS, TOPIC_ALIAS_MAXIMUM,
};
use crate::house::{End, Link};

/// What the gateway may answer with when it closes, beside what is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Bytes that may mean anything.
    Garbage,
    /// Perhaps more QoS 1 and 2 messages than the gateway's Receive Maximum.
    Many,
    /// A topic alias that may stand for nothing or be out of range.
    Alias,
    /// Another connection with the same identifier.
    TakenOver,
    /// A DISCONNECT of its own.
    Left,
}

/// A connection with what it may expect.
pub struct Peer {
    pub id: String,
    pub filters: HashSet<String>,
    link: Link,
    connected: bool,
    closed: bool,
    /// DISCONNECT came: nothing may follow.
    told: Option<u8>,
    faults: HashSet<Fault>,
    receive_maximum: usize,
    maximum_packet_size: usize,
    alias_maximum: u16,
    aliases: HashMap<u16, String>,
    /// Messages to be acknowledged, in order, and all that were not acknowledged to the end.
    inbox: VecDeque<Ack>,
    unacknowledged: HashSet<u16>,
    /// Identifiers that a stray acknowledgement named: the gateway may take them as free.
    doubtful: HashSet<u16>,
    /// Answers that are due.
    owed: Vec<Owed>,
    /// The rest of a packet that was cut in two.
    rest: Vec<u8>,
    cut: Option<usize>,
}

/// An answer that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owed {
    Ack(Kind, u16),
    Suback(u16, usize),
    Unsuback(u16, usize),
    Pingresp,
}

impl Peer {
    /// Sends CONNECT.
    pub async fn start(mut link: Link, connect: &Connect) -> Self {
        let number = |id, usual| connect.properties.number(id).unwrap_or(usual);
        link.send(connect).await.expect("CONNECT is taken");
        Self {
            id: connect.id.clone(),
            filters: HashSet::new(),
            link,
            connected: false,
            closed: false,
            told: None,
            faults: HashSet::new(),
            receive_maximum: number(RECEIVE_MAXIMUM, 65_535) as usize,
            maximum_packet_size: number(MAXIMUM_PACKET_SIZE, u32::MAX) as usize,
            alias_maximum: number(TOPIC_ALIAS_MAXIMUM, 0) as u16,
            aliases: HashMap::new(),
            inbox: VecDeque::new(),
            unacknowledged: HashSet::new(),
            doubtful: HashSet::new(),
            owed: Vec::new(),
            rest: Vec::new(),
            cut: None,
        }
    }

    /// Reads CONNACK, which is due; whether there was a session.
    pub async fn accepted(&mut self) -> bool {
        match self.link.recv().await {
            Ok(Packet::Connack(connack)) => {
                assert_eq!(connack.code, 0, "refused");
                self.connected = true;
                connack.session_present
            }
            other => panic!("{other:?} instead of CONNACK"),
        }
    }

    pub fn version(&self) -> Version {
        self.link.version
    }

    pub fn is_open(&self) -> bool {
        !self.closed && self.told.is_none() && !self.faults.contains(&Fault::Left)
    }

    pub fn fault(&mut self, fault: Fault) {
        self.faults.insert(fault);
    }

    /// The next packet is sent in two parts, the second one with whatever is sent next.
    pub fn cut_next(&mut self, at: usize) {
        self.cut = Some(at);
    }

    /// Sends bytes to which these answers are due.
    pub async fn send(&mut self, what: &(impl Encode + ?Sized), owed: Option<Owed>) {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.extend(what.encode(self.link.version));
        if let Some(at) = self.cut.take() {
            self.rest = bytes.split_off(at.min(bytes.len() - 1));
        }
        // when it can't be sent, reading will tell why
        let _ = self.link.send(&bytes).await;
        self.owed.extend(owed);
    }

    /// Acknowledges the oldest message or release as it should be.
    pub async fn acknowledge(&mut self) {
        let Some(ack) = self.inbox.pop_front() else { return };
        if matches!(ack.kind, Kind::Puback | Kind::Pubcomp) {
            self.unacknowledged.remove(&ack.id);
        }
        self.send(&ack, None).await;
    }

    /// Acknowledges something that was perhaps never sent.
    pub async fn stray(&mut self, ack: Ack) {
        self.doubtful.insert(ack.id);
        self.unacknowledged.remove(&ack.id);
        let owed = (ack.kind == Kind::Pubrel).then_some(Owed::Ack(Kind::Pubcomp, ack.id));
        self.send(&ack, owed).await;
    }

    /// Takes what is there now.
    pub fn read(&mut self) {
        while !self.closed {
            match self.link.try_recv() {
                Ok(packet) => self.check(packet),
                Err(End::Nothing) => return,
                Err(End::Closed) => {
                    self.closed = true;
                    self.check_close();
                }
            }
        }
    }

    /// Waits until every answer has come, or the connection is closed for a sound reason.
    pub async fn settle(&mut self) {
        if self.faults.contains(&Fault::Garbage) && self.told.is_none() {
            // it may be the beginning of a long packet
            return self.read();
        }
        self.cut = None;
        let rest = std::mem::take(&mut self.rest);
        let _ = self.link.send(&rest).await;
        if self.is_open() {
            self.send(&[0xC0, 0], Some(Owed::Pingresp)).await;
        }
        while !self.closed && (!self.owed.is_empty() || !self.is_open()) {
            match self.link.recv().await {
                Ok(packet) => self.check(packet),
                Err(_) => {
                    self.closed = true;
                    self.check_close();
                }
            }
        }
    }

    /// What it waits for, to be shown when it waits in vain.
    pub fn owed(&self) -> &[Owed] {
        &self.owed
    }

    fn check(&mut self, packet: Packet) {
        assert!(self.connected && self.told.is_none(), "{packet:?} after the end of {}", self.id);
        let size = packet_size(&packet, self.link.version);
        assert!(size <= self.maximum_packet_size, "{size} bytes are too many: {packet:?}");
        match packet {
            Packet::Publish(publish) => self.check_publish(publish),
            Packet::Ack(ack) if ack.kind == Kind::Pubrel => {
                self.inbox.push_back(Ack::new(Kind::Pubcomp, ack.id));
            }
            Packet::Ack(ack) => self.answered(&Owed::Ack(ack.kind, ack.id)),
            Packet::Suback(suback) => self.answered(&Owed::Suback(suback.id, suback.codes.len())),
            Packet::Unsuback(unsuback) => self.answered_unsuback(unsuback.id, unsuback.codes.len()),
            Packet::Pingresp => self.answered(&Owed::Pingresp),
            Packet::Disconnect(disconnect) => {
                self.told = Some(disconnect.code);
                self.check_reason(disconnect.code);
            }
            Packet::Connack(_) | Packet::Auth(_) => panic!("{packet:?} in the middle of a connection"),
        }
    }

    fn answered_unsuback(&mut self, id: u16, codes: usize) {
        let known = self.owed.iter().position(|owed| matches!(owed, Owed::Unsuback(due, _) if *due == id));
        match known.map(|index| self.owed.remove(index)) {
            Some(Owed::Unsuback(_, count)) => {
                assert_eq!(codes, if self.link.version == Version::V5 { count } else { 0 });
            }
            _ => assert!(self.faults.contains(&Fault::Garbage), "UNSUBACK {id} was not due to {}", self.id),
        }
    }

    fn answered(&mut self, answer: &Owed) {
        match self.owed.iter().position(|owed| owed == answer) {
            Some(index) => {
                self.owed.remove(index);
            }
            None => assert!(self.faults.contains(&Fault::Garbage), "{answer:?} was not due to {}", self.id),
        }
    }

    fn check_publish(&mut self, publish: Publish) {
        let topic = self.resolve(&publish);
        let wanted = self.filters.iter().any(|filter| matches(plain(filter), &topic));
        assert!(
            wanted || self.faults.contains(&Fault::Garbage),
            "{} gets {topic} but has only {:?}",
            self.id,
            self.filters
        );
        if publish.qos == 0 {
            return;
        }
        let id = publish.id;
        let new = self.unacknowledged.insert(id);
        let doubtful = self.doubtful.remove(&id) || self.faults.contains(&Fault::Garbage);
        assert!(new || doubtful, "identifier {id} is in use at {}", self.id);
        if doubtful {
            self.unacknowledged.remove(&id);
        }
        let count = self.unacknowledged.len();
        assert!(count <= self.receive_maximum, "{count} unacknowledged at {}", self.id);
        self.inbox.push_back(Ack::new(if publish.qos == 1 { Kind::Puback } else { Kind::Pubrec }, id));
    }

    fn resolve(&mut self, publish: &Publish) -> String {
        let Some(alias) = publish.properties.number(TOPIC_ALIAS) else { return publish.topic.clone() };
        let alias = alias as u16;
        assert!(alias <= self.alias_maximum, "alias {alias} is over the maximum of {}", self.id);
        if !publish.topic.is_empty() {
            self.aliases.insert(alias, publish.topic.clone());
        }
        self.aliases.get(&alias).expect("an alias that was introduced").clone()
    }

    /// A connection ends only for a reason.
    fn check_close(&self) {
        let silent = self.link.version == Version::V311
            || self.faults.contains(&Fault::Left)
            || self.faults.contains(&Fault::Garbage);
        assert!(self.told.is_some() || silent, "{} was closed without a word", self.id);
        assert!(!self.faults.is_empty(), "{} was closed for nothing", self.id);
    }

    fn check_reason(&self, code: u8) {
        let has = |fault| self.faults.contains(&fault);
        let sound = match code {
            0x81 | 0x95 => has(Fault::Garbage),
            0x82 => has(Fault::Garbage) || has(Fault::Alias),
            0x8E => has(Fault::TakenOver),
            0x93 => has(Fault::Many) || has(Fault::Garbage),
            0x94 => has(Fault::Alias) || has(Fault::Garbage),
            _ => false,
        };
        assert!(sound, "{} was told 0x{code:02x} after {:?}", self.id, self.faults);
    }
}

/// What a packet weighs on the wire, from what can make it large.
fn packet_size(packet: &Packet, version: Version) -> usize {
    match packet {
        Packet::Publish(publish) => publish.encode(version).len(),
        Packet::Ack(ack) => ack.encode(version).len(),
        Packet::Disconnect(disconnect) => disconnect.encode(version).len(),
        _ => 0,
    }
}

/// The filter behind `$share/group/`.
fn plain(filter: &str) -> &str {
    match filter.strip_prefix("$share/") {
        Some(rest) => rest.split_once('/').map_or(rest, |(_, plain)| plain),
        None => filter,
    }
}

fn matches(filter: &str, topic: &str) -> bool {
    match (filter.split_once('/'), topic.split_once('/')) {
        _ if filter == "#" => true,
        (Some((wanted, more)), Some((level, rest))) => {
            (wanted == "+" || wanted == level) && matches(more, rest)
        }
        (Some((wanted, "#")), None) => wanted == topic,
        (None, None) => filter == "+" || filter == topic,
        _ => false,
    }
}
