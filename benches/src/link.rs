//! One MQTT connection: buffers, the handshake, and waiting for both directions at once.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BufMut;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::codec::reasons::in_words;
use crate::codec::{self, Connack, Connect, Malformed, Packet, Version, kind};
use crate::transport::{Route, Transport};

/// The largest packet that is accepted: a broker has no reason to send us more.
const MAX_PACKET: usize = 16 * 1024 * 1024;

/// Bytes read at a time by a connection on which little happens.
const SMALL: usize = 2048;

/// What happened on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Bytes came in; perhaps all bytes went out too.
    Read,
    /// All bytes went out.
    Written,
}

/// A connection with its buffers.
pub struct Link {
    transport: Transport,
    /// The protocol that was agreed on.
    pub version: Version,
    input: Vec<u8>,
    /// The part of the input that was handled.
    taken: usize,
    /// Bytes read at most at a time.
    chunk: usize,
    /// Bytes read at a time so far: thousands of quiet connections need no large buffers.
    size: usize,
    /// What goes out next; append to it.
    pub output: Vec<u8>,
    /// The part of the output that is with the kernel.
    pub written: usize,
    /// Whether the socket took less than it was offered since this was last asked for.
    pub blocked: bool,
    unflushed: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The network says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The broker says so.
    #[error("the target refused the connection with code {}{}", in_words(*version, *code), reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    Refused {
        /// The protocol, which decides what the code means.
        version: Version,
        /// The return or reason code.
        code: u8,
        /// In words, if the broker gave any.
        reason: Option<String>,
    },
    /// Nothing came back.
    #[error("the target did not answer within {0:?}")]
    Silent(Duration),
}

impl Link {
    /// Connects and does the MQTT handshake.
    pub async fn open(
        route: &Route,
        connect: &Connect<'_>,
        limits: &Limits,
    ) -> Result<(Self, Connack), ConnectError> {
        let opening = async {
            let transport = route.connect(limits.receive_buffer).await?;
            let mut link = Self::new(transport, connect.version, limits.chunk);
            codec::put_connect(connect, &mut link.output);
            let answer = link.wait_for(kind::CONNACK, codec::connack).await?;
            if answer.code != 0 {
                let (version, code, reason) = (connect.version, answer.code, answer.reason);
                return Err(ConnectError::Refused { version, code, reason });
            }
            Ok((link, answer))
        };
        match tokio::time::timeout(limits.timeout, opening).await {
            Ok(done) => done,
            Err(_) => Err(ConnectError::Silent(limits.timeout)),
        }
    }

    fn new(transport: Transport, version: Version, chunk: usize) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self {
            transport,
            version,
            input,
            taken: 0,
            chunk,
            size: chunk.min(SMALL),
            output,
            written: 0,
            blocked: false,
            unflushed: false,
        }
    }

    /// Changes how many bytes are read at most at a time.
    pub fn set_chunk(&mut self, chunk: usize) {
        self.chunk = chunk;
        self.size = self.size.min(chunk);
    }

    /// Writes what is to be written and reads until a packet of this kind comes; others are dropped.
    pub async fn wait_for<T>(
        &mut self,
        kind: u8,
        read: impl Fn(&Packet<'_>, Version) -> Result<T, Malformed>,
    ) -> io::Result<T> {
        loop {
            let version = self.version;
            while let Some(packet) = self.packet()? {
                if packet.kind() == kind {
                    return read(&packet, version).map_err(io::Error::other);
                }
            }
            self.event(true).await?;
        }
    }

    /// The next whole packet that was read.
    pub fn packet(&mut self) -> io::Result<Option<Packet<'_>>> {
        let waiting = &self.input[self.taken..];
        match codec::packet(waiting).map_err(io::Error::other)? {
            Some(packet) if packet.size > MAX_PACKET => Err(io::Error::other(Malformed)),
            Some(packet) => {
                self.taken += packet.size;
                Ok(Some(packet))
            }
            None if waiting.len() > MAX_PACKET => Err(io::Error::other(Malformed)),
            None => Ok(None),
        }
    }

    /// Waits until something was read (if wanted) or everything was written (if there is anything).
    pub async fn event(&mut self, read: bool) -> io::Result<Event> {
        poll_fn(|context| self.poll_event(read, context)).await
    }

    /// Says good-bye and closes; whether the other side hears it is its business.
    pub async fn close(mut self) {
        self.output.extend_from_slice(&codec::DISCONNECT);
        let closing = async {
            while !self.is_written() {
                self.event(false).await?;
            }
            self.transport.shutdown().await
        };
        let _ = tokio::time::timeout(Duration::from_millis(500), closing).await;
    }

    /// Whether nothing waits to be written.
    pub fn is_written(&self) -> bool {
        self.written == self.output.len() && !self.unflushed
    }

    fn poll_event(&mut self, read: bool, context: &mut Context<'_>) -> Poll<io::Result<Event>> {
        let written = !self.is_written() && self.poll_write(context)?.is_ready();
        // Also while there is always something to write: what comes in must not wait for ever.
        if read && self.poll_read(context)?.is_ready() {
            return Poll::Ready(Ok(Event::Read));
        }
        if written { Poll::Ready(Ok(Event::Written)) } else { Poll::Pending }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.output.len() {
            match Pin::new(&mut self.transport).poll_write(context, &self.output[self.written..])? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(count) => self.written += count,
                Poll::Pending => {
                    self.blocked = true;
                    return Poll::Pending;
                }
            }
            self.unflushed = !matches!(self.transport, Transport::Tcp(_));
        }
        if self.unflushed {
            match Pin::new(&mut self.transport).poll_flush(context)? {
                Poll::Ready(()) => self.unflushed = false,
                Poll::Pending => return Poll::Pending,
            }
        }
        self.output.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.taken > 0 {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        self.input.reserve(self.size);
        let mut room = (&mut self.input).limit(self.size);
        let count = ready!(pin!(self.transport.read_buf(&mut room)).poll(context))?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        if count == self.size {
            self.size = (2 * self.size).min(self.chunk);
        }
        Poll::Ready(Ok(()))
    }
}

/// How a connection is opened.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long the handshake may take.
    pub timeout: Duration,
    /// Bytes read at most at a time.
    pub chunk: usize,
    /// The kernel's receive buffer, if it is to be bounded.
    pub receive_buffer: Option<u32>,
}
