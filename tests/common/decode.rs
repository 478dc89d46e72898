//! How a client reads what a server sends. Strict: whatever the specifications forbid fails the test.

use super::packet::{Ack, Disconnect, Kind, Publish, Version};
use super::property::*;

/// A packet from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Connack(Connack),
    Publish(Publish),
    Ack(Ack),
    Suback(Suback),
    Unsuback(Suback),
    Pingresp,
    Disconnect(Disconnect),
    Auth(Disconnect),
}

/// CONNACK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connack {
    pub session_present: bool,
    pub code: u8,
    pub properties: Properties,
}

/// SUBACK or UNSUBACK (which has no codes in 3.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suback {
    pub id: u16,
    pub codes: Vec<u8>,
    pub properties: Properties,
}

/// The length of the packet at the start of `input` once all of it is there.
pub fn packet_length(input: &[u8]) -> Option<usize> {
    let mut length = 0;
    for (index, byte) in input.iter().skip(1).enumerate() {
        length |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let total = length + index + 2;
            return (input.len() >= total).then_some(total);
        }
        assert!(index < 3, "the server sent a remaining length of more than four bytes");
    }
    None
}

/// Reads one whole packet.
pub fn decode(input: &[u8], version: Version) -> Packet {
    let header = 1 + input[1..].iter().position(|byte| byte & 0x80 == 0).expect("a remaining length") + 1;
    let mut reader = Reader { rest: &input[header..], version };
    let flags = input[0] & 0x0F;
    let kind = input[0] >> 4;
    let expected = if kind == 6 { 2 } else { 0 };
    assert!(kind == 3 || flags == expected, "reserved flags of packet type {kind} are {flags:04b}");
    let packet = match kind {
        2 => reader.connack(),
        3 => reader.publish(flags),
        4 => reader.ack(Kind::Puback),
        5 => reader.ack(Kind::Pubrec),
        6 => reader.ack(Kind::Pubrel),
        7 => reader.ack(Kind::Pubcomp),
        9 => Packet::Suback(reader.suback(9)),
        11 => Packet::Unsuback(reader.suback(11)),
        13 => Packet::Pingresp,
        14 if version == Version::V5 => Packet::Disconnect(reader.reason(14)),
        15 if version == Version::V5 => Packet::Auth(reader.reason(15)),
        _ => panic!("a server must not send packet type {kind} ({version:?})"),
    };
    assert!(reader.rest.is_empty(), "{} bytes too many after {packet:?}", reader.rest.len());
    packet
}

struct Reader<'a> {
    rest: &'a [u8],
    version: Version,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        assert!(self.rest.len() >= count, "the packet is too short: {count} bytes wanted of {:?}", self.rest);
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn short(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().expect("two bytes"))
    }

    fn int(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.short());
        self.take(length).to_vec()
    }

    fn text(&mut self) -> String {
        let text = String::from_utf8(self.bytes()).expect("the server sent text that is not UTF-8");
        assert!(!text.contains('\0'), "the server sent text with U+0000");
        text
    }

    fn var_int(&mut self) -> u32 {
        let mut value = 0;
        for index in 0..4 {
            let byte = self.byte();
            value |= u32::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                assert!(index == 0 || byte != 0, "a variable byte integer longer than needed");
                return value;
            }
        }
        panic!("a variable byte integer of more than four bytes");
    }

    fn connack(&mut self) -> Packet {
        let flags = self.byte();
        assert!(flags <= 1, "reserved CONNACK flags are set: {flags:08b}");
        let code = self.byte();
        let properties = self.properties(2);
        assert!(code == 0 || flags == 0, "a refusing CONNACK says session present");
        Packet::Connack(Connack { session_present: flags == 1, code, properties })
    }

    fn publish(&mut self, flags: u8) -> Packet {
        let qos = flags >> 1 & 3;
        assert!(qos < 3, "the server sent QoS 3");
        let dup = flags & 8 != 0;
        assert!(qos > 0 || !dup, "the server sent DUP at QoS 0");
        let topic = self.text();
        assert!(!topic.contains(['+', '#']), "the server sent a wildcard in the topic {topic}");
        let id = if qos > 0 { self.short() } else { 0 };
        assert!(qos == 0 || id != 0, "the server sent packet identifier 0");
        let properties = self.properties(3);
        assert!(!topic.is_empty() || properties.find(TOPIC_ALIAS).is_some(), "no topic and no alias");
        let payload = self.take(self.rest.len()).to_vec();
        Packet::Publish(Publish { dup, qos, retain: flags & 1 != 0, topic, id, properties, payload })
    }

    fn ack(&mut self, kind: Kind) -> Packet {
        let id = self.short();
        let Disconnect { code, properties } = self.reason(kind as u8);
        Packet::Ack(Ack { kind, id, code, properties })
    }

    /// A reason code and properties, both of which may be left out at the end of a packet.
    fn reason(&mut self, kind: u8) -> Disconnect {
        if self.version == Version::V311 || self.rest.is_empty() {
            return Disconnect::default();
        }
        let code = self.byte();
        let properties = if self.rest.is_empty() { Vec::new() } else { self.properties(kind) };
        Disconnect { code, properties }
    }

    fn suback(&mut self, kind: u8) -> Suback {
        let id = self.short();
        let properties = self.properties(kind);
        Suback { id, codes: self.take(self.rest.len()).to_vec(), properties }
    }

    fn properties(&mut self, kind: u8) -> Properties {
        if self.version == Version::V311 {
            return Vec::new();
        }
        let length = self.var_int() as usize;
        let mut inner = Reader { rest: self.take(length), version: self.version };
        let mut list = Properties::new();
        while !inner.rest.is_empty() {
            let id = u8::try_from(inner.var_int()).expect("a property identifier");
            let repeats = id == USER_PROPERTY || id == SUBSCRIPTION_ID;
            assert!(repeats || list.find(id).is_none(), "property 0x{id:02x} appears twice");
            assert!(allowed(id, kind), "property 0x{id:02x} is not allowed in packet type {kind}");
            let value = inner.value(id);
            list.push((id, value));
        }
        list
    }

    fn value(&mut self, id: u8) -> Value {
        match id {
            PAYLOAD_FORMAT
            | MAXIMUM_QOS
            | RETAIN_AVAILABLE
            | WILDCARD_SUBSCRIPTION_AVAILABLE
            | SUBSCRIPTION_IDS_AVAILABLE
            | SHARED_SUBSCRIPTION_AVAILABLE => {
                let value = self.byte();
                assert!(value <= 1, "property 0x{id:02x} is {value}, not 0 or 1");
                Value::Byte(value)
            }
            RECEIVE_MAXIMUM | TOPIC_ALIAS => {
                let value = self.short();
                assert!(value > 0, "property 0x{id:02x} is 0");
                Value::Short(value)
            }
            TOPIC_ALIAS_MAXIMUM | SERVER_KEEP_ALIVE => Value::Short(self.short()),
            MESSAGE_EXPIRY | SESSION_EXPIRY | MAXIMUM_PACKET_SIZE => Value::Int(self.int()),
            SUBSCRIPTION_ID => Value::VarInt(self.var_int()),
            CORRELATION_DATA | AUTHENTICATION_DATA => Value::Bytes(self.bytes()),
            USER_PROPERTY => Value::Pair(self.text(), self.text()),
            _ => Value::Text(self.text()),
        }
    }
}

/// Which properties a server may send in which packet (table 2-4 of MQTT 5.0).
fn allowed(id: u8, kind: u8) -> bool {
    match id {
        PAYLOAD_FORMAT | MESSAGE_EXPIRY | CONTENT_TYPE | RESPONSE_TOPIC | CORRELATION_DATA
        | SUBSCRIPTION_ID | TOPIC_ALIAS => kind == 3,
        SESSION_EXPIRY
        | ASSIGNED_CLIENT_ID
        | SERVER_KEEP_ALIVE
        | RESPONSE_INFORMATION
        | RECEIVE_MAXIMUM
        | TOPIC_ALIAS_MAXIMUM
        | MAXIMUM_QOS
        | RETAIN_AVAILABLE
        | MAXIMUM_PACKET_SIZE
        | WILDCARD_SUBSCRIPTION_AVAILABLE
        | SUBSCRIPTION_IDS_AVAILABLE
        | SHARED_SUBSCRIPTION_AVAILABLE => kind == 2,
        AUTHENTICATION_METHOD | AUTHENTICATION_DATA => kind == 2 || kind == 15,
        SERVER_REFERENCE => kind == 2 || kind == 14,
        REASON_STRING => kind != 3,
        USER_PROPERTY => true,
        _ => false,
    }
}
