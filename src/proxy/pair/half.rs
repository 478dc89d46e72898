//! One side of a pair: a stream with what was read and not handled, and what was not written.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::broker::stats::Counter;
use crate::listen::Stream;

/// Output memory that a side may keep while the socket is full, beyond what is in it.
const SLACK: usize = 4096;
/// Output memory that a thread keeps.
const KEEP: usize = 512 * 1024;

/// A stream and its buffers.
pub(super) struct Half {
    pub(super) stream: Stream,
    /// Bytes of an unfinished packet, or of packets that could not be handled yet.
    pub(super) input: Vec<u8>,
    /// Whether `input` may hold whole packets.
    pub(super) ready: bool,
    /// To be written, from `written` on.
    pub(super) output: Vec<u8>,
    written: usize,
    /// Bytes to come of a message that is too large to be kept: they go on as they come.
    pub(super) passing: usize,
    /// Our own packets that go out behind it.
    behind: Vec<u8>,
    /// Bytes that the socket has taken so far.
    pub(super) taken: u64,
    unflushed: bool,
    /// Nothing more comes from it.
    pub(super) ended: bool,
    /// Nothing more can be written to it.
    pub(super) broken: bool,
}

impl Half {
    pub(super) fn new(stream: Stream, input: Vec<u8>) -> Self {
        Self {
            stream,
            ready: !input.is_empty(),
            input,
            output: Vec::new(),
            written: 0,
            passing: 0,
            behind: Vec::new(),
            taken: 0,
            unflushed: false,
            ended: false,
            broken: false,
        }
    }

    /// Bytes that wait to be written.
    pub(super) fn pending(&self) -> usize {
        self.output.len() - self.written
    }

    /// The same with what has to wait behind a message that goes on in pieces.
    pub(super) fn pending_in_all(&self) -> usize {
        self.pending() + self.behind.len()
    }

    /// Where packets of our own are put: never into the middle of another one.
    pub(super) fn answers(&mut self) -> &mut Vec<u8> {
        if self.passing > 0 { &mut self.behind } else { &mut self.output }
    }

    /// Passes on what belongs to a message that goes on in pieces; how many bytes that is.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> usize {
        let count = self.passing.min(bytes.len());
        self.output.extend_from_slice(&bytes[..count]);
        self.passing -= count;
        if self.passing == 0 {
            self.output.append(&mut std::mem::take(&mut self.behind));
        }
        count
    }

    /// Whether all that can be written was.
    pub(super) fn is_flushed(&self) -> bool {
        self.broken || self.pending() == 0 && !self.unflushed
    }

    /// Bytes that will have been taken when all that is here now is, with the rest of what goes on in pieces.
    pub(super) fn end_of_output(&self) -> u64 {
        self.taken + (self.pending() + self.passing) as u64
    }

    /// Reads into `memory`; how many bytes came, none when nothing is there or will come.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut [u8],
        count: &Counter,
    ) -> Option<usize> {
        let mut buffer = ReadBuf::new(memory);
        match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => None,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                count.add(buffer.filled().len() as u64);
                Some(buffer.filled().len())
            }
            Poll::Ready(_) => {
                self.ended = true;
                None
            }
        }
    }

    /// Writes what waits; `true` when the socket took something.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>, count: &Counter) -> bool {
        let mut progress = false;
        while self.pending() > 0 && !self.broken {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output[self.written..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(written)) if written > 0 => {
                    self.written += written;
                    self.taken += written as u64;
                    self.unflushed = true;
                    progress = true;
                    count.add(written as u64);
                }
                Poll::Ready(_) => self.broken = true,
            }
        }
        if self.broken || self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        }
        if self.unflushed && !self.broken {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => self.broken = true,
            }
        }
        progress
    }

    /// Borrows the thread's output memory, if this side has none of its own.
    pub(super) fn borrow_output(&mut self, spare: &mut Vec<u8>) {
        if self.output.capacity() == 0 {
            self.output = std::mem::take(spare);
        }
    }

    /// Gives the thread's output memory back and keeps only what is not written.
    pub(super) fn return_output(&mut self, spare: &mut Vec<u8>) {
        let left = self.pending();
        if left > 0 && self.output.capacity() - left < SLACK {
            return;
        }
        let rest = self.output[self.written..].to_vec();
        self.written = 0;
        let mut output = std::mem::replace(&mut self.output, rest);
        output.clear();
        if output.capacity() <= KEEP && output.capacity() > spare.capacity() {
            *spare = output;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of our own go behind a message that goes on in pieces, not into it.
    #[test]
    fn nothing_comes_into_the_middle_of_a_message() {
        let (stream, _other) = tokio::io::duplex(64);
        let mut half = Half::new(Stream::other(stream, ([127, 0, 0, 1], 1).into()), Vec::new());
        half.passing = 10;
        assert_eq!(half.pass(b"0123"), 4);
        half.answers().extend(b"own");
        assert_eq!((half.pending(), half.pending_in_all(), half.end_of_output()), (4, 7, 10));
        assert_eq!(half.pass(b"456789next"), 6, "the next packet is not of this message");
        assert_eq!(half.output, b"0123456789own");
        half.answers().extend(b"!");
        assert_eq!(half.output, b"0123456789own!");
    }
}
