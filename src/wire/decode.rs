//! Bytes to packets.

use super::property::{self, PublishProperties, id};
use super::reader::{Reader, varint_len};
use super::{
    Ack, Auth, Disconnect, Packet, Publish, QoS, ReasonCode, Version, WireError, connect, subscribe,
};

/// Where one packet lies in the read buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The first byte: type and flags.
    pub first: u8,
    /// Bytes before the body (2 to 5).
    pub header: usize,
    /// Bytes of the body.
    pub body: usize,
}

impl Frame {
    /// Whether it is a message.
    pub fn is_publish(&self) -> bool {
        self.first >> 4 == 3
    }
}

/// Finds the packet at the front of `buffer`.
///
/// `None` when more bytes are needed. `maximum` is the largest whole packet that is accepted; a larger one is
/// refused (0x95) as soon as its length is known. A first byte that no client may send is refused at once.
pub fn frame(buffer: &[u8], maximum: usize) -> Result<Option<Frame>, WireError> {
    let Some((&first, lengths)) = buffer.split_first() else { return Ok(None) };
    check_first(first)?;
    let mut body = 0;
    for (index, &byte) in lengths.iter().take(4).enumerate() {
        body |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let header = index + 2;
            if header + body > maximum {
                return Err(WireError { reason: ReasonCode::PACKET_TOO_LARGE, what: "packet too large" });
            }
            let complete = buffer.len() >= header + body;
            return Ok(complete.then_some(Frame { first, header, body }));
        }
    }
    if lengths.len() >= 4 { Err(WireError::malformed("remaining length over four bytes")) } else { Ok(None) }
}

/// Decodes the packet that `frame` found; `body` is what follows the header.
///
/// `version` is `None` before CONNECT, when only CONNECT is accepted.
pub fn decode<'a>(version: Option<Version>, frame: Frame, body: &'a [u8]) -> Result<Packet<'a>, WireError> {
    check_first(frame.first)?;
    let mut reader = Reader::new(body);
    let Some(version) = version else {
        // [MQTT-3.1.0-1]
        return match frame.first >> 4 {
            kind::CONNECT => connect::decode(frame, reader).map(Box::new).map(Packet::Connect),
            _ => Err(WireError::protocol("first packet is not CONNECT")),
        };
    };
    check_header(version, frame, body)?;
    match frame.first >> 4 {
        kind::PUBLISH => publish(version, frame.first, &mut reader).map(Packet::Publish),
        kind::PUBACK => ack(version, reader, ACK_CODES).map(Packet::PubAck),
        kind::PUBREC => ack(version, reader, ACK_CODES).map(Packet::PubRec),
        kind::PUBREL => ack(version, reader, RELEASE_CODES).map(Packet::PubRel),
        kind::PUBCOMP => ack(version, reader, RELEASE_CODES).map(Packet::PubComp),
        kind::SUBSCRIBE => subscribe::subscribe(version, reader).map(Packet::Subscribe),
        kind::UNSUBSCRIBE => subscribe::unsubscribe(version, reader).map(Packet::Unsubscribe),
        kind::PINGREQ => reader.finish().map(|()| Packet::PingReq),
        kind::DISCONNECT => disconnect(version, reader).map(Packet::Disconnect),
        kind::AUTH if version == Version::V5 => auth(reader).map(Packet::Auth),
        // [MQTT-3.1.0-2]
        kind::CONNECT => Err(WireError::protocol("second CONNECT")),
        _ => Err(WireError::malformed("reserved packet type")),
    }
}

/// Packet types, the upper half of the first byte.
pub(super) mod kind {
    pub(in super::super) const CONNECT: u8 = 1;
    pub(in super::super) const CONNACK: u8 = 2;
    pub(in super::super) const PUBLISH: u8 = 3;
    pub(in super::super) const PUBACK: u8 = 4;
    pub(in super::super) const PUBREC: u8 = 5;
    pub(in super::super) const PUBREL: u8 = 6;
    pub(in super::super) const PUBCOMP: u8 = 7;
    pub(in super::super) const SUBSCRIBE: u8 = 8;
    pub(in super::super) const SUBACK: u8 = 9;
    pub(in super::super) const UNSUBSCRIBE: u8 = 10;
    pub(in super::super) const UNSUBACK: u8 = 11;
    pub(in super::super) const PINGREQ: u8 = 12;
    pub(in super::super) const PINGRESP: u8 = 13;
    pub(in super::super) const DISCONNECT: u8 = 14;
    pub(in super::super) const AUTH: u8 = 15;
}

/// The header of an MQTT 5 packet uses as few bytes as it can [MQTT-1.5.5-1]. 3.1.1 has no such rule, and
/// modems that always write four bytes of length exist.
pub(super) fn check_header(version: Version, frame: Frame, body: &[u8]) -> Result<(), WireError> {
    if version == Version::V5 && frame.header > 1 + varint_len(body.len()) {
        return Err(WireError::malformed("remaining length longer than needed"));
    }
    Ok(())
}

/// Type and flags, as far as both versions agree.
fn check_first(first: u8) -> Result<(), WireError> {
    let flags = first & 0x0F;
    let wanted = match first >> 4 {
        0 => return Err(WireError::malformed("reserved packet type")),
        kind::CONNACK | kind::SUBACK | kind::UNSUBACK | kind::PINGRESP => {
            return Err(WireError::protocol("packet that only a server sends"));
        }
        kind::PUBLISH => return check_publish_flags(flags),
        kind::PUBREL | kind::SUBSCRIBE | kind::UNSUBSCRIBE => 0b0010,
        _ => 0,
    };
    // [MQTT-2.2.2-2] in 3.1.1, [MQTT-2.1.3-1] in 5.0
    if flags == wanted { Ok(()) } else { Err(WireError::malformed("reserved flags of the first byte")) }
}

fn check_publish_flags(flags: u8) -> Result<(), WireError> {
    match (flags & 0b1000 != 0, QoS::from_bits((flags >> 1) & 0b11)) {
        // [MQTT-3.3.1-4]
        (_, None) => Err(WireError::malformed("QoS 3")),
        // [MQTT-3.3.1-2]
        (true, Some(QoS::AtMostOnce)) => Err(WireError::malformed("DUP with QoS 0")),
        _ => Ok(()),
    }
}

fn publish<'a>(version: Version, first: u8, reader: &mut Reader<'a>) -> Result<Publish<'a>, WireError> {
    let qos = QoS::from_bits((first >> 1) & 0b11).ok_or(WireError::malformed("QoS 3"))?;
    let topic = reader.topic()?;
    let packet_id = if qos == QoS::AtMostOnce { 0 } else { reader.packet_id()? };
    let properties = match version {
        Version::V311 => PublishProperties::default(),
        Version::V5 => PublishProperties::read(reader)?,
    };
    if topic.is_empty() && properties.topic_alias.is_none() {
        return Err(WireError::protocol("empty topic without an alias"));
    }
    Ok(Publish {
        dup: first & 0b1000 != 0,
        qos,
        retain: first & 1 != 0,
        topic,
        packet_id,
        properties,
        payload: reader.rest(),
    })
}

/// Reason codes of PUBACK and PUBREC.
const ACK_CODES: &[u8] = &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
/// Reason codes of PUBREL and PUBCOMP.
const RELEASE_CODES: &[u8] = &[0x00, 0x92];
/// Reason codes of a DISCONNECT that a client may send.
const DISCONNECT_CODES: &[u8] =
    &[0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];
/// Reason codes of an AUTH that a client may send.
const AUTH_CODES: &[u8] = &[0x18, 0x19];

fn ack(version: Version, mut reader: Reader<'_>, codes: &[u8]) -> Result<Ack, WireError> {
    let packet_id = reader.packet_id()?;
    if version == Version::V311 {
        reader.finish()?;
        return Ok(Ack { packet_id, reason: ReasonCode::SUCCESS });
    }
    let reason = short_reason(&mut reader, codes)?;
    property::for_each(short_properties(&mut reader)?, property::IN_ACK, |_| Ok(()))?;
    reader.finish()?;
    Ok(Ack { packet_id, reason })
}

fn disconnect(version: Version, mut reader: Reader<'_>) -> Result<Disconnect, WireError> {
    let mut found = Disconnect { reason: ReasonCode::SUCCESS, session_expiry: None };
    if version == Version::V5 {
        found.reason = short_reason(&mut reader, DISCONNECT_CODES)?;
        property::for_each(short_properties(&mut reader)?, property::IN_DISCONNECT, |item| {
            if item.id == id::SESSION_EXPIRY {
                found.session_expiry = Some(item.number);
            }
            Ok(())
        })?;
    }
    reader.finish()?;
    Ok(found)
}

fn auth(mut reader: Reader<'_>) -> Result<Auth, WireError> {
    let reason = short_reason(&mut reader, AUTH_CODES)?;
    let mut method = None;
    property::for_each(short_properties(&mut reader)?, property::IN_AUTH, |item| {
        if item.id == id::AUTHENTICATION_METHOD {
            method = Some(item.to_text()?);
        }
        Ok(())
    })?;
    reader.finish()?;
    if method.is_none() {
        return Err(WireError::protocol("AUTH without a method"));
    }
    Ok(Auth { reason, method })
}

/// A reason code that is left out when it is 0 and no properties follow.
fn short_reason(reader: &mut Reader<'_>, codes: &[u8]) -> Result<ReasonCode, WireError> {
    let code = if reader.is_empty() { 0 } else { reader.byte()? };
    if codes.contains(&code) {
        Ok(ReasonCode(code))
    } else {
        Err(WireError::protocol("reason code that the packet can't have"))
    }
}

/// Properties that are left out, with their length, when there are none.
fn short_properties<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    if reader.is_empty() { Ok(&[]) } else { reader.properties() }
}
