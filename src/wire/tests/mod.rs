//! Tests of the codec. Numbers in brackets are the specifications' normative statements; where 3.1.1 and 5.0
//! number a rule differently, 5.0's comes first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ack;
mod connect;
mod differential;
mod encode;
mod header;
mod publish;
mod random;
mod second_opinion;
mod strategy;
mod subscribe;

use super::{Packet, ReasonCode, Version, WireError, decode, frame};

const MALFORMED: ReasonCode = ReasonCode::MALFORMED_PACKET;
const PROTOCOL: ReasonCode = ReasonCode::PROTOCOL_ERROR;

/// Reads the one packet that `bytes` are.
fn read(version: Option<Version>, bytes: &[u8]) -> Result<Packet<'_>, WireError> {
    let frame = frame(bytes, usize::MAX)?.expect("a whole packet");
    assert_eq!(frame.header + frame.body, bytes.len(), "one packet and nothing else");
    decode(version, frame, &bytes[frame.header..])
}

/// Reads what must be refused, in the version given.
#[track_caller]
fn refused(version: Option<Version>, bytes: &[u8]) -> ReasonCode {
    match read(version, bytes) {
        Ok(packet) => panic!("accepted: {packet:?}"),
        Err(error) => error.reason,
    }
}

/// A packet from its first byte and the parts of its body. The length is worked out apart from the codec's own.
fn packet(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut bytes = vec![first];
    let mut rest = body.len();
    while rest >= 128 {
        bytes.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes.extend(body);
    bytes
}

/// A string or binary data with its length in front.
fn sized(value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let mut bytes = u16::try_from(value.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(value);
    bytes
}

/// A block of properties, shorter than 128 bytes, with its length in front.
fn block(properties: &[&[u8]]) -> Vec<u8> {
    let properties = properties.concat();
    assert!(properties.len() < 128);
    let mut bytes = vec![properties.len() as u8];
    bytes.extend(properties);
    bytes
}

/// A property whose value is a string or binary data.
fn property(id: u8, value: impl AsRef<[u8]>) -> Vec<u8> {
    let mut bytes = vec![id];
    bytes.extend(sized(value));
    bytes
}

/// A user property.
fn user(key: &str, value: &str) -> Vec<u8> {
    let mut bytes = property(0x26, key);
    bytes.extend(sized(value));
    bytes
}
