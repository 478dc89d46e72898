//! Properties of MQTT 5.

use super::varint;

pub(super) const RECEIVE_MAXIMUM: u8 = 0x21;
pub(super) const SESSION_EXPIRY: u8 = 0x11;
pub(super) const REASON_STRING: u8 = 0x1F;
const USER_PROPERTY: u8 = 0x26;

/// One property, by the kind of its value.
pub(super) enum Property<'a> {
    Number(u8, u32),
    Text(u8, &'a [u8]),
    User(&'a [u8], &'a [u8]),
}

/// Properties one after the other; ends at the first that makes no sense.
pub(super) struct Properties<'a>(pub(super) &'a [u8]);

impl<'a> Properties<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, length: usize) -> Option<u32> {
        let bytes = self.take(length)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number(2)?;
        self.take(length as usize)
    }
}

impl<'a> Iterator for Properties<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        let id = self.take(1)?[0];
        Some(match id {
            0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2A => Property::Number(id, self.number(1)?),
            0x13 | 0x21..=0x23 => Property::Number(id, self.number(2)?),
            0x02 | 0x11 | 0x18 | 0x27 => Property::Number(id, self.number(4)?),
            0x0B => {
                let (value, used) = varint(self.0).ok()??;
                self.take(used)?;
                Property::Number(id, value as u32)
            }
            0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1A | 0x1C | 0x1F => Property::Text(id, self.text()?),
            USER_PROPERTY => Property::User(self.text()?, self.text()?),
            _ => return None,
        })
    }
}
