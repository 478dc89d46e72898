//! What brokers mean by the codes with which they refuse and end connections.

use super::{Malformed, Packet, Properties, Property, REASON_STRING, Version, properties};

/// Why a broker says that it ends a connection (MQTT 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnect {
    /// The reason code.
    pub code: u8,
    /// What the broker says about it.
    pub words: Option<String>,
}

/// Reads DISCONNECT of MQTT 5; without a code it means 0.
pub fn disconnect(packet: &Packet<'_>) -> Result<Disconnect, Malformed> {
    let [code, rest @ ..] = packet.body else { return Ok(Disconnect { code: 0, words: None }) };
    let mut words = None;
    if !rest.is_empty() {
        for property in Properties(properties(rest)?.0) {
            if let Property::Text(REASON_STRING, text) = property {
                words = Some(String::from_utf8_lossy(text).into_owned());
            }
        }
    }
    Ok(Disconnect { code: *code, words })
}

/// A code with its meaning, such as `0x87 (not authorised)`.
pub fn in_words(version: Version, code: u8) -> String {
    match meaning(version, code) {
        Some(meaning) => format!("{code:#04x} ({meaning})"),
        None => format!("{code:#04x}"),
    }
}

/// What a code of CONNACK or DISCONNECT means; none if the standard does not say.
pub fn meaning(version: Version, code: u8) -> Option<&'static str> {
    Some(match (version, code) {
        (Version::V311, 1) | (Version::V5, 0x84) => "protocol version not supported",
        (Version::V311, 2) | (Version::V5, 0x85) => "client identifier not accepted",
        (Version::V311, 3) | (Version::V5, 0x88) => "not available",
        (Version::V311, 4) | (Version::V5, 0x86) => "wrong user name or password",
        (Version::V311, 5) | (Version::V5, 0x87) => "not authorised",
        (Version::V311, _) => return None,
        (Version::V5, 0x00) => "no reason given",
        (Version::V5, 0x80) => "unspecified error",
        (Version::V5, 0x81) => "malformed packet",
        (Version::V5, 0x82) => "protocol error",
        (Version::V5, 0x83) => "implementation specific error",
        (Version::V5, 0x89) => "busy",
        (Version::V5, 0x8A) => "banned",
        (Version::V5, 0x8B) => "shutting down",
        (Version::V5, 0x8D) => "nothing heard in time",
        (Version::V5, 0x8E) => "session taken over by another connection",
        (Version::V5, 0x8F) => "topic filter not valid",
        (Version::V5, 0x90) => "topic not valid",
        (Version::V5, 0x93) => "more in flight than allowed",
        (Version::V5, 0x94) => "topic alias not valid",
        (Version::V5, 0x95) => "packet too large",
        (Version::V5, 0x96) => "too many messages a second",
        (Version::V5, 0x97) => "quota exceeded",
        (Version::V5, 0x98) => "ended by its operator",
        (Version::V5, 0x99) => "payload format not valid",
        (Version::V5, 0x9A) => "no retained messages",
        (Version::V5, 0x9B) => "QoS not supported",
        (Version::V5, 0x9C) => "use another server",
        (Version::V5, 0x9D) => "server moved",
        (Version::V5, 0x9E) => "no shared subscriptions",
        (Version::V5, 0x9F) => "too many connections a second",
        (Version::V5, 0xA0) => "connected for too long",
        (Version::V5, 0xA1) => "no subscription identifiers",
        (Version::V5, 0xA2) => "no wildcard subscriptions",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::super::packet;
    use super::*;

    #[test]
    fn a_farewell_may_have_a_code_and_words_or_nothing() {
        let read = |bytes: &[u8]| disconnect(&packet(bytes).unwrap().unwrap());
        assert_eq!(read(&[0xE0, 0]), Ok(Disconnect { code: 0, words: None }));
        assert_eq!(read(&[0xE0, 1, 0x97]), Ok(Disconnect { code: 0x97, words: None }));
        let full = [0xE0, 7, 0x8B, 5, 0x1F, 0, 2, b'n', b'o'];
        assert_eq!(read(&full), Ok(Disconnect { code: 0x8B, words: Some("no".to_owned()) }));
        assert_eq!(read(&[0xE0, 2, 0x8B, 9]), Err(Malformed));
    }

    #[test]
    fn the_same_code_means_something_else_in_another_version() {
        assert_eq!(in_words(Version::V311, 5), "0x05 (not authorised)");
        assert_eq!(in_words(Version::V5, 0x87), "0x87 (not authorised)");
        assert_eq!((in_words(Version::V5, 5).as_str(), meaning(Version::V311, 0x87)), ("0x05", None));
    }
}
