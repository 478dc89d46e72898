//! Packets to bytes.

use super::{Connack, Outgoing, ReasonCode, Version};

/// Writes packets for one connection, in its version, at the end of a buffer.
///
/// A packet that would be larger than the client's Maximum Packet Size is not written; optional properties
/// (reason string, user properties) are left out first.
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
    /// CONNACK.
    pub fn connack(&self, _out: &mut Vec<u8>, _connack: &Connack<'_>) {
        unimplemented!()
    }

    /// PUBLISH. `false` when it is too large for the client and was not written.
    #[must_use]
    pub fn publish(&self, _out: &mut Vec<u8>, _publish: &Outgoing<'_>) -> bool {
        unimplemented!()
    }

    /// PUBACK, with a reason string and user properties for MQTT 5.
    pub fn puback(
        &self,
        _out: &mut Vec<u8>,
        _id: u16,
        _reason: ReasonCode,
        _text: Option<&str>,
        _user: &[(&str, &str)],
    ) {
        unimplemented!()
    }

    /// PUBREC, as [`Encoder::puback`].
    pub fn pubrec(
        &self,
        _out: &mut Vec<u8>,
        _id: u16,
        _reason: ReasonCode,
        _text: Option<&str>,
        _user: &[(&str, &str)],
    ) {
        unimplemented!()
    }

    /// PUBREL.
    pub fn pubrel(&self, _out: &mut Vec<u8>, _id: u16, _reason: ReasonCode) {
        unimplemented!()
    }

    /// PUBCOMP.
    pub fn pubcomp(&self, _out: &mut Vec<u8>, _id: u16, _reason: ReasonCode) {
        unimplemented!()
    }

    /// SUBACK, a code for each filter; codes that 3.1.1 does not know become 0x80 there.
    pub fn suback(&self, _out: &mut Vec<u8>, _id: u16, _codes: &[ReasonCode]) {
        unimplemented!()
    }

    /// UNSUBACK; 3.1.1 has no codes.
    pub fn unsuback(&self, _out: &mut Vec<u8>, _id: u16, _codes: &[ReasonCode]) {
        unimplemented!()
    }

    /// PINGRESP.
    pub fn pingresp(&self, _out: &mut Vec<u8>) {
        unimplemented!()
    }

    /// DISCONNECT (MQTT 5 only: nothing is written for 3.1.1).
    pub fn disconnect(
        &self,
        _out: &mut Vec<u8>,
        _reason: ReasonCode,
        _text: Option<&str>,
        _server: Option<&str>,
    ) {
        unimplemented!()
    }
}
