//! The primitive types of the protocol, written at the end of a buffer.

use super::property::id;
use super::reader::varint_len;

/// Writes the first byte and the Remaining Length.
pub(super) fn header(out: &mut Vec<u8>, first: u8, remaining: usize) {
    out.push(first);
    varint(out, remaining);
}

/// Bytes of a whole packet.
pub(super) fn packet_len(remaining: usize) -> usize {
    1 + varint_len(remaining) + remaining
}

/// Writes a Variable Byte Integer in its shortest form; of a value that is too large only the lower 28 bits.
pub(super) fn varint(out: &mut Vec<u8>, value: usize) {
    let mut rest = value;
    for _ in 1..varint_len(value) {
        out.push((rest & 0x7F) as u8 | 0x80);
        rest >>= 7;
    }
    out.push((rest & 0x7F) as u8);
}

pub(super) fn two(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// A string as far as the protocol can carry it: up to 65,535 bytes and to the first U+0000.
pub(super) fn clip(text: &str) -> &str {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    text.split('\0').next().unwrap_or(text)
}

/// Appends a user property, as it stands among the properties of a PUBLISH.
pub fn user_property(out: &mut Vec<u8>, key: &str, value: &str) {
    Property::User(key, value).write(out);
}

/// Appends correlation data, as it stands among the properties of a PUBLISH; nothing if it is longer than 65,535 bytes.
pub fn correlation_data(out: &mut Vec<u8>, data: &[u8]) {
    if let Ok(length) = u16::try_from(data.len()) {
        out.push(id::CORRELATION_DATA);
        two(out, length);
        out.extend_from_slice(data);
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    let text = clip(text);
    // `clip` leaves no more than a u16 holds.
    two(out, text.len() as u16);
    out.extend_from_slice(text.as_bytes());
}

/// A property to write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Property<'a> {
    Two(u8, u16),
    Four(u8, u32),
    Varint(u8, u32),
    Text(u8, &'a str),
    User(&'a str, &'a str),
}

impl Property<'_> {
    pub(super) fn len(self) -> usize {
        1 + match self {
            Self::Two(..) => 2,
            Self::Four(..) => 4,
            Self::Varint(_, value) => varint_len(value as usize),
            Self::Text(_, text) => 2 + clip(text).len(),
            Self::User(key, value) => 4 + clip(key).len() + clip(value).len(),
        }
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Two(id, value) => {
                out.push(id);
                two(out, value);
            }
            Self::Four(id, value) => {
                out.push(id);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Self::Varint(id, value) => {
                out.push(id);
                varint(out, value as usize);
            }
            Self::Text(id, text) => {
                out.push(id);
                string(out, text);
            }
            Self::User(key, value) => {
                out.push(id::USER);
                string(out, key);
                string(out, value);
            }
        }
    }
}
