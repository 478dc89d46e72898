//! Writing.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::{Connection, Ending, Scratch};

/// Output memory that a connection may keep while the socket is full, beyond what is in it.
const SLACK: usize = 4096;
/// Output memory that a thread keeps.
const KEEP: usize = 512 * 1024;

impl Connection {
    /// Writes what is encoded. `true` when the socket took something.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.written < self.output.len() && self.ending != Ending::Over {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output[self.written..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(count)) if count > 0 => {
                    self.written += count;
                    self.unflushed = true;
                    progress = true;
                    self.broker.stats.bytes_sent.add(count as u64);
                }
                Poll::Ready(_) => self.broken_pipe(),
            }
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => self.broken_pipe(),
            }
        }
        progress
    }

    /// The client is gone; what it sent before is still handled.
    fn broken_pipe(&mut self) {
        self.output.clear();
        self.written = 0;
        self.unflushed = false;
        self.ending = match self.ending {
            Ending::No => return self.input_ends(),
            left @ Ending::NoInput(_) => left,
            // what it published before its DISCONNECT still counts
            closing @ Ending::Closing(_) if self.offered.is_some() => closing,
            Ending::Closing(_) | Ending::Over => Ending::Over,
        };
    }

    /// Gives the thread's output memory back to it and keeps only what is not written.
    pub(super) fn return_output(&mut self, scratch: &mut Scratch) {
        let left = self.output.len() - self.written;
        let spare = self.output.capacity() - left;
        if left > 0 && spare < SLACK {
            return;
        }
        let rest = self.output[self.written..].to_vec();
        self.written = 0;
        let mut output = std::mem::replace(&mut self.output, rest);
        output.clear();
        if output.capacity() <= KEEP && output.capacity() > scratch.output.capacity() {
            scratch.output = output;
        }
    }
}
