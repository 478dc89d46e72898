//! Bytes to packets.

use super::{Packet, Version, WireError};

/// Where one packet lies in the read buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The first byte: type and flags.
    pub first: u8,
    /// Bytes before the body (2 to 5).
    pub header: usize,
    /// Bytes of the body.
    pub body: usize,
}

/// Finds the packet at the front of `buffer`.
///
/// `None` when more bytes are needed. `maximum` is the largest whole packet that is accepted; a larger one is
/// refused (0x95) as soon as its length is known.
pub fn frame(_buffer: &[u8], _maximum: usize) -> Result<Option<Frame>, WireError> {
    unimplemented!()
}

/// Decodes the packet that `frame` found; `body` is what follows the header.
///
/// `version` is `None` before CONNECT, when only CONNECT is accepted.
pub fn decode<'a>(
    _version: Option<Version>,
    _frame: Frame,
    _body: &'a [u8],
) -> Result<Packet<'a>, WireError> {
    unimplemented!()
}
