//! One end of a connection to the gateway. It never waits: what the gateway does not take now is kept for later.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tidegate::gateway::Gateway;
use tidegate::listen::Stream;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::common::decode::{Packet, decode, packet_length};
use crate::common::packet::{Ack, Encode, Kind, Version};
use crate::step::Step;

pub struct Peer {
    io: DuplexStream,
    /// Not known when the first packet was made of any bytes: then only the packets' lengths are checked.
    version: Option<Version>,
    started: bool,
    unsent: Vec<u8>,
    unread: Vec<u8>,
    cut: Option<usize>,
    /// DISCONNECT, or a refusal, has come: nothing may follow.
    told: bool,
}

impl Peer {
    pub fn open(gateway: &Gateway, buffer: usize) -> Self {
        let (io, theirs) = tokio::io::duplex(buffer);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        tokio::spawn(gateway.clone().serve(Stream::other(theirs, peer)));
        let (unsent, unread) = (Vec::new(), Vec::new());
        Self { io, version: None, started: false, unsent, unread, cut: None, told: false }
    }

    /// Does what a step says, as far as it concerns a connection that is there.
    pub fn perform(&mut self, step: Step<'_>) {
        match step {
            Step::Connect(connect) => {
                if !self.started {
                    (self.started, self.version) = (true, Some(connect.version()));
                }
                self.unsent.extend(connect.encode(connect.version()));
            }
            Step::Publish(mut publish) => {
                if self.version == Some(Version::V311) {
                    publish.properties.clear();
                }
                self.send_packet(&publish);
            }
            Step::Send(packet) => self.send_packet(&*packet),
            Step::Raw(bytes) => {
                self.started |= !bytes.is_empty();
                self.unsent.extend_from_slice(bytes);
            }
            Step::Cut(at) => self.cut = Some(at),
            Step::Read => self.read(),
            Step::Acknowledge => self.acknowledge(),
            Step::Open(_) | Step::Vanish | Step::Sleep(_) => {}
        }
        self.push();
    }

    /// Sends a packet as the version of this connection writes it.
    pub fn send_packet(&mut self, packet: &(impl Encode + ?Sized)) {
        self.started = true;
        let version = self.version.unwrap_or(Version::V5);
        self.unsent.extend(packet.encode(version));
    }

    /// Gives the gateway what it takes.
    pub fn push(&mut self) {
        let count = self.cut.take().unwrap_or(usize::MAX).min(self.unsent.len());
        let mut left = &self.unsent[..count];
        let mut cx = Context::from_waker(Waker::noop());
        while !left.is_empty() {
            match Pin::new(&mut self.io).poll_write(&mut cx, left) {
                Poll::Ready(Ok(taken)) if taken > 0 => left = &left[taken..],
                Poll::Pending => break,
                Poll::Ready(_) => return self.unsent.clear(),
            }
        }
        let taken = count - left.len();
        self.unsent.drain(..taken);
    }

    /// Takes and checks what is there.
    pub fn read(&mut self) {
        while self.take().is_some() {}
    }

    fn acknowledge(&mut self) {
        while let Some(packet) = self.take() {
            let ack = match packet {
                Some(Packet::Publish(publish)) if publish.qos == 1 => Ack::new(Kind::Puback, publish.id),
                Some(Packet::Publish(publish)) if publish.qos == 2 => Ack::new(Kind::Pubrec, publish.id),
                Some(Packet::Ack(ack)) if ack.kind == Kind::Pubrec => Ack::new(Kind::Pubrel, ack.id),
                Some(Packet::Ack(ack)) if ack.kind == Kind::Pubrel => Ack::new(Kind::Pubcomp, ack.id),
                _ => continue,
            };
            self.send_packet(&ack);
        }
    }

    /// The next packet if it is there; `Some(None)` when its version is not known.
    fn take(&mut self) -> Option<Option<Packet>> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_packet(&mut cx) {
            Poll::Ready(packet) => packet,
            Poll::Pending => None,
        }
    }

    /// Waits for the next packet; `None` when the gateway has closed.
    pub async fn next(&mut self) -> Option<Packet> {
        poll_fn(|cx| self.poll_packet(cx)).await.flatten()
    }

    fn poll_packet(&mut self, cx: &mut Context<'_>) -> Poll<Option<Option<Packet>>> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(length) = packet_length(&self.unread) {
                assert!(!self.told, "a packet after the end: {:?}", self.unread);
                let bytes: Vec<u8> = self.unread.drain(..length).collect();
                let packet = self.version.map(|version| decode(&bytes, version));
                self.told = matches!(bytes[0], 0xE0) || bytes[0] == 0x20 && bytes.get(3) != Some(&0);
                return Poll::Ready(Some(packet));
            }
            let mut buffer = ReadBuf::new(&mut chunk);
            match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.unread.extend_from_slice(buffer.filled());
                }
                Poll::Ready(_) => {
                    assert!(self.unread.is_empty(), "closed in the middle of a packet");
                    return Poll::Ready(None);
                }
            }
        }
    }
}
