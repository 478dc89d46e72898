//! What the bytes of an input mean.

use crate::common::packet::*;
use crate::common::property::*;

/// Clients at the same time; fewer identifiers, so that they take each other's sessions over.
pub const SLOTS: usize = 4;

const IDS: [&str; 4] = ["a", "b", "", "an identifier that is too long"];
const TOPICS: [&str; 9] = ["t", "t/a", "t/b", "delay/a", "drop/a", "refuse/a", "close/a", "$SYS/a", "u"];
const FILTERS: [&str; 12] = [
    "t/#",
    "t/+",
    "#",
    "+/a",
    "$share/g/t/#",
    "$share/g/#",
    "$share/h/t/a",
    "refuse/#",
    "close/#",
    "drop/a",
    "t/#/no",
    "$share//t",
];

/// What a client does next.
pub enum Step<'a> {
    /// A new connection, instead of the one that is there; so many bytes fit into each direction.
    Open(usize),
    /// Closes without a word.
    Vanish,
    /// Waits so many milliseconds.
    Sleep(u64),
    /// Says which version it speaks from now on, and connects.
    Connect(Connect),
    /// Publishes; without the properties if its version has none.
    Publish(Publish),
    /// Sends another packet.
    Send(Box<dyn Encode>),
    /// Sends any bytes.
    Raw(&'a [u8]),
    /// Sends the next packet in two parts.
    Cut(usize),
    /// Takes what is there.
    Read,
    /// The same, and acknowledges it as it should be.
    Acknowledge,
}

/// The bytes that are left.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next step and who does it.
    pub fn step(&mut self) -> Option<(usize, Step<'a>)> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        let step = match first >> 2 & 15 {
            0 => Step::Open([16, 200, 65_536][self.below(3)]),
            1 => Step::Vanish,
            2 => Step::Sleep(self.below(22) as u64),
            3 => Step::Connect(self.connect()),
            4 | 5 => Step::Send(Box::new(self.subscribe())),
            6 => Step::Send(Box::new(Unsubscribe::new(self.id(), &[FILTERS[self.below(FILTERS.len())]]))),
            7..=9 => Step::Publish(self.publish()),
            10 => Step::Send(Box::new(self.ack())),
            11 => Step::Send(Box::new(self.short_packet())),
            12 => Step::Raw(self.bytes()),
            13 => Step::Cut(self.below(20)),
            14 => Step::Read,
            _ => Step::Acknowledge,
        };
        Some((usize::from(first & 3), step))
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    fn id(&mut self) -> u16 {
        1 + self.below(6) as u16
    }

    fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn connect(&mut self) -> Connect {
        let (flags, more) = (self.byte(), self.byte());
        let version = if flags & 1 == 0 { Version::V311 } else { Version::V5 };
        let mut connect = Connect::new(version, IDS[usize::from(flags >> 1 & 3)]);
        connect.clean = flags & 8 != 0;
        connect.keep_alive = [0, 1, 60, 60_000][usize::from(flags >> 4 & 3)];
        if flags & 64 != 0 {
            connect = connect.will(self.will(version));
        }
        if version == Version::V5 {
            let expiry = [0, 1, 600, u32::MAX][usize::from(more & 3)];
            connect = connect.with(int(SESSION_EXPIRY, expiry));
            connect = connect.with(short(TOPIC_ALIAS_MAXIMUM, u16::from(more >> 2 & 3)));
            if more & 16 != 0 {
                connect = connect.with(short(RECEIVE_MAXIMUM, 1 + u16::from(more >> 5 & 1)));
            }
            if more & 64 != 0 {
                connect = connect.with(int(MAXIMUM_PACKET_SIZE, 1 + u32::from(self.byte())));
            }
        }
        connect
    }

    fn will(&mut self, version: Version) -> Will {
        let flags = self.byte();
        let mut will = Will::new(TOPICS[self.below(TOPICS.len())], "will").qos(flags & 3);
        will.retain = flags & 4 != 0;
        if version == Version::V5 && flags & 8 != 0 {
            will = will.with(int(WILL_DELAY, u32::from(flags >> 4 & 1)));
        }
        will
    }

    fn subscribe(&mut self) -> Subscribe {
        let (id, count) = (self.id(), 1 + self.below(3));
        let filters =
            (0..count).map(|_| (FILTERS[self.below(FILTERS.len())].to_owned(), self.byte() & 0x2F)).collect();
        Subscribe { id, filters, properties: Vec::new() }
    }

    fn publish(&mut self) -> Publish {
        let (flags, topic) = (self.byte(), TOPICS[self.below(TOPICS.len())]);
        let mut publish = Publish::new(topic, self.bytes()).qos(flags >> 1 & 3).id(self.id());
        (publish.retain, publish.dup) = (flags & 1 != 0, flags & 8 != 0);
        if flags & 16 != 0 {
            publish = publish.with(short(TOPIC_ALIAS, self.below(5) as u16));
        }
        if flags & 32 != 0 {
            publish = publish.with(int(MESSAGE_EXPIRY, self.below(3) as u32));
        }
        if flags & 64 != 0 {
            publish.topic.clear();
        }
        publish
    }

    fn ack(&mut self) -> Ack {
        let kinds = [Kind::Puback, Kind::Pubrec, Kind::Pubrel, Kind::Pubcomp];
        Ack::new(kinds[self.below(4)], self.id()).code([0, 0x10, 0x80, 0x92][self.below(4)])
    }

    /// PINGREQ, DISCONNECT in some forms, or nothing but a header.
    fn short_packet(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => vec![0xC0, 0],
            1 => vec![0xE0, 0],
            2 => vec![0xE0, 1, self.byte()],
            3 => vec![0xE0, 7, 0, 5, SESSION_EXPIRY, 0, 0, 0, self.byte()],
            4 => vec![0xF0, 0],
            _ => vec![self.byte(), self.byte()],
        }
    }
}
