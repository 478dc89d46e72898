//! A blocking MQTT client that can send anything and hides nothing.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::decode::{Connack, Packet, Suback, decode, packet_length};
use super::packet::*;
use super::server::{self, Target};
use super::{PATIENCE, unique};

/// Why there is no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The server closed the connection.
    Closed,
    /// Nothing came in time.
    Timeout,
}

/// A connection to the server under test.
pub struct Client {
    pub version: Version,
    pub id: String,
    /// The answer to CONNECT.
    pub connack: Connack,
    stream: TcpStream,
    input: Vec<u8>,
    /// Packets that came while another one was waited for.
    inbox: VecDeque<Packet>,
    next_id: u16,
}

impl Client {
    /// A TCP connection on which nothing was sent.
    pub fn open(address: SocketAddr, version: Version) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .unwrap_or_else(|error| panic!("no connection to {address}: {error}"));
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let connack = Connack { session_present: false, code: 0xFF, properties: Vec::new() };
        let (input, inbox) = (Vec::new(), VecDeque::new());
        Self { version, id: String::new(), connack, stream, input, inbox, next_id: 0 }
    }

    /// A connection with CONNECT sent and CONNACK read, whatever it says.
    pub fn attempt(address: SocketAddr, connect: &Connect) -> Self {
        let mut client = Self::open(address, connect.version());
        client.id.clone_from(&connect.id);
        client.send(connect);
        match client.recv() {
            Packet::Connack(connack) => client.connack = connack,
            other => panic!("CONNACK must be the first packet, not {other:?}"),
        }
        client
    }

    /// A connection that the server accepted.
    pub fn connect(address: SocketAddr, connect: &Connect) -> Self {
        let client = Self::attempt(address, connect);
        assert_eq!(client.connack.code, 0, "refused: {:?}", client.connack);
        client
    }

    /// Sends a packet or any bytes.
    pub fn send(&mut self, what: &(impl Encode + ?Sized)) {
        self.try_send(what).expect("the server closed the connection while we were sending");
    }

    /// Sends to a server that may have closed.
    pub fn try_send(&mut self, what: &(impl Encode + ?Sized)) -> std::io::Result<()> {
        let bytes = what.encode(self.version);
        self.stream.write_all(&bytes)
    }

    /// The next packet, in order.
    pub fn recv(&mut self) -> Packet {
        self.recv_within(PATIENCE).unwrap_or_else(|end| panic!("{end:?} instead of a packet"))
    }

    /// The next packet, or why there is none.
    pub fn recv_within(&mut self, patience: Duration) -> Result<Packet, End> {
        match self.inbox.pop_front() {
            Some(packet) => Ok(packet),
            None => self.read_packet(patience),
        }
    }

    /// The next packet that is wanted; what comes before it is kept for later.
    pub fn wait_for<T>(&mut self, what: &str, mut wanted: impl FnMut(&Packet) -> Option<T>) -> T {
        if let Some(index) = self.inbox.iter().position(|packet| wanted(packet).is_some()) {
            let packet = self.inbox.remove(index).expect("an index just found");
            return wanted(&packet).expect("wanted a moment ago");
        }
        loop {
            let packet = self
                .read_packet(PATIENCE)
                .unwrap_or_else(|end| panic!("{end:?} instead of {what}; before it came {:?}", self.inbox));
            match wanted(&packet) {
                Some(found) => return found,
                None => self.inbox.push_back(packet),
            }
        }
    }

    /// The next packet, which must be a PUBLISH. Acknowledging it is up to the caller.
    pub fn expect_publish(&mut self) -> Publish {
        match self.recv() {
            Packet::Publish(publish) => publish,
            other => panic!("expected PUBLISH, got {other:?}"),
        }
    }

    /// The next message, acknowledged to the end.
    pub fn receive(&mut self) -> Publish {
        let publish = self.wait_for("PUBLISH", |packet| match packet {
            Packet::Publish(publish) => Some(publish.clone()),
            _ => None,
        });
        self.acknowledge(&publish);
        publish
    }

    /// The payloads of the next messages, acknowledged to the end.
    pub fn receive_texts(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.receive().text().to_owned()).collect()
    }

    /// Acknowledges a message to the end.
    pub fn acknowledge(&mut self, publish: &Publish) {
        match publish.qos {
            0 => {}
            1 => self.send(&Ack::new(Kind::Puback, publish.id)),
            _ => {
                self.send(&Ack::new(Kind::Pubrec, publish.id));
                self.expect_ack(Kind::Pubrel, publish.id);
                self.send(&Ack::new(Kind::Pubcomp, publish.id));
            }
        }
    }

    /// The acknowledgement with this packet identifier.
    pub fn expect_ack(&mut self, kind: Kind, id: u16) -> Ack {
        self.wait_for(&format!("{kind:?} {id}"), |packet| match packet {
            Packet::Ack(ack) if ack.kind == kind && ack.id == id => Some(ack.clone()),
            _ => None,
        })
    }

    /// Publishes, waits until the server acknowledged to the end, and returns the reason code.
    pub fn publish(&mut self, publish: Publish) -> u8 {
        let publish = if publish.id == 0 { publish.id(self.packet_id()) } else { publish };
        self.send(&publish);
        match publish.qos {
            0 => 0,
            1 => self.expect_ack(Kind::Puback, publish.id).code,
            _ => {
                let code = self.expect_ack(Kind::Pubrec, publish.id).code;
                if code < 0x80 {
                    self.send(&Ack::new(Kind::Pubrel, publish.id));
                    assert_eq!(self.expect_ack(Kind::Pubcomp, publish.id).code, 0);
                }
                code
            }
        }
    }

    /// Subscribes to one filter, which must be granted.
    pub fn subscribe(&mut self, filter: &str, options: u8) {
        let codes = self.try_subscribe(filter, options);
        assert_eq!(codes, [options & 3], "granted QoS for {filter}");
    }

    /// Subscribes to one filter and returns the SUBACK's codes.
    pub fn try_subscribe(&mut self, filter: &str, options: u8) -> Vec<u8> {
        let id = self.packet_id();
        self.subscribe_with(&Subscribe::new(id, &[(filter, options)])).codes
    }

    /// Sends a SUBSCRIBE and returns its SUBACK.
    pub fn subscribe_with(&mut self, subscribe: &Subscribe) -> Suback {
        self.send(subscribe);
        self.wait_for("SUBACK", |packet| match packet {
            Packet::Suback(suback) if suback.id == subscribe.id => Some(suback.clone()),
            _ => None,
        })
    }

    /// Unsubscribes and returns the UNSUBACK.
    pub fn unsubscribe(&mut self, filters: &[&str]) -> Suback {
        let id = self.packet_id();
        self.send(&Unsubscribe::new(id, filters));
        self.wait_for("UNSUBACK", |packet| match packet {
            Packet::Unsuback(unsuback) if unsuback.id == id => Some(unsuback.clone()),
            _ => None,
        })
    }

    /// PINGREQ and its answer; what comes before it is kept for later.
    pub fn ping(&mut self) {
        self.send(&PINGREQ);
        self.wait_for("PINGRESP", |packet| (*packet == Packet::Pingresp).then_some(()));
    }

    /// Nothing came, and nothing comes before the answer to a ping.
    pub fn expect_silence(&mut self) {
        self.ping();
        assert!(self.inbox.is_empty(), "unexpected: {:?}", self.inbox);
    }

    /// Nothing comes before a message that `publisher` sends now, after whatever it sent before.
    pub fn expect_nothing_from(&mut self, publisher: &mut Client) {
        let fence = unique("fence/");
        self.subscribe(&fence, 1);
        publisher.publish(Publish::new(&fence, "fence").qos(1));
        let next = self.receive();
        assert_eq!(next.topic, fence, "unexpected: {next:?}");
        self.unsubscribe(&[&fence]);
    }

    /// The same, with a publisher of its own.
    pub fn expect_nothing(&mut self) {
        let address = self.stream.peer_addr().expect("a connected socket");
        let mut publisher = Client::connect(address, &Connect::new(self.version, &unique("fence")));
        self.expect_nothing_from(&mut publisher);
    }

    /// The server closes the connection; for MQTT 5 it says one of these reasons before.
    ///
    /// Mosquitto, which only calibrates the tests, may leave the reason out, and then a proxy before it does.
    pub fn expect_closed(&mut self, reasons: &[u8]) {
        let last = self.recv_within(PATIENCE);
        match last {
            Ok(Packet::Disconnect(disconnect)) => {
                let code = disconnect.code;
                assert!(reasons.contains(&code), "DISCONNECT 0x{code:02x}, expected one of {reasons:02x?}");
                assert_eq!(self.recv_within(PATIENCE), Err(End::Closed), "after DISCONNECT");
            }
            Err(End::Closed) if self.version == Version::V5 => {
                assert_ne!(server::target(), Target::Tidegate, "closed without DISCONNECT {reasons:02x?}");
            }
            other => assert_eq!(other, Err(End::Closed), "the connection must be closed"),
        }
    }

    /// The server closes the connection, with whatever packet before.
    pub fn expect_end(&mut self) {
        loop {
            match self.recv_within(PATIENCE) {
                Ok(_) => {}
                Err(End::Closed) => return,
                Err(End::Timeout) => panic!("the connection must be closed"),
            }
        }
    }

    /// Leaves politely, and waits until the server has seen it.
    pub fn disconnect(self) {
        self.disconnect_with(&Disconnect::default());
    }

    /// Leaves with this DISCONNECT, and waits until the server has seen it.
    pub fn disconnect_with(mut self, disconnect: &Disconnect) {
        self.send(disconnect);
        self.finish();
    }

    /// Closes without DISCONNECT, and waits until the server has seen it.
    pub fn vanish(mut self) {
        self.finish();
    }

    /// The next packet identifier of this client.
    pub fn packet_id(&mut self) -> u16 {
        self.next_id = self.next_id % 60_000 + 1;
        self.next_id
    }

    /// The socket, for what this client cannot do.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn finish(&mut self) {
        // The peer may have reset the connection already; what counts is the end of its stream.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.expect_end();
    }

    fn read_packet(&mut self, patience: Duration) -> Result<Packet, End> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(length) = packet_length(&self.input) {
                let packet = decode(&self.input[..length], self.version);
                self.input.drain(..length);
                return Ok(packet);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(End::Timeout);
            }
            self.fill(left)?;
        }
    }

    fn fill(&mut self, patience: Duration) -> Result<(), End> {
        self.stream.set_read_timeout(Some(patience)).expect("a time-out over zero");
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(End::Closed),
            Ok(count) => {
                self.input.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(End::Timeout)
            }
            Err(_) => Err(End::Closed),
        }
    }
}
