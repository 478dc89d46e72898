//! Packets to bytes.

use super::decode::kind;
use super::property::id;
use super::reader::{VARINT_MAX, varint_len};
use super::writer::{Property, header, packet_len, two, varint};
use super::{Connack, Outgoing, QoS, ReasonCode, Version};

/// Writes packets for one connection, in its version, at the end of a buffer.
///
/// A packet that would be larger than the client's Maximum Packet Size is not written; optional properties
/// (reason string, user properties) are left out first. A string ends at 65,535 bytes or at U+0000, which the
/// protocol can't carry.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    /// What the client speaks.
    pub version: Version,
    /// The client's Maximum Packet Size.
    pub maximum: u32,
    /// Whether the client wants reason strings and user properties.
    pub problem_information: bool,
}

impl Encoder {
    /// CONNACK. The 3.1.1 return code is 0 when the reason is no error, 1 to 4 where it means the same, 3 (server
    /// unavailable) for what may pass with time or is the server's trouble, 5 (not authorized) otherwise.
    pub fn connack(&self, out: &mut Vec<u8>, connack: &Connack<'_>) {
        let present = u8::from(connack.session_present && connack.reason == ReasonCode::SUCCESS);
        if self.version == Version::V311 {
            return out.extend_from_slice(&[kind::CONNACK << 4, 2, present, return_code(connack.reason)]);
        }
        let fixed = [present, connack.reason.0];
        let needed = connack_properties(connack);
        let text = connack.reason_string.map(|text| Property::Text(id::REASON_STRING, text));
        let first = kind::CONNACK << 4;
        let needed = needed.into_iter().flatten();
        let _ = self.with_properties(out, first, &fixed, needed.clone().chain(text))
            || self.with_properties(out, first, &fixed, needed);
    }

    /// PUBLISH. `false` when it is too large for the client and was not written.
    ///
    /// Also `false` when the topic is longer than the protocol's 65,535 bytes. DUP is written only with QoS 1 and 2.
    #[must_use]
    pub fn publish(&self, out: &mut Vec<u8>, publish: &Outgoing<'_>) -> bool {
        let Ok(topic_len) = u16::try_from(publish.topic.len()) else { return false };
        let acknowledged = publish.qos != QoS::AtMostOnce;
        let properties = match self.version {
            Version::V311 => None,
            Version::V5 => Some(publish_properties_len(publish)),
        };
        let remaining = 2
            + publish.topic.len()
            + if acknowledged { 2 } else { 0 }
            + properties.map_or(0, |length| varint_len(length) + length)
            + publish.payload.len();
        if !self.fits(remaining) {
            return false;
        }
        out.reserve(packet_len(remaining));
        let dup = publish.dup && acknowledged;
        let flags = u8::from(dup) << 3 | (publish.qos as u8) << 1 | u8::from(publish.retain);
        header(out, kind::PUBLISH << 4 | flags, remaining);
        two(out, topic_len);
        out.extend_from_slice(publish.topic);
        if acknowledged {
            two(out, publish.packet_id);
        }
        if let Some(length) = properties {
            varint(out, length);
            own_properties(publish).for_each(|property| property.write(out));
            out.extend_from_slice(publish.properties);
        }
        out.extend_from_slice(publish.payload);
        true
    }

    /// PUBACK, with a reason string and user properties for MQTT 5.
    ///
    /// When not all fits, the reason string goes first. 3.1.1 has no reasons: the acknowledgement is a plain one.
    pub fn puback(
        &self,
        out: &mut Vec<u8>,
        id: u16,
        reason: ReasonCode,
        text: Option<&str>,
        user: &[(&str, &str)],
    ) {
        self.acknowledge(out, kind::PUBACK << 4, id, reason, text, user);
    }

    /// PUBREC, as [`Encoder::puback`].
    pub fn pubrec(
        &self,
        out: &mut Vec<u8>,
        id: u16,
        reason: ReasonCode,
        text: Option<&str>,
        user: &[(&str, &str)],
    ) {
        self.acknowledge(out, kind::PUBREC << 4, id, reason, text, user);
    }

    /// PUBREL.
    pub fn pubrel(&self, out: &mut Vec<u8>, id: u16, reason: ReasonCode) {
        self.acknowledge(out, kind::PUBREL << 4 | 0b0010, id, reason, None, &[]);
    }

    /// PUBCOMP.
    pub fn pubcomp(&self, out: &mut Vec<u8>, id: u16, reason: ReasonCode) {
        self.acknowledge(out, kind::PUBCOMP << 4, id, reason, None, &[]);
    }

    /// SUBACK, a code for each filter; codes that 3.1.1 does not know become 0x80 there.
    pub fn suback(&self, out: &mut Vec<u8>, id: u16, codes: &[ReasonCode]) {
        let known = |code: u8| if self.version == Version::V5 || code <= 2 { code } else { 0x80 };
        self.with_codes(out, kind::SUBACK << 4, id, codes, known);
    }

    /// UNSUBACK; 3.1.1 has no codes.
    pub fn unsuback(&self, out: &mut Vec<u8>, id: u16, codes: &[ReasonCode]) {
        let codes = if self.version == Version::V5 { codes } else { &[] };
        self.with_codes(out, kind::UNSUBACK << 4, id, codes, |code| code);
    }

    /// PINGRESP.
    pub fn pingresp(&self, out: &mut Vec<u8>) {
        if self.fits(0) {
            header(out, kind::PINGRESP << 4, 0);
        }
    }

    /// DISCONNECT (MQTT 5 only: nothing is written for 3.1.1).
    pub fn disconnect(
        &self,
        out: &mut Vec<u8>,
        reason: ReasonCode,
        text: Option<&str>,
        server: Option<&str>,
    ) {
        if self.version == Version::V311 {
            return;
        }
        // Never in the short form: it is rare, and some clients read on for the length that it leaves out.
        let first = kind::DISCONNECT << 4;
        let fixed = [reason.0];
        let text = text.map(|text| Property::Text(id::REASON_STRING, text));
        let server = server.map(|server| Property::Text(id::SERVER_REFERENCE, server));
        let _ = self.with_properties(out, first, &fixed, server.into_iter().chain(text))
            || self.with_properties(out, first, &fixed, server.into_iter())
            || self.with_properties(out, first, &fixed, std::iter::empty());
    }

    /// The four acknowledgements of PUBLISH.
    fn acknowledge(
        &self,
        out: &mut Vec<u8>,
        first: u8,
        id: u16,
        reason: ReasonCode,
        text: Option<&str>,
        user: &[(&str, &str)],
    ) {
        let [high, low] = id.to_be_bytes();
        let fixed = [high, low, reason.0];
        if self.version == Version::V311 {
            return self.plain(out, first, &fixed[..2]);
        }
        if self.problem_information && (text.is_some() || !user.is_empty()) {
            let text = text.map(|text| Property::Text(id::REASON_STRING, text));
            let user = user.iter().map(|&(key, value)| Property::User(key, value));
            if self.with_properties(out, first, &fixed, text.into_iter().chain(user.clone()))
                || self.with_properties(out, first, &fixed, user)
            {
                return;
            }
        }
        let short = if reason == ReasonCode::SUCCESS { &fixed[..2] } else { &fixed };
        self.plain(out, first, short);
    }

    /// A packet without properties.
    fn plain(&self, out: &mut Vec<u8>, first: u8, body: &[u8]) {
        if self.fits(body.len()) {
            out.reserve(packet_len(body.len()));
            header(out, first, body.len());
            out.extend_from_slice(body);
        }
    }

    /// A packet that ends with properties. `false` when it is too large and was not written.
    fn with_properties<'p>(
        &self,
        out: &mut Vec<u8>,
        first: u8,
        fixed: &[u8],
        properties: impl Iterator<Item = Property<'p>> + Clone,
    ) -> bool {
        let length: usize = properties.clone().map(Property::len).sum();
        let remaining = fixed.len() + varint_len(length) + length;
        if !self.fits(remaining) {
            return false;
        }
        out.reserve(packet_len(remaining));
        header(out, first, remaining);
        out.extend_from_slice(fixed);
        varint(out, length);
        properties.for_each(|property| property.write(out));
        true
    }

    /// A packet that ends with a code for each filter.
    fn with_codes(
        &self,
        out: &mut Vec<u8>,
        first: u8,
        id: u16,
        codes: &[ReasonCode],
        translate: impl Fn(u8) -> u8,
    ) {
        let no_properties = usize::from(self.version == Version::V5);
        let remaining = 2 + no_properties + codes.len();
        if !self.fits(remaining) {
            return;
        }
        out.reserve(packet_len(remaining));
        header(out, first, remaining);
        two(out, id);
        out.extend(std::iter::repeat_n(0, no_properties));
        out.extend(codes.iter().map(|code| translate(code.0)));
    }

    /// [MQTT-3.1.2-24]
    fn fits(&self, remaining: usize) -> bool {
        remaining <= VARINT_MAX && packet_len(remaining) <= self.maximum as usize
    }
}

/// The return code of a 3.1.1 CONNACK.
fn return_code(reason: ReasonCode) -> u8 {
    match reason {
        ReasonCode::UNSUPPORTED_PROTOCOL_VERSION => 1,
        ReasonCode::CLIENT_IDENTIFIER_NOT_VALID => 2,
        ReasonCode::UNSPECIFIED_ERROR
        | ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR
        | ReasonCode::SERVER_UNAVAILABLE
        | ReasonCode::SERVER_BUSY
        | ReasonCode::SERVER_SHUTTING_DOWN
        | ReasonCode::QUOTA_EXCEEDED
        | ReasonCode::USE_ANOTHER_SERVER
        | ReasonCode::SERVER_MOVED
        | ReasonCode::CONNECTION_RATE_EXCEEDED => 3,
        ReasonCode::BAD_USER_NAME_OR_PASSWORD => 4,
        other if other.is_error() => 5,
        _ => 0,
    }
}

/// What a CONNACK must say, in contrast to its reason string.
fn connack_properties<'a>(connack: &Connack<'a>) -> [Option<Property<'a>>; 8] {
    [
        connack.session_expiry.map(|value| Property::Four(id::SESSION_EXPIRY, value)),
        connack.receive_maximum.map(|value| Property::Two(id::RECEIVE_MAXIMUM, value)),
        connack.maximum_packet_size.map(|value| Property::Four(id::MAXIMUM_PACKET_SIZE, value)),
        connack.assigned_client_id.map(|value| Property::Text(id::ASSIGNED_CLIENT_ID, value)),
        connack.topic_alias_maximum.map(|value| Property::Two(id::TOPIC_ALIAS_MAXIMUM, value)),
        connack.server_keep_alive.map(|value| Property::Two(id::SERVER_KEEP_ALIVE, value)),
        connack.response_information.map(|value| Property::Text(id::RESPONSE_INFORMATION, value)),
        connack.server_reference.map(|value| Property::Text(id::SERVER_REFERENCE, value)),
    ]
}

/// The properties of a PUBLISH that depend on its receiver.
fn own_properties<'a>(publish: &Outgoing<'a>) -> impl Iterator<Item = Property<'a>> + use<'a> {
    let alias = publish.topic_alias.map(|alias| Property::Two(id::TOPIC_ALIAS, alias));
    let expiry = publish.message_expiry.map(|seconds| Property::Four(id::MESSAGE_EXPIRY, seconds));
    let ids = publish.subscription_ids.iter().map(|&value| Property::Varint(id::SUBSCRIPTION_ID, value));
    // Identifiers first: rumqttc counts one byte too many for each, and then takes what is short at the end
    // of the block for payload.
    ids.chain(alias).chain(expiry)
}

fn publish_properties_len(publish: &Outgoing<'_>) -> usize {
    own_properties(publish).map(Property::len).sum::<usize>() + publish.properties.len()
}
