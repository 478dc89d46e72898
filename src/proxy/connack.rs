//! What an upstream's CONNACK says, and what the proxy adds to it.

use super::frames::{self, Nonsense, each_property, header, two, varint, write_varint};
use crate::wire::Version;

/// What matters of a CONNACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Answer {
    /// The client is let in.
    pub(super) accepted: bool,
    pub(super) session_present: bool,
    /// Aliases that the client may set up.
    pub(super) topic_alias_maximum: u16,
    /// Largest packet that the upstream takes.
    pub(super) maximum_packet_size: Option<u32>,
    pub(super) server_keep_alive: Option<u16>,
    pub(super) session_expiry: Option<u32>,
}

/// What the proxy has to say in a CONNACK.
pub(super) struct Own<'a> {
    /// The identifier that the proxy gave the client.
    pub(super) assigned: Option<&'a str>,
    pub(super) maximum_packet_size: u32,
    pub(super) topic_alias_maximum: u16,
}

const ASSIGNED_CLIENT_ID: u8 = 0x12;
const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
const MAXIMUM_PACKET_SIZE: u8 = 0x27;

/// Reads the body of a CONNACK.
pub(super) fn read(version: Version, body: &[u8]) -> Result<Answer, Nonsense> {
    let [flags, code, ..] = *body else { return Err(Nonsense::ShortConnack) };
    let mut answer = Answer { accepted: code == 0, session_present: flags & 1 != 0, ..Answer::default() };
    if version == Version::V311 {
        return if body.len() == 2 { Ok(answer) } else { Err(Nonsense::LongConnack) };
    }
    each_property(properties(body)?, |id, value| {
        let four = || u32::from_be_bytes(value.try_into().unwrap_or_default());
        match id {
            TOPIC_ALIAS_MAXIMUM => answer.topic_alias_maximum = two(value, 0).unwrap_or_default(),
            MAXIMUM_PACKET_SIZE => answer.maximum_packet_size = Some(four()),
            0x11 => answer.session_expiry = Some(four()),
            0x13 => answer.server_keep_alive = two(value, 0),
            _ => {}
        }
    })?;
    Ok(answer)
}

/// Writes an MQTT 5 CONNACK with what the proxy has to say; `false` when nothing has to change and nothing was written.
pub(super) fn amend(
    out: &mut Vec<u8>,
    body: &[u8],
    answer: &Answer,
    own: &Own<'_>,
) -> Result<bool, Nonsense> {
    let smaller = answer.maximum_packet_size.is_none_or(|theirs| theirs > own.maximum_packet_size);
    let fewer = answer.topic_alias_maximum > own.topic_alias_maximum;
    if !answer.accepted || !smaller && !fewer && own.assigned.is_none() {
        return Ok(false);
    }
    let mut kept = Vec::new();
    each_property(properties(body)?, |id, value| {
        let replaced = id == MAXIMUM_PACKET_SIZE && smaller
            || id == TOPIC_ALIAS_MAXIMUM && fewer
            || id == ASSIGNED_CLIENT_ID && own.assigned.is_some();
        if !replaced {
            kept.push(id);
            kept.extend_from_slice(value);
        }
    })?;
    if smaller {
        kept.push(MAXIMUM_PACKET_SIZE);
        kept.extend(own.maximum_packet_size.to_be_bytes());
    }
    if fewer {
        kept.push(TOPIC_ALIAS_MAXIMUM);
        kept.extend(own.topic_alias_maximum.to_be_bytes());
    }
    if let Some(id) = own.assigned.and_then(|id| Some((u16::try_from(id.len()).ok()?, id))) {
        kept.push(ASSIGNED_CLIENT_ID);
        kept.extend(id.0.to_be_bytes());
        kept.extend_from_slice(id.1.as_bytes());
    }
    let mut length = Vec::new();
    write_varint(&mut length, kept.len());
    header(out, frames::CONNACK << 4, 2 + length.len() + kept.len());
    out.extend_from_slice(&body[..2]);
    out.extend(length);
    out.extend(kept);
    Ok(true)
}

fn properties(body: &[u8]) -> Result<&[u8], Nonsense> {
    let (length, start) = varint(body, 2).ok_or(Nonsense::ShortConnack)?;
    body.get(start..start + length).ok_or(Nonsense::ShortConnack)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_what_must_change_does() {
        let own = Own { assigned: None, maximum_packet_size: 1000, topic_alias_maximum: 5 };
        let body = [0, 0, 11, 0x22, 0, 10, 0x27, 0, 1, 0, 0, 0x21, 0, 20];
        let answer = read(Version::V5, &body).unwrap();
        assert_eq!((answer.topic_alias_maximum, answer.maximum_packet_size), (10, Some(65536)));
        let mut out = Vec::new();
        assert!(amend(&mut out, &body, &answer, &own).unwrap());
        let again = read(Version::V5, &out[2..]).unwrap();
        assert_eq!((again.topic_alias_maximum, again.maximum_packet_size), (5, Some(1000)));
        let same = out.clone();
        assert!(!amend(&mut out, &same[2..], &again, &own).unwrap());
        let named = Own { assigned: Some("abc"), ..own };
        out.clear();
        assert!(amend(&mut out, &body, &answer, &named).unwrap());
        assert_eq!(out[out.len() - 6..], [0x12, 0, 3, b'a', b'b', b'c']);
        assert!(read(Version::V5, &[0, 0, 3, 0x27]).is_err());
    }
}
