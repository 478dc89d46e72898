//! The primitive types of the protocol, read from the front of a slice.

use super::{ReasonCode, WireError};

/// The largest value of a Variable Byte Integer.
pub(super) const VARINT_MAX: usize = 268_435_455;

const TOO_SHORT: WireError = WireError::malformed("packet ends too soon");

/// How many bytes a Variable Byte Integer takes.
pub(super) const fn varint_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Reads a packet's body, or a part of it, from front to back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn two(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn four(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A Variable Byte Integer in its shortest form [MQTT-1.5.5-1].
    pub(super) fn varint(&mut self) -> Result<u32, WireError> {
        let mut value = 0;
        for index in 0..4 {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                let padded = index > 0 && byte == 0;
                return if padded {
                    Err(WireError::malformed("integer longer than needed"))
                } else {
                    Ok(value)
                };
            }
        }
        Err(WireError::malformed("integer over four bytes"))
    }

    /// Binary data: two bytes of length, then that many bytes.
    pub(super) fn binary(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.two()?;
        self.take(usize::from(length))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, WireError> {
        text(self.binary()?)
    }

    /// A topic name, perhaps empty.
    pub(super) fn topic(&mut self) -> Result<&'a str, WireError> {
        let topic = self.text()?;
        if has_wildcard(topic) {
            return Err(WireError {
                reason: ReasonCode::TOPIC_NAME_INVALID,
                what: "wildcard in a topic name",
            });
        }
        Ok(topic)
    }

    pub(super) fn packet_id(&mut self) -> Result<u16, WireError> {
        match self.two()? {
            0 => Err(WireError::protocol("packet identifier 0")),
            id => Ok(id),
        }
    }

    /// A block of properties, without its length.
    pub(super) fn properties(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        // A u32 fits a usize on every target with an operating system.
        self.take(length as usize)
    }

    /// Refuses bytes after the end of the packet.
    pub(super) fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::malformed("bytes after the packet's end")) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(*taken)
    }
}

/// A UTF-8 Encoded String: valid UTF-8 [MQTT-1.5.4-1] without U+0000 [MQTT-1.5.4-2].
pub(super) fn text(bytes: &[u8]) -> Result<&str, WireError> {
    let text = std::str::from_utf8(bytes).map_err(|_| WireError::malformed("string is not UTF-8"))?;
    if any(bytes, |byte| byte == 0) {
        return Err(WireError::malformed("string holds U+0000"));
    }
    Ok(text)
}

pub(super) fn has_wildcard(topic: &str) -> bool {
    any(topic.as_bytes(), |byte| (byte == b'+') | (byte == b'#'))
}

/// `Iterator::any` without the early exit, which the compiler turns into vector instructions: on the hot path
/// the answer is no, so that every byte is looked at anyway.
fn any(bytes: &[u8], test: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(false, |found, &byte| found | test(byte))
}
