//! CONNECT from bytes.

use bytes::Bytes;

use super::decode::check_header;
use super::property::{self, id};
use super::reader::Reader;
use super::{Connect, Frame, QoS, ReasonCode, Version, Will, WireError};

pub(super) fn decode(frame: Frame, mut reader: Reader<'_>) -> Result<Connect, WireError> {
    let body = reader.rest();
    let version = version(&mut reader)?;
    check_header(version, frame, body)?;
    let flags = Flags::read(version, &mut reader)?;
    let mut connect = Connect {
        version,
        clean_start: flags.clean_start,
        keep_alive: reader.two()?,
        client_id: String::new(),
        will: None,
        user: None,
        password: None,
        // The life of a 3.1.1 session is the connection's, or has no end.
        session_expiry: if version == Version::V5 || flags.clean_start { 0 } else { u32::MAX },
        receive_maximum: u16::MAX,
        maximum_packet_size: None,
        topic_alias_maximum: 0,
        request_response_information: false,
        request_problem_information: true,
        authentication_method: None,
    };
    if version == Version::V5 {
        connect.read_properties(reader.properties()?)?;
    }
    connect.client_id = reader.text()?.to_owned();
    if let Some((qos, retain)) = flags.will {
        connect.will = Some(will(version, qos, retain, &mut reader)?);
    }
    if flags.user {
        connect.user = Some(reader.text()?.to_owned());
    }
    if flags.password {
        connect.password = Some(Bytes::copy_from_slice(reader.binary()?));
    }
    reader.finish()?;
    Ok(connect)
}

impl Connect {
    fn read_properties(&mut self, block: &[u8]) -> Result<(), WireError> {
        let mut has_authentication_data = false;
        property::for_each(block, property::IN_CONNECT, |item| {
            let number = item.number;
            match item.id {
                id::SESSION_EXPIRY => self.session_expiry = number,
                // Two bytes long, so that the casts can't cut.
                id::RECEIVE_MAXIMUM => self.receive_maximum = number as u16,
                id::TOPIC_ALIAS_MAXIMUM => self.topic_alias_maximum = number as u16,
                id::MAXIMUM_PACKET_SIZE => self.maximum_packet_size = Some(number),
                id::REQUEST_RESPONSE_INFORMATION => self.request_response_information = number == 1,
                id::REQUEST_PROBLEM_INFORMATION => self.request_problem_information = number == 1,
                id::AUTHENTICATION_METHOD => self.authentication_method = Some(item.to_text()?),
                id::AUTHENTICATION_DATA => has_authentication_data = true,
                _ => {}
            }
            Ok(())
        })?;
        if has_authentication_data && self.authentication_method.is_none() {
            return Err(WireError::protocol("authentication data without a method"));
        }
        Ok(())
    }
}

/// The Connect Flags.
struct Flags {
    clean_start: bool,
    will: Option<(QoS, bool)>,
    user: bool,
    password: bool,
}

impl Flags {
    fn read(version: Version, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let bits = reader.byte()?;
        let has = |mask: u8| bits & mask != 0;
        // [MQTT-3.1.2-3]
        if has(0x01) {
            return Err(WireError::malformed("reserved flag of CONNECT"));
        }
        // [MQTT-3.1.2-11], [MQTT-3.1.2-13]
        if !has(0x04) && has(0x38) {
            return Err(WireError::malformed("will QoS or will retain without a will"));
        }
        // [MQTT-3.1.2-12]; 3.1.1: [MQTT-3.1.2-14]
        let qos = QoS::from_bits((bits >> 3) & 0b11).ok_or(WireError::malformed("will QoS 3"))?;
        // 3.1.1: [MQTT-3.1.2-22]; MQTT 5 lets a password stand alone
        if version == Version::V311 && has(0x40) && !has(0x80) {
            return Err(WireError::malformed("password without a user name"));
        }
        Ok(Self {
            clean_start: has(0x02),
            will: has(0x04).then_some((qos, has(0x20))),
            user: has(0x80),
            password: has(0x40),
        })
    }
}

fn version(reader: &mut Reader<'_>) -> Result<Version, WireError> {
    let name = reader.binary()?;
    let level = reader.byte()?;
    match (name, level) {
        (b"MQTT", 4) => Ok(Version::V311),
        (b"MQTT", 5) => Ok(Version::V5),
        (b"MQIsdp", _) | (b"MQTT", 3) => Err(unsupported("MQTT 3.1 is not supported, use 3.1.1 or 5.0")),
        (b"MQTT", _) => Err(unsupported("protocol level is neither 4 (3.1.1) nor 5 (5.0)")),
        _ => Err(unsupported("protocol name is not MQTT")),
    }
}

fn unsupported(what: &'static str) -> WireError {
    WireError { reason: ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, what }
}

fn will(version: Version, qos: QoS, retain: bool, reader: &mut Reader<'_>) -> Result<Will, WireError> {
    let mut delay = 0;
    let mut message_expiry = None;
    let mut properties = Vec::new();
    if version == Version::V5 {
        property::for_each(reader.properties()?, property::IN_WILL, |item| {
            match item.id {
                id::WILL_DELAY => delay = item.number,
                id::MESSAGE_EXPIRY => message_expiry = Some(item.number),
                _ => properties.extend_from_slice(item.raw),
            }
            Ok(())
        })?;
    }
    let topic = reader.topic()?;
    if topic.is_empty() {
        return Err(WireError { reason: ReasonCode::TOPIC_NAME_INVALID, what: "empty will topic" });
    }
    let payload = Bytes::copy_from_slice(reader.binary()?);
    Ok(Will {
        topic: topic.to_owned(),
        payload,
        qos,
        retain,
        delay,
        message_expiry,
        properties: properties.into(),
    })
}
