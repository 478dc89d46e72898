//! Packets from the upstream broker: where they lie, and the little that the proxy must know of them.
//!
//! They are passed on as they came. What is looked at is checked, for an upstream may send nonsense.

use crate::wire::{Frame, QoS, Version};

pub(super) const CONNACK: u8 = 2;
pub(super) const PUBLISH: u8 = 3;
pub(super) const PUBACK: u8 = 4;
pub(super) const PUBREC: u8 = 5;
pub(super) const PUBREL: u8 = 6;
pub(super) const PUBCOMP: u8 = 7;
pub(super) const SUBACK: u8 = 9;
pub(super) const UNSUBACK: u8 = 11;
pub(super) const PINGRESP: u8 = 13;
pub(super) const DISCONNECT: u8 = 14;
pub(super) const AUTH: u8 = 15;

/// What an upstream sent that is not MQTT. It is the upstream's fault, and the connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Nonsense {
    /// More than `session.max_packet_size` allows.
    #[error("a packet larger than session.max_packet_size")]
    TooLarge,
    /// The remaining length does not end.
    #[error("a length of more than four bytes")]
    Length,
    /// There are three levels of QoS.
    #[error("a message with QoS 3")]
    QoS3,
    /// A type that is reserved, or that only clients send.
    #[error("a packet that no server sends")]
    NotAServers,
    /// Flags that must be as the specification says are not.
    #[error("reserved flags of the first byte")]
    Flags,
    /// A PUBLISH without all that must be in it.
    #[error("a message that ends too soon")]
    ShortMessage,
    /// The bytes of the topic are not text.
    #[error("a topic that is not UTF-8")]
    Topic,
    /// Neither a topic nor an alias.
    #[error("a message without a topic")]
    NoTopic,
    /// Alias 0, or a greater one than the client takes.
    #[error("a topic alias that the client did not allow")]
    Alias,
    /// QoS 1 or 2 with identifier 0 or none.
    #[error("a message without a packet identifier")]
    NoIdentifier,
    /// PUBACK, PUBREC, SUBACK or UNSUBACK without all that must be in it.
    #[error("an acknowledgement that ends too soon")]
    ShortAcknowledgement,
    /// An unknown property, or one that ends after the properties do.
    #[error("a property that cannot be")]
    Property,
    /// A CONNACK without all that must be in it.
    #[error("a CONNACK that ends too soon")]
    ShortConnack,
    /// A CONNACK of 3.1.1 with more than its two bytes.
    #[error("a CONNACK that is too long")]
    LongConnack,
    /// The answer to CONNECT is another packet.
    #[error("its first packet is not CONNACK")]
    NotConnack,
    /// The client has been let in before.
    #[error("a second CONNACK")]
    SecondConnack,
    /// Something for a client that is not let in.
    #[error("a packet before CONNACK")]
    BeforeConnack,
}

/// For those who say no more about why a connection ended.
impl From<Nonsense> for &'static str {
    fn from(_: Nonsense) -> Self {
        "the upstream sent what is not MQTT"
    }
}

/// Finds the packet at the front of `buffer`; `None` when more bytes are needed, an error when no server sends that.
pub(super) fn find(buffer: &[u8], version: Version, maximum: usize) -> Result<Option<Frame>, Nonsense> {
    let Some((&first, lengths)) = buffer.split_first() else { return Ok(None) };
    check_first(first, version)?;
    let mut body = 0;
    for (index, &byte) in lengths.iter().take(4).enumerate() {
        body |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let header = index + 2;
            if header + body > maximum {
                return Err(Nonsense::TooLarge);
            }
            return Ok((buffer.len() >= header + body).then_some(Frame { first, header, body }));
        }
    }
    if lengths.len() >= 4 { Err(Nonsense::Length) } else { Ok(None) }
}

fn check_first(first: u8, version: Version) -> Result<(), Nonsense> {
    let flags = first & 0x0F;
    let wanted = match first >> 4 {
        PUBLISH if QoS::from_bits((flags >> 1) & 0b11).is_none() => return Err(Nonsense::QoS3),
        PUBLISH => return Ok(()),
        PUBREL => 0b0010,
        CONNACK | PUBACK | PUBREC | PUBCOMP | SUBACK | UNSUBACK | PINGRESP => 0,
        DISCONNECT | AUTH if version == Version::V5 => 0,
        _ => return Err(Nonsense::NotAServers),
    };
    if flags == wanted { Ok(()) } else { Err(Nonsense::Flags) }
}

/// A message from the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivered<'a> {
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) dup: bool,
    /// Empty when an alias stands for it.
    pub(super) topic: &'a str,
    /// 0 for QoS 0.
    pub(super) packet_id: u16,
    pub(super) alias: Option<u16>,
    /// Where the payload begins in the body.
    pub(super) payload: usize,
}

/// What a PUBLISH is about.
pub(super) fn delivered(version: Version, first: u8, body: &[u8]) -> Result<Delivered<'_>, Nonsense> {
    let qos = QoS::from_bits((first >> 1) & 0b11).ok_or(Nonsense::QoS3)?;
    let (topic, mut at) = binary(body, 0).ok_or(Nonsense::ShortMessage)?;
    let topic = std::str::from_utf8(topic).map_err(|_| Nonsense::Topic)?;
    let mut packet_id = 0;
    if qos != QoS::AtMostOnce {
        packet_id = two(body, at).filter(|id| *id != 0).ok_or(Nonsense::NoIdentifier)?;
        at += 2;
    }
    let mut alias = None;
    if version == Version::V5 {
        let (length, start) = varint(body, at).ok_or(Nonsense::ShortMessage)?;
        at = start + length;
        let properties = body.get(start..at).ok_or(Nonsense::ShortMessage)?;
        alias = find_alias(properties)?;
    }
    if topic.is_empty() && alias.is_none() {
        return Err(Nonsense::NoTopic);
    }
    Ok(Delivered { qos, retain: first & 1 != 0, dup: first & 8 != 0, topic, packet_id, alias, payload: at })
}

/// The packet identifier at the front of a body.
pub(super) fn packet_id(body: &[u8]) -> Result<u16, Nonsense> {
    two(body, 0).ok_or(Nonsense::ShortAcknowledgement)
}

/// Whether an acknowledgement says that something went wrong.
pub(super) fn is_refusal(body: &[u8]) -> bool {
    body.get(2).is_some_and(|code| *code >= 0x80)
}

/// Where the codes of a SUBACK or UNSUBACK begin.
pub(super) fn codes(version: Version, body: &[u8]) -> Result<usize, Nonsense> {
    if version == Version::V311 {
        return if body.len() >= 2 { Ok(2) } else { Err(Nonsense::ShortAcknowledgement) };
    }
    let (length, start) = varint(body, 2).ok_or(Nonsense::ShortAcknowledgement)?;
    if start + length <= body.len() { Ok(start + length) } else { Err(Nonsense::ShortAcknowledgement) }
}

/// A Variable Byte Integer at a place, and where what follows it begins.
pub(super) fn varint(body: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, &byte) in body.get(at..)?.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, at + index + 1));
        }
    }
    None
}

/// Two bytes of length and as many bytes as they say, and where what follows begins.
pub(super) fn binary(body: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = at + 2 + usize::from(two(body, at)?);
    Some((body.get(at + 2..end)?, end))
}

pub(super) fn two(body: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?]))
}

/// Writes the first byte and the length of a packet.
pub(super) fn header(out: &mut Vec<u8>, first: u8, length: usize) {
    out.push(first);
    write_varint(out, length);
}

/// Writes a Variable Byte Integer.
pub(super) fn write_varint(out: &mut Vec<u8>, mut value: usize) {
    while value > 0x7F {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The topic alias among the properties of a message.
fn find_alias(properties: &[u8]) -> Result<Option<u16>, Nonsense> {
    let mut found = None;
    each_property(properties, |id, value| {
        if id == 0x23 {
            found = two(value, 0);
        }
    })
    .map(|()| found)
}

/// Hands every property to `on`: its identifier and its bytes.
pub(super) fn each_property<'a>(
    properties: &'a [u8],
    mut on: impl FnMut(u8, &'a [u8]),
) -> Result<(), Nonsense> {
    let mut at = 0;
    while let Some(&id) = properties.get(at) {
        let start = at + 1;
        let end = match id {
            0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => Some(start + 1),
            0x13 | 0x21 | 0x22 | 0x23 => Some(start + 2),
            0x02 | 0x11 | 0x18 | 0x27 => Some(start + 4),
            0x0B => varint(properties, start).map(|(_, end)| end),
            0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1A | 0x1C | 0x1F => {
                binary(properties, start).map(|(_, end)| end)
            }
            0x26 => {
                binary(properties, start).and_then(|(_, end)| binary(properties, end)).map(|(_, end)| end)
            }
            _ => None,
        };
        let end = end.filter(|end| *end <= properties.len()).ok_or(Nonsense::Property)?;
        on(id, &properties[start..end]);
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_is_taken_apart() {
        let body = [0, 1, b't', 0, 7, 3, 0x23, 0, 5, b'x'];
        let found = delivered(Version::V5, 0x32, &body).unwrap();
        assert_eq!((found.topic, found.packet_id, found.alias, found.payload), ("t", 7, Some(5), 9));
        assert!(delivered(Version::V5, 0x32, &body[..8]).is_err());
        assert!(delivered(Version::V311, 0x32, &[0, 1, b't', 0, 0]).is_err(), "identifier 0");
        assert!(delivered(Version::V311, 0x30, &[0, 0, b'x']).is_err(), "no topic");
    }

    #[test]
    fn what_no_server_sends_is_found_at_the_first_byte() {
        for first in [0x00, 0x10, 0x36, 0x41, 0x60, 0x82, 0xA2, 0xC0, 0xE0, 0xF0] {
            assert!(find(&[first], Version::V311, 100).is_err(), "{first:02x}");
        }
        assert!(find(&[0xE0], Version::V5, 100).is_ok());
        assert!(find(&[0x30, 0x80, 0x80, 0x80, 0x80], Version::V5, 100).is_err());
        assert!(find(&[0x30, 99], Version::V5, 100).is_err());
        assert_eq!(find(&[0x30, 98], Version::V5, 100), Ok(None));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(first: u8, body in prop::collection::vec(any::<u8>(), 0..40)) {
            for version in [Version::V311, Version::V5] {
                let _ = find(&body, version, 100);
                let _ = delivered(version, first, &body);
                let _ = codes(version, &body);
                let _ = each_property(&body, |_, _| {});
            }
        }
    }
}
