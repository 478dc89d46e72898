//! Changing a CONNECT where the proxy must: an identifier for a client that brings none, a will that is thrown away.

use super::frames::{binary, header, varint};
use crate::wire::Version;

/// What a CONNECT is to say in place of what it says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changes<'a> {
    /// The client identifier.
    pub(super) id: Option<&'a str>,
    pub(super) without_will: bool,
}

impl Changes<'_> {
    /// Whether there are none.
    pub(super) fn is_none(&self) -> bool {
        self.id.is_none() && !self.without_will
    }
}

/// The packet again with these changes; none when its body is not sound.
pub(super) fn rewrite(version: Version, body: &[u8], changes: Changes<'_>) -> Option<Vec<u8>> {
    const WILL: u8 = 0b0010_0000 | 0b0001_1000 | 0b0000_0100;
    let (_, level) = binary(body, 0)?;
    let flags_at = level + 1;
    let flags = *body.get(flags_at)?;
    let mut at = flags_at + 3;
    if version == Version::V5 {
        let (length, start) = varint(body, at)?;
        at = start + length;
    }
    let mut new = body.get(..at)?.to_vec();
    let (own_id, mut rest) = binary(body, at)?;
    let id = changes.id.map_or(own_id, str::as_bytes);
    new.extend(u16::try_from(id.len()).ok()?.to_be_bytes());
    new.extend_from_slice(id);
    if changes.without_will && flags & 0b100 != 0 {
        if version == Version::V5 {
            let (length, start) = varint(body, rest)?;
            rest = start + length;
        }
        let (_, payload) = binary(body, rest)?;
        (_, rest) = binary(body, payload)?;
        new[flags_at] = flags & !WILL;
    }
    new.extend_from_slice(body.get(rest..)?);
    let mut packet = Vec::with_capacity(new.len() + 5);
    header(&mut packet, 0x10, new.len());
    packet.extend(new);
    Some(packet)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::wire::{Packet, decode, frame};

    #[test]
    fn the_rest_stays_as_it_was() {
        // MQTT 5, will with QoS 1 and retain, user and password, keep-alive 9, session expiry 1
        let mut body = b"\0\x04MQTT\x05\xEE\0\x09\x05\x11\0\0\0\x01\0\0".to_vec();
        body.extend(b"\x05\x18\0\0\0\x02\0\x01w\0\x03bye\0\x04user\0\x04pass");
        let packet = rewrite(Version::V5, &body, Changes { id: Some("abc"), without_will: true }).unwrap();
        let found = frame(&packet, 1000).unwrap().unwrap();
        let Packet::Connect(connect) = decode(None, found, &packet[found.header..]).unwrap() else {
            panic!()
        };
        assert_eq!((&*connect.client_id, connect.keep_alive, connect.session_expiry), ("abc", 9, 1));
        assert_eq!((connect.will, connect.user.as_deref()), (None, Some("user")));
        assert_eq!(connect.password.as_deref(), Some(&b"pass"[..]));
        let same = rewrite(Version::V5, &body, Changes::default()).unwrap();
        assert_eq!(same[2..], body);
    }
}
