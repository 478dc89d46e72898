//! What a client writes.

use super::properties::{RECEIVE_MAXIMUM, SESSION_EXPIRY};
use super::{Version, kind};

/// What a client asks for when it connects.
#[derive(Debug, Clone, Copy)]
pub struct Connect<'a> {
    /// The protocol.
    pub version: Version,
    /// The client's name.
    pub client: &'a str,
    /// User name and password, if any.
    pub login: Option<(&'a str, &'a str)>,
    /// Seconds.
    pub keep_alive: u16,
    /// Whether the session outlives the connection.
    pub persistent: bool,
    /// Messages that may be in flight towards the client (MQTT 5).
    pub receive_maximum: Option<u16>,
}

/// Writes CONNECT.
pub fn put_connect(connect: &Connect<'_>, to: &mut Vec<u8>) {
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T'];
    body.push(if connect.version == Version::V5 { 5 } else { 4 });
    body.push(u8::from(!connect.persistent) << 1 | if connect.login.is_some() { 0xC0 } else { 0 });
    body.extend(connect.keep_alive.to_be_bytes());
    if connect.version == Version::V5 {
        let mut properties = Vec::new();
        if connect.persistent {
            properties.push(SESSION_EXPIRY);
            properties.extend(3600u32.to_be_bytes());
        }
        if let Some(maximum) = connect.receive_maximum {
            properties.push(RECEIVE_MAXIMUM);
            properties.extend(maximum.max(1).to_be_bytes());
        }
        put_varint(properties.len(), &mut body);
        body.extend(properties);
    }
    put_text(connect.client, &mut body);
    if let Some((user, password)) = connect.login {
        put_text(user, &mut body);
        put_text(password, &mut body);
    }
    put_packet(kind::CONNECT << 4, &body, to);
}

/// Writes SUBSCRIBE.
pub fn put_subscribe(version: Version, id: u16, filters: &[(&str, u8)], to: &mut Vec<u8>) {
    let mut body = id.to_be_bytes().to_vec();
    if version == Version::V5 {
        body.push(0);
    }
    for (filter, qos) in filters {
        put_text(filter, &mut body);
        body.push(*qos);
    }
    put_packet(kind::SUBSCRIBE << 4 | 2, &body, to);
}

/// Writes UNSUBSCRIBE.
pub fn put_unsubscribe(version: Version, id: u16, filter: &str, to: &mut Vec<u8>) {
    let mut body = id.to_be_bytes().to_vec();
    if version == Version::V5 {
        body.push(0);
    }
    put_text(filter, &mut body);
    put_packet(kind::UNSUBSCRIBE << 4 | 2, &body, to);
}

/// Writes PUBACK, PUBREC, PUBREL or PUBCOMP.
pub fn put_ack(kind: u8, id: u16, to: &mut Vec<u8>) {
    let flags = if kind == kind::PUBREL { 2 } else { 0 };
    let [high, low] = id.to_be_bytes();
    to.extend([kind << 4 | flags, 2, high, low]);
}

/// Writes any packet.
pub fn put_packet(first: u8, body: &[u8], to: &mut Vec<u8>) {
    to.push(first);
    put_varint(body.len(), to);
    to.extend_from_slice(body);
}

/// Writes a text with its length.
pub fn put_text(text: &str, to: &mut Vec<u8>) {
    // Scenario files are checked: no name, topic or filter is longer than this.
    let bytes = &text.as_bytes()[..text.len().min(u16::MAX.into())];
    to.extend((bytes.len() as u16).to_be_bytes());
    to.extend_from_slice(bytes);
}

fn put_varint(mut number: usize, to: &mut Vec<u8>) {
    while number > 127 {
        to.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    to.push(number as u8);
}
