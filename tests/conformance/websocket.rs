//! MQTT over WebSocket.

use std::net::TcpStream;

use tokio_tungstenite::tungstenite::client::{IntoClientRequest, client};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket};

use crate::common::decode::{Packet, decode, packet_length};
use crate::common::packet::*;
use crate::common::{PATIENCE, unique};
use crate::server;

both_versions!(packets_in_one_frame_and_over_frames, text_frames_are_not_mqtt, publish_and_receive,);

/// A WebSocket whose frames the test makes itself.
struct Socket {
    socket: WebSocket<TcpStream>,
    version: Version,
    input: Vec<u8>,
}

impl Socket {
    fn open(version: Version) -> Self {
        let mut request = format!("ws://{}/mqtt", server().ws).into_client_request().expect("a request");
        request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("mqtt"));
        let stream = TcpStream::connect(server().ws).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let (socket, response) = client(request, stream).expect("a handshake");
        assert_eq!(response.headers().get("Sec-WebSocket-Protocol").expect("a sub-protocol"), "mqtt");
        Self { socket, version, input: Vec::new() }
    }

    fn connect(version: Version) -> Self {
        let mut socket = Self::open(version);
        socket.send(&Connect::new(version, &unique("ws")).encode(version));
        assert!(matches!(socket.recv(), Packet::Connack(connack) if connack.code == 0));
        socket
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).expect("the server reads");
    }

    fn recv(&mut self) -> Packet {
        loop {
            if let Some(length) = packet_length(&self.input) {
                let packet = decode(&self.input[..length], self.version);
                self.input.drain(..length);
                return packet;
            }
            match self.socket.read().expect("a frame") {
                Message::Binary(bytes) => self.input.extend_from_slice(&bytes),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("[MQTT-6.0.0-1] a frame that is not binary: {other:?}"),
            }
        }
    }
}

/// [MQTT-6.0.0-2], [MQTT-6.0.0-3], [MQTT-6.0.0-4] Packets and frames are not aligned; the sub-protocol is
/// `mqtt`.
fn packets_in_one_frame_and_over_frames(version: Version) {
    let mut socket = Socket::open(version);
    for byte in Connect::new(version, &unique("ws")).encode(version) {
        socket.send(&[byte]);
    }
    assert!(matches!(socket.recv(), Packet::Connack(connack) if connack.code == 0));
    let mut bytes = Subscribe::new(1, &[(&unique("ws/"), 1)]).encode(version);
    bytes.extend(PINGREQ);
    bytes.extend(PINGREQ);
    socket.send(&bytes);
    assert!(matches!(socket.recv(), Packet::Suback(_)));
    assert_eq!((socket.recv(), socket.recv()), (Packet::Pingresp, Packet::Pingresp));
}

/// [MQTT-6.0.0-1] A text frame ends the connection. Mosquitto reads on.
fn text_frames_are_not_mqtt(version: Version) {
    let mut socket = Socket::connect(version);
    socket.socket.send(Message::text("hello")).expect("the server reads");
    loop {
        match socket.socket.read() {
            Ok(Message::Close(_)) => return,
            Ok(Message::Binary(_)) => {}
            Ok(other) => panic!("unexpected {other:?}"),
            Err(Error::Io(error)) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the connection must be closed");
                return;
            }
            Err(_) => return,
        }
    }
}

/// Section 6: a message over WebSocket is a message.
fn publish_and_receive(version: Version) {
    let (topic, mut socket) = (unique("ws/"), Socket::connect(version));
    socket.send(&Subscribe::new(1, &[(&topic, 1)]).encode(version));
    assert!(matches!(socket.recv(), Packet::Suback(_)));
    let payload = vec![42; 200_000];
    server().client(version).publish(Publish::new(&topic, payload.clone()).qos(1));
    match socket.recv() {
        Packet::Publish(publish) => assert!(publish.payload == payload && publish.topic == topic),
        other => panic!("expected PUBLISH, got {other:?}"),
    }
}
