//! MQTT 5 properties.

use super::reader::{Reader, has_wildcard, text};
use super::{ReasonCode, WireError};

/// The properties of a PUBLISH from a client, validated. Borrows; nothing is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublishProperties<'a> {
    /// All property bytes as they came (without the length in front).
    pub raw: &'a [u8],
    /// Topic Alias; never 0 here (0 is refused with 0x94 by the decoder).
    pub topic_alias: Option<u16>,
    /// Message Expiry Interval in seconds.
    pub message_expiry: Option<u32>,
    /// Response Topic.
    pub response_topic: Option<&'a str>,
    /// Correlation Data.
    pub correlation_data: Option<&'a [u8]>,
}

impl<'a> PublishProperties<'a> {
    /// Appends the properties that a server passes on unchanged and in order: payload format, content type,
    /// response topic, correlation data, user properties. Leaves out topic alias and message expiry.
    pub fn write_forwarded(&self, out: &mut Vec<u8>) {
        if self.topic_alias.is_none() && self.message_expiry.is_none() {
            return out.extend_from_slice(self.raw);
        }
        let mut reader = Reader::new(self.raw);
        while let Ok(item) = Item::read(&mut reader) {
            if item.is_forwarded() {
                out.extend_from_slice(item.raw);
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let mut found = Self { raw: reader.properties()?, ..Self::default() };
        for_each(found.raw, IN_PUBLISH, |item| {
            match item.id {
                // Two bytes long, so that the cast can't cut.
                id::TOPIC_ALIAS => found.topic_alias = Some(item.number as u16),
                id::MESSAGE_EXPIRY => found.message_expiry = Some(item.number),
                id::RESPONSE_TOPIC => found.response_topic = Some(text(item.value)?),
                id::CORRELATION_DATA => found.correlation_data = Some(item.value),
                // [MQTT-3.3.4-6]
                id::SUBSCRIPTION_ID => {
                    return Err(WireError::protocol("subscription identifier from a client"));
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// The property identifiers.
pub(super) mod id {
    pub(in super::super) const PAYLOAD_FORMAT: u8 = 0x01;
    pub(in super::super) const MESSAGE_EXPIRY: u8 = 0x02;
    pub(in super::super) const CONTENT_TYPE: u8 = 0x03;
    pub(in super::super) const RESPONSE_TOPIC: u8 = 0x08;
    pub(in super::super) const CORRELATION_DATA: u8 = 0x09;
    pub(in super::super) const SUBSCRIPTION_ID: u8 = 0x0B;
    pub(in super::super) const SESSION_EXPIRY: u8 = 0x11;
    pub(in super::super) const ASSIGNED_CLIENT_ID: u8 = 0x12;
    pub(in super::super) const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub(in super::super) const AUTHENTICATION_METHOD: u8 = 0x15;
    pub(in super::super) const AUTHENTICATION_DATA: u8 = 0x16;
    pub(in super::super) const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
    pub(in super::super) const WILL_DELAY: u8 = 0x18;
    pub(in super::super) const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
    pub(in super::super) const RESPONSE_INFORMATION: u8 = 0x1A;
    pub(in super::super) const SERVER_REFERENCE: u8 = 0x1C;
    pub(in super::super) const REASON_STRING: u8 = 0x1F;
    pub(in super::super) const RECEIVE_MAXIMUM: u8 = 0x21;
    pub(in super::super) const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    pub(in super::super) const TOPIC_ALIAS: u8 = 0x23;
    pub(in super::super) const MAXIMUM_QOS: u8 = 0x24;
    pub(in super::super) const RETAIN_AVAILABLE: u8 = 0x25;
    pub(in super::super) const USER: u8 = 0x26;
    pub(in super::super) const MAXIMUM_PACKET_SIZE: u8 = 0x27;
    pub(in super::super) const WILDCARD_AVAILABLE: u8 = 0x28;
    pub(in super::super) const SUBSCRIPTION_ID_AVAILABLE: u8 = 0x29;
    pub(in super::super) const SHARED_AVAILABLE: u8 = 0x2A;
}

/// Identifiers as bits: all are below 64.
pub(super) type Set = u64;

const FORWARDED: Set =
    set(&[id::PAYLOAD_FORMAT, id::CONTENT_TYPE, id::RESPONSE_TOPIC, id::CORRELATION_DATA, id::USER]);
const IN_PUBLISH: Set = FORWARDED | set(&[id::MESSAGE_EXPIRY, id::TOPIC_ALIAS, id::SUBSCRIPTION_ID]);
pub(super) const IN_WILL: Set = FORWARDED | set(&[id::MESSAGE_EXPIRY, id::WILL_DELAY]);
pub(super) const IN_CONNECT: Set = set(&[
    id::SESSION_EXPIRY,
    id::RECEIVE_MAXIMUM,
    id::MAXIMUM_PACKET_SIZE,
    id::TOPIC_ALIAS_MAXIMUM,
    id::REQUEST_RESPONSE_INFORMATION,
    id::REQUEST_PROBLEM_INFORMATION,
    id::USER,
    id::AUTHENTICATION_METHOD,
    id::AUTHENTICATION_DATA,
]);
pub(super) const IN_ACK: Set = set(&[id::REASON_STRING, id::USER]);
pub(super) const IN_SUBSCRIBE: Set = set(&[id::SUBSCRIPTION_ID, id::USER]);
pub(super) const IN_UNSUBSCRIBE: Set = set(&[id::USER]);
pub(super) const IN_DISCONNECT: Set =
    set(&[id::SESSION_EXPIRY, id::REASON_STRING, id::USER, id::SERVER_REFERENCE]);
pub(super) const IN_AUTH: Set =
    set(&[id::AUTHENTICATION_METHOD, id::AUTHENTICATION_DATA, id::REASON_STRING, id::USER]);

const fn set(ids: &[u8]) -> Set {
    let mut bits = 0;
    let mut index = 0;
    while index < ids.len() {
        bits |= 1 << ids[index];
        index += 1;
    }
    bits
}

/// Hands every property of a block to `on`, after checking that it belongs to the packet, stands once and has
/// a value that the specification allows.
pub(super) fn for_each<'a>(
    block: &'a [u8],
    allowed: Set,
    mut on: impl FnMut(&Item<'a>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut reader = Reader::new(block);
    let mut seen = 0;
    while !reader.is_empty() {
        let item = Item::read(&mut reader)?;
        if allowed & item.bit() == 0 {
            return Err(WireError::malformed("property that the packet can't have"));
        }
        if seen & item.bit() != 0 && item.id != id::USER {
            return Err(WireError::protocol("property stands twice"));
        }
        seen |= item.bit();
        item.check()?;
        on(&item)?;
    }
    Ok(())
}

/// One property, split from its block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    /// Its identifier, one of [`id`].
    pub(super) id: u8,
    /// All its bytes, identifier included.
    pub(super) raw: &'a [u8],
    /// Its value when that is a number.
    pub(super) number: u32,
    /// Its value when that is a string or binary data.
    pub(super) value: &'a [u8],
    kind: Kind,
}

impl<'a> Item<'a> {
    pub(super) fn is_forwarded(&self) -> bool {
        FORWARDED & self.bit() != 0
    }

    /// The string that `check` has accepted.
    pub(super) fn to_text(self) -> Result<String, WireError> {
        text(self.value).map(str::to_owned)
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let start = reader.rest();
        let id = reader.byte()?;
        let kind = Kind::of(id).ok_or(WireError::malformed("unknown property"))?;
        let mut number = 0;
        let mut value: &[u8] = &[];
        match kind {
            Kind::Byte => number = u32::from(reader.byte()?),
            Kind::Two => number = u32::from(reader.two()?),
            Kind::Four => number = reader.four()?,
            Kind::Varint => number = reader.varint()?,
            Kind::Text | Kind::Binary => value = reader.binary()?,
            Kind::Pair => {
                reader.binary()?;
                reader.binary()?;
            }
        }
        let raw = &start[..start.len() - reader.rest().len()];
        Ok(Self { id, raw, number, value, kind })
    }

    fn check(&self) -> Result<(), WireError> {
        match self.kind {
            Kind::Text => self.check_text(),
            Kind::Pair => {
                let mut pair = Reader::new(&self.raw[1..]);
                pair.text()?;
                pair.text().map(|_| ())
            }
            Kind::Binary => Ok(()),
            Kind::Byte | Kind::Two | Kind::Four | Kind::Varint => self.check_number(),
        }
    }

    fn check_text(&self) -> Result<(), WireError> {
        let text = text(self.value)?;
        // [MQTT-3.3.2-14]; it is a topic name, so that [MQTT-4.7.3-1] holds too.
        if self.id == id::RESPONSE_TOPIC && (text.is_empty() || has_wildcard(text)) {
            return Err(WireError::protocol("response topic is not a topic name"));
        }
        Ok(())
    }

    fn check_number(&self) -> Result<(), WireError> {
        match (self.id, self.number) {
            (id::TOPIC_ALIAS, 0) => {
                Err(WireError { reason: ReasonCode::TOPIC_ALIAS_INVALID, what: "topic alias 0" })
            }
            (id::RECEIVE_MAXIMUM, 0) => Err(WireError::protocol("receive maximum 0")),
            (id::MAXIMUM_PACKET_SIZE, 0) => Err(WireError::protocol("maximum packet size 0")),
            (id::SUBSCRIPTION_ID, 0) => Err(WireError::protocol("subscription identifier 0")),
            (_, 2..) if self.kind == Kind::Byte => {
                Err(WireError::protocol("property that must be 0 or 1 is neither"))
            }
            _ => Ok(()),
        }
    }

    fn bit(&self) -> Set {
        1 << self.id
    }
}

/// How a property's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All of these are 0 or 1.
    Byte,
    Two,
    Four,
    Varint,
    Text,
    Binary,
    Pair,
}

impl Kind {
    fn of(id: u8) -> Option<Self> {
        Some(match id {
            id::PAYLOAD_FORMAT
            | id::REQUEST_PROBLEM_INFORMATION
            | id::REQUEST_RESPONSE_INFORMATION
            | id::MAXIMUM_QOS
            | id::RETAIN_AVAILABLE
            | id::WILDCARD_AVAILABLE
            | id::SUBSCRIPTION_ID_AVAILABLE
            | id::SHARED_AVAILABLE => Self::Byte,
            id::SERVER_KEEP_ALIVE | id::RECEIVE_MAXIMUM | id::TOPIC_ALIAS_MAXIMUM | id::TOPIC_ALIAS => {
                Self::Two
            }
            id::MESSAGE_EXPIRY | id::SESSION_EXPIRY | id::WILL_DELAY | id::MAXIMUM_PACKET_SIZE => Self::Four,
            id::SUBSCRIPTION_ID => Self::Varint,
            id::CONTENT_TYPE
            | id::RESPONSE_TOPIC
            | id::ASSIGNED_CLIENT_ID
            | id::AUTHENTICATION_METHOD
            | id::RESPONSE_INFORMATION
            | id::SERVER_REFERENCE
            | id::REASON_STRING => Self::Text,
            id::CORRELATION_DATA | id::AUTHENTICATION_DATA => Self::Binary,
            id::USER => Self::Pair,
            _ => return None,
        })
    }
}
