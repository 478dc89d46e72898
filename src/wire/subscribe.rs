//! SUBSCRIBE and UNSUBSCRIBE from bytes.

use super::property::{self, id};
use super::reader::Reader;
use super::{Filter, QoS, RetainHandling, Subscribe, Unsubscribe, Version, WireError};

pub(super) fn subscribe(version: Version, mut reader: Reader<'_>) -> Result<Subscribe, WireError> {
    let packet_id = reader.packet_id()?;
    let mut identifier = None;
    if version == Version::V5 {
        property::for_each(reader.properties()?, property::IN_SUBSCRIBE, |item| {
            if item.id == id::SUBSCRIPTION_ID {
                identifier = Some(item.number);
            }
            Ok(())
        })?;
    }
    let mut filters = Vec::new();
    while !reader.is_empty() {
        let path = filter(&mut reader)?;
        filters.push(with_options(version, path, reader.byte()?)?);
    }
    // [MQTT-3.8.3-2]; 3.1.1: [MQTT-3.8.3-3]
    if filters.is_empty() {
        return Err(WireError::protocol("SUBSCRIBE without a filter"));
    }
    Ok(Subscribe { packet_id, identifier, filters })
}

pub(super) fn unsubscribe(version: Version, mut reader: Reader<'_>) -> Result<Unsubscribe, WireError> {
    let packet_id = reader.packet_id()?;
    if version == Version::V5 {
        property::for_each(reader.properties()?, property::IN_UNSUBSCRIBE, |_| Ok(()))?;
    }
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(filter(&mut reader)?);
    }
    // [MQTT-3.10.3-2]
    if filters.is_empty() {
        return Err(WireError::protocol("UNSUBSCRIBE without a filter"));
    }
    Ok(Unsubscribe { packet_id, filters })
}

/// [MQTT-4.7.3-1]
fn filter(reader: &mut Reader<'_>) -> Result<String, WireError> {
    match reader.text()? {
        "" => Err(WireError::malformed("empty topic filter")),
        path => Ok(path.to_owned()),
    }
}

fn with_options(version: Version, path: String, bits: u8) -> Result<Filter, WireError> {
    let reserved = if version == Version::V5 { 0xC0 } else { 0xFC };
    // [MQTT-3.8.3-5]; 3.1.1: [MQTT-3-8.3-4]
    if bits & reserved != 0 {
        return Err(WireError::malformed("reserved subscription options"));
    }
    let qos = QoS::from_bits(bits & 0b11).ok_or(match version {
        Version::V311 => WireError::malformed("subscription with QoS 3"),
        Version::V5 => WireError::protocol("subscription with QoS 3"),
    })?;
    let retain_handling = match (bits >> 4) & 0b11 {
        0 => RetainHandling::Always,
        1 => RetainHandling::IfNew,
        2 => RetainHandling::Never,
        _ => return Err(WireError::protocol("retain handling 3")),
    };
    let no_local = bits & 0x04 != 0;
    // [MQTT-3.8.3-4]
    if no_local && path.starts_with("$share/") {
        return Err(WireError::protocol("no local on a shared subscription"));
    }
    Ok(Filter { path, qos, no_local, retain_as_published: bits & 0x08 != 0, retain_handling })
}
