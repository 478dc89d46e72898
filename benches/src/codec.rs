//! MQTT packets as a client writes and reads them: 3.1.1 and 5, just what a load generator needs.
//!
//! The gateway's own codec is a server's, and a generator that shares it would not notice what it gets wrong.

mod properties;
pub mod reasons;
mod write;

use serde::{Deserialize, Serialize};

use self::properties::{Properties, Property, REASON_STRING, RECEIVE_MAXIMUM};
pub use self::write::{Connect, put_ack, put_connect, put_packet, put_subscribe, put_text, put_unsubscribe};

/// The protocol version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Version {
    /// MQTT 3.1.1.
    #[default]
    #[serde(rename = "3.1.1")]
    V311,
    /// MQTT 5.0.
    #[serde(rename = "5")]
    V5,
}

/// Packet types, as in the upper half of the first byte.
pub mod kind {
    #![allow(missing_docs)]
    pub const CONNECT: u8 = 1;
    pub const CONNACK: u8 = 2;
    pub const PUBLISH: u8 = 3;
    pub const PUBACK: u8 = 4;
    pub const PUBREC: u8 = 5;
    pub const PUBREL: u8 = 6;
    pub const PUBCOMP: u8 = 7;
    pub const SUBSCRIBE: u8 = 8;
    pub const SUBACK: u8 = 9;
    pub const UNSUBSCRIBE: u8 = 10;
    pub const UNSUBACK: u8 = 11;
    pub const PINGREQ: u8 = 12;
    pub const PINGRESP: u8 = 13;
    pub const DISCONNECT: u8 = 14;
}

/// The mark of a PUBLISH that was sent before, in its first byte.
pub const AGAIN: u8 = 8;
const RETAINED: u8 = 1;

/// The packet that asks whether the other side is there.
pub const PINGREQ: [u8; 2] = [kind::PINGREQ << 4, 0];
/// The packet that says good-bye.
pub const DISCONNECT: [u8; 2] = [kind::DISCONNECT << 4, 0];

/// What was received makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the target sent a packet that is not MQTT")]
pub struct Malformed;

/// One packet at the front of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The first byte.
    pub first: u8,
    /// All after the length.
    pub body: &'a [u8],
    /// Bytes of the packet as a whole.
    pub size: usize,
}

impl Packet<'_> {
    /// The packet's type, see [`kind`].
    pub fn kind(&self) -> u8 {
        self.first >> 4
    }
}

/// The first whole packet of a buffer; none if it is not complete yet.
pub fn packet(buffer: &[u8]) -> Result<Option<Packet<'_>>, Malformed> {
    let [first, rest @ ..] = buffer else { return Ok(None) };
    let Some((length, used)) = varint(rest)? else { return Ok(None) };
    let body = rest.get(used..used + length);
    Ok(body.map(|body| Packet { first: *first, body, size: 1 + used + length }))
}

/// A PUBLISH that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// 0, 1 or 2.
    pub qos: u8,
    /// Packet identifier; 0 with QoS 0.
    pub id: u16,
    /// Whether it is marked as sent before.
    pub again: bool,
    /// Whether it had been kept for those who subscribe later.
    pub retained: bool,
    /// The topic.
    pub topic: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

/// Reads a PUBLISH.
pub fn message<'a>(packet: &Packet<'a>, version: Version) -> Result<Message<'a>, Malformed> {
    let qos = packet.first >> 1 & 3;
    let (topic, mut rest) = text(packet.body)?;
    let mut id = 0;
    if qos > 0 {
        (id, rest) = number(rest)?;
    }
    if version == Version::V5 {
        (_, rest) = properties(rest)?;
    }
    let (again, retained) = (packet.first & AGAIN != 0, packet.first & RETAINED != 0);
    Ok(Message { qos, id, again, retained, topic, payload: rest })
}

/// An acknowledgement of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Packet identifier.
    pub id: u16,
    /// Reason code; 0 is success, 0x80 and above a refusal.
    pub reason: u8,
    properties: &'a [u8],
}

impl<'a> Ack<'a> {
    /// The value of a user property.
    pub fn user_property(&self, name: &str) -> Option<&'a str> {
        Properties(self.properties).find_map(|property| match property {
            Property::User(key, value) if key == name.as_bytes() => std::str::from_utf8(value).ok(),
            _ => None,
        })
    }
}

/// Reads PUBACK, PUBREC, PUBREL or PUBCOMP.
pub fn ack<'a>(packet: &Packet<'a>, version: Version) -> Result<Ack<'a>, Malformed> {
    let (id, rest) = number(packet.body)?;
    let (Version::V5, [reason, rest @ ..]) = (version, rest) else {
        return Ok(Ack { id, reason: 0, properties: &[] });
    };
    let properties = if rest.is_empty() { &[][..] } else { properties(rest)?.0 };
    Ok(Ack { id, reason: *reason, properties })
}

/// The answer to CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connack {
    /// 0 is success.
    pub code: u8,
    /// Messages that may be in flight towards the broker.
    pub receive_maximum: u16,
    /// What the broker says about it.
    pub reason: Option<String>,
}

/// Reads CONNACK.
pub fn connack(packet: &Packet<'_>, version: Version) -> Result<Connack, Malformed> {
    let [_, code, rest @ ..] = packet.body else { return Err(Malformed) };
    let mut answer = Connack { code: *code, receive_maximum: u16::MAX, reason: None };
    if version == Version::V5 && !rest.is_empty() {
        for property in Properties(properties(rest)?.0) {
            match property {
                Property::Number(RECEIVE_MAXIMUM, value) => answer.receive_maximum = value.max(1) as u16,
                Property::Text(REASON_STRING, text) => {
                    answer.reason = Some(String::from_utf8_lossy(text).into_owned());
                }
                _ => {}
            }
        }
    }
    Ok(answer)
}

/// The reason codes of SUBACK, one for each filter.
pub fn suback<'a>(packet: &Packet<'a>, version: Version) -> Result<&'a [u8], Malformed> {
    let (_, rest) = number(packet.body)?;
    if version == Version::V5 { Ok(properties(rest)?.1) } else { Ok(rest) }
}

/// A variable-length number and the bytes that it took; none if it is not complete.
fn varint(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        number |= usize::from(byte & 127) << (7 * at);
        if byte & 128 == 0 {
            return Ok(Some((number, at + 1)));
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(Malformed) }
}

fn number(bytes: &[u8]) -> Result<(u16, &[u8]), Malformed> {
    let [high, low, rest @ ..] = bytes else { return Err(Malformed) };
    Ok((u16::from_be_bytes([*high, *low]), rest))
}

fn text(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (length, rest) = number(bytes)?;
    rest.split_at_checked(length.into()).ok_or(Malformed)
}

/// The bytes of the properties and what follows them.
fn properties(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (length, used) = varint(bytes)?.ok_or(Malformed)?;
    bytes[used..].split_at_checked(length).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use tidegate::wire;

    use super::*;

    #[test]
    fn the_gateways_codec_understands_what_is_written() {
        for version in [Version::V311, Version::V5] {
            let wire_version = if version == Version::V5 { wire::Version::V5 } else { wire::Version::V311 };
            let mut bytes = Vec::new();
            let connect = Connect {
                version,
                client: "dev1",
                login: Some(("me", "secret")),
                keep_alive: 60,
                persistent: true,
                receive_maximum: Some(7),
            };
            put_connect(&connect, &mut bytes);
            let read_as = |version, bytes: &[u8]| {
                let packet = packet(bytes).unwrap().unwrap();
                assert_eq!(packet.size, bytes.len());
                let frame = wire::frame(bytes, 1000).unwrap().unwrap();
                format!("{:?}", wire::decode(version, frame, packet.body).unwrap())
            };
            let read = |bytes: &[u8]| read_as(Some(wire_version), bytes);
            let text = read_as(None, &bytes);
            assert!(text.contains("dev1") && text.contains("secret"), "{text}");
            bytes.clear();
            put_subscribe(version, 3, &[("a/#", 1), ("b", 2)], &mut bytes);
            assert!(read(&bytes).contains("a/#"));
            bytes.clear();
            put_unsubscribe(version, 3, "a/#", &mut bytes);
            assert!(read(&bytes).contains("a/#"));
            bytes.clear();
            put_ack(kind::PUBREL, 9, &mut bytes);
            assert!(read(&bytes).contains('9'));
        }
    }

    #[test]
    fn acknowledgements_of_mqtt_5_carry_user_properties() {
        let bytes = [0x40, 14, 0, 5, 0x97, 10, 0x26, 0, 1, b'a', 0, 4, b'0', b'.', b'4', b'3'];
        let packet = packet(&bytes).unwrap().unwrap();
        let ack = ack(&packet, Version::V5).unwrap();
        assert_eq!((ack.id, ack.reason), (5, 0x97));
        assert_eq!(ack.user_property("a"), Some("0.43"));
        assert_eq!(ack.user_property("b"), None);
    }

    #[test]
    fn what_is_cut_short_or_nonsense_is_told_apart() {
        assert_eq!(packet(&[0x30]), Ok(None));
        assert_eq!(packet(&[0x30, 2, 0]), Ok(None));
        assert_eq!(packet(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF]), Err(Malformed));
        let cut = Packet { first: 0x30, body: &[0, 9, b'x'], size: 5 };
        assert_eq!(message(&cut, Version::V5), Err(Malformed));
    }
}
