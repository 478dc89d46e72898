//! A message on its way: as a frame in a batch while it crosses the spine, then shared by all its queues.

use std::sync::Arc;

use bytes::Bytes;

use super::clock::Millis;
use crate::wire::QoS;

/// An accepted message, shared by every queue that holds it.
#[derive(Debug)]
pub struct Message {
    /// Topic, properties and payload, one after the other.
    body: Bytes,
    topic_len: u16,
    properties_len: u32,
    /// The QoS it was published with.
    pub qos: QoS,
    /// Whether it was published to be retained.
    pub retain: bool,
    /// Whether it overtakes others in queues; the same for all of one publisher on one topic.
    pub urgent: bool,
    /// The session that published it; 0 is the broker itself.
    pub publisher: u64,
    /// When it was accepted, in the order of subscriptions (see `Broker::next_ordinal`).
    pub ordinal: u64,
    /// When it is no longer of interest; 0 is never.
    pub expires: Millis,
}

/// What a message is made of.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Topic.
    pub topic: &'a str,
    /// MQTT 5 properties that travel unchanged, encoded.
    pub properties: &'a [u8],
    /// Payload.
    pub payload: &'a [u8],
    /// QoS.
    pub qos: QoS,
    /// Retain flag.
    pub retain: bool,
    /// Whether it overtakes others in queues.
    pub urgent: bool,
    /// Moment of acceptance.
    pub ordinal: u64,
    /// Expiry moment; 0 is never.
    pub expires: Millis,
}

impl Message {
    /// A message of its own, copied from its parts.
    pub fn new(publisher: u64, parts: &Parts<'_>) -> Self {
        let mut body = Vec::with_capacity(parts.topic.len() + parts.properties.len() + parts.payload.len());
        body.extend_from_slice(parts.topic.as_bytes());
        body.extend_from_slice(parts.properties);
        body.extend_from_slice(parts.payload);
        Self {
            body: body.into(),
            // a topic comes from the wire or from us: at most 65,535 bytes
            topic_len: parts.topic.len() as u16,
            properties_len: parts.properties.len() as u32,
            qos: parts.qos,
            retain: parts.retain,
            urgent: parts.urgent,
            publisher,
            ordinal: parts.ordinal,
            expires: parts.expires,
        }
    }

    /// The topic's bytes (UTF-8).
    pub fn topic(&self) -> &[u8] {
        &self.body[..usize::from(self.topic_len)]
    }

    /// The topic as text.
    pub fn topic_str(&self) -> &str {
        // made from a `str`; the empty text can't appear
        std::str::from_utf8(self.topic()).unwrap_or_default()
    }

    /// The encoded properties.
    pub fn properties(&self) -> &[u8] {
        let start = usize::from(self.topic_len);
        &self.body[start..start + self.properties_len as usize]
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.body[usize::from(self.topic_len) + self.properties_len as usize..]
    }

    /// What it weighs against a queue's bound in bytes: its body and what holding it costs.
    pub fn weight(&self) -> usize {
        self.body.len() + std::mem::size_of::<Self>() + ENTRY_COST
    }

    /// Whether it has expired.
    pub fn expired(&self, now: Millis) -> bool {
        self.expires != 0 && now >= self.expires
    }

    /// Seconds left before it expires, rounded up, if it can.
    pub fn seconds_left(&self, now: Millis) -> Option<u32> {
        (self.expires != 0)
            .then(|| self.expires.saturating_sub(now).div_ceil(1000).min(u64::from(u32::MAX)) as u32)
    }
}

/// A queue's entry and the allocator's overhead for a message.
const ENTRY_COST: usize = 64;

const RETAIN: u8 = 1;
const QOS_SHIFT: u8 = 1;
const URGENT: u8 = 8;

/// Writes a batch: consecutive messages of one publisher that cross the spine as one payload.
///
/// Layout: publisher (8), then for each message: length of what follows (4), flags (1), ordinal (8),
/// expiry (8), topic length (2), properties length (4), topic, properties, payload.
#[derive(Debug, Default)]
pub struct BatchWriter {
    bytes: Vec<u8>,
    count: usize,
}

const HEAD: usize = 8;
const FRAME_HEAD: usize = 4 + 1 + 8 + 8 + 2 + 4;

impl BatchWriter {
    /// Starts a batch.
    pub fn start(&mut self, publisher: u64) {
        self.bytes.clear();
        self.count = 0;
        self.bytes.extend_from_slice(&publisher.to_le_bytes());
    }

    /// Adds a message; `properties` appends the encoded properties that travel with it.
    pub fn push(&mut self, parts: &Parts<'_>, properties: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        let flags = (u8::from(parts.retain) * RETAIN)
            | ((parts.qos as u8) << QOS_SHIFT)
            | (u8::from(parts.urgent) * URGENT);
        let out = &mut self.bytes;
        out.reserve(FRAME_HEAD + parts.topic.len() + parts.payload.len());
        out.extend_from_slice(&[0; 4]);
        out.push(flags);
        out.extend_from_slice(&parts.ordinal.to_le_bytes());
        out.extend_from_slice(&parts.expires.to_le_bytes());
        out.extend_from_slice(&(parts.topic.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(parts.topic.as_bytes());
        let at = out.len();
        out.extend_from_slice(parts.properties);
        properties(out);
        let properties_len = (out.len() - at) as u32;
        out.extend_from_slice(parts.payload);
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        let field = start + FRAME_HEAD - 4;
        out[field..field + 4].copy_from_slice(&properties_len.to_le_bytes());
        self.count += 1;
    }

    /// How many messages it holds.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of its messages.
    pub fn bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.bytes.len() }
    }

    /// Whether it holds no message.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The finished batch; the writer keeps its memory for the next one.
    pub fn finish(&mut self) -> Bytes {
        let batch = Bytes::copy_from_slice(&self.bytes);
        self.count = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEEP {
            self.bytes = Vec::new();
        }
        batch
    }
}

/// Memory that a batch writer keeps between batches.
const KEEP: usize = 256 * 1024;

/// Reads the messages of a batch.
#[derive(Debug)]
pub struct BatchReader {
    batch: Bytes,
    publisher: u64,
    at: usize,
}

impl BatchReader {
    /// Reads a batch that a [`BatchWriter`] made. `None` when it isn't one.
    pub fn new(batch: Bytes) -> Option<Self> {
        let publisher = u64::from_le_bytes(batch.get(..HEAD)?.try_into().ok()?);
        Some(Self { batch, publisher, at: HEAD })
    }

    /// The next message's place, without making it.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let head = self.batch.get(self.at..self.at + FRAME_HEAD)?;
        let number = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| head[from + i]));
        let short = |from: usize| u32::from_le_bytes(std::array::from_fn(|i| head[from + i]));
        let length = short(0) as usize;
        let frame = Frame {
            flags: head[4],
            ordinal: number(5),
            expires: number(13),
            topic_len: u16::from_le_bytes([head[21], head[22]]),
            properties_len: short(23),
            start: self.at + FRAME_HEAD,
            end: self.at + 4 + length,
        };
        self.at = frame.end;
        (frame.end <= self.batch.len()).then_some(frame)
    }

    /// The topic of a frame, which is UTF-8.
    pub fn topic(&self, frame: &Frame) -> &[u8] {
        &self.batch[frame.start..frame.start + usize::from(frame.topic_len)]
    }

    /// Makes the message of a frame, to be shared by its queues.
    ///
    /// Its bytes are a slice of the batch when they are a good part of it, else a copy, so that one small
    /// message in a long queue never keeps a large batch in memory.
    pub fn message(&self, frame: &Frame) -> Arc<Message> {
        let bytes = frame.start..frame.end;
        let body = if bytes.len() * 4 >= self.batch.len() {
            self.batch.slice(bytes)
        } else {
            Bytes::copy_from_slice(&self.batch[bytes])
        };
        Arc::new(Message {
            body,
            topic_len: frame.topic_len,
            properties_len: frame.properties_len,
            qos: frame.qos(),
            retain: frame.retain(),
            urgent: frame.flags & URGENT != 0,
            publisher: self.publisher,
            ordinal: frame.ordinal,
            expires: frame.expires,
        })
    }
}

/// One message in a batch.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    flags: u8,
    /// Moment of acceptance.
    pub ordinal: u64,
    expires: Millis,
    topic_len: u16,
    properties_len: u32,
    start: usize,
    end: usize,
}

impl Frame {
    /// Its QoS.
    pub fn qos(&self) -> QoS {
        QoS::from_bits(self.flags >> QOS_SHIFT & 3).unwrap_or(QoS::AtMostOnce)
    }

    /// Its retain flag.
    pub fn retain(&self) -> bool {
        self.flags & RETAIN != 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_batch_gives_back_what_was_put_in() {
        let mut writer = BatchWriter::default();
        writer.start(7);
        let part = |topic, payload, qos, retain, urgent| Parts {
            topic,
            properties: b"",
            payload,
            qos,
            retain,
            urgent,
            ordinal: 42,
            expires: 9,
        };
        writer.push(&part("a/b", b"one".as_slice(), QoS::AtLeastOnce, true, false), |out| {
            out.extend_from_slice(b"pp")
        });
        writer.push(&part("c", b"".as_slice(), QoS::AtMostOnce, false, true), |_| {});
        let mut reader = BatchReader::new(writer.finish()).unwrap();
        let first = reader.next_frame().unwrap();
        assert_eq!(reader.topic(&first), b"a/b");
        let message = reader.message(&first);
        assert_eq!(
            (message.topic(), message.properties(), message.payload()),
            (&b"a/b"[..], &b"pp"[..], &b"one"[..])
        );
        assert_eq!(
            (message.qos, message.retain, message.ordinal, message.expires, message.publisher),
            (QoS::AtLeastOnce, true, 42, 9, 7)
        );
        assert!(!message.urgent);
        let second = reader.next_frame().unwrap();
        let message = reader.message(&second);
        assert_eq!((message.payload(), message.qos, message.urgent), (&b""[..], QoS::AtMostOnce, true));
        assert!(reader.next_frame().is_none());
    }

    #[test]
    fn expiry_counts_down_in_seconds() {
        let parts = Parts {
            topic: "t",
            properties: b"",
            payload: b"",
            qos: QoS::AtMostOnce,
            retain: false,
            urgent: false,
            ordinal: 0,
            expires: 5_000,
        };
        let message = Message::new(0, &parts);
        assert_eq!(message.seconds_left(1_500), Some(4));
        assert!(!message.expired(4_999));
        assert!(message.expired(5_000));
    }
}
