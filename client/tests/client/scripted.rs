//! A broker of a few lines that does what a test tells it to, packet by packet.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnAckProperties, ConnectReturnCode, Packet, PingResp, PubAck, SubAck, SubscribeReasonCode,
};
use rumqttc::v5::mqttbytes::{Error, QoS};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a script answers to a packet: packets to send, and then perhaps the end of the connection.
pub(crate) struct Answer {
    pub(crate) packets: Vec<Packet>,
    pub(crate) close: bool,
}

impl Answer {
    pub(crate) fn send(packets: impl Into<Vec<Packet>>) -> Self {
        Self { packets: packets.into(), close: false }
    }

    pub(crate) fn close(packet: Packet) -> Self {
        Self { packets: vec![packet], close: true }
    }
}

/// A scripted broker; it ends when this value goes.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    /// Everything that came, of all connections.
    pub(crate) seen: Arc<Mutex<Vec<Packet>>>,
    task: JoinHandle<()>,
}

impl Scripted {
    /// Starts with a script, which is asked about every packet and may leave it to [`usual`].
    pub(crate) async fn start(script: impl FnMut(&Packet) -> Option<Answer> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (packets, script) = (seen.clone(), Arc::new(Mutex::new(script)));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (packets, script) = (packets.clone(), script.clone());
                tokio::spawn(serve(stream, move |packet| {
                    packets.lock().push(packet.clone());
                    (*script.lock())(packet).unwrap_or_else(|| usual(packet))
                }));
            }
        });
        Self { address, seen, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// The payloads of all messages that came under this topic.
    pub(crate) fn payloads(&self, topic: &str) -> Vec<String> {
        let seen = self.seen.lock();
        let of_topic = seen.iter().filter_map(|packet| match packet {
            Packet::Publish(publish) if publish.topic == topic.as_bytes() => Some(publish),
            _ => None,
        });
        of_topic.map(|publish| String::from_utf8_lossy(&publish.payload).into_owned()).collect()
    }

    /// How many connections asked to come in.
    pub(crate) fn connects(&self) -> usize {
        self.seen.lock().iter().filter(|packet| matches!(packet, Packet::Connect(..))).count()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What every broker answers.
pub(crate) fn usual(packet: &Packet) -> Answer {
    Answer::send(match packet {
        Packet::Connect(..) => vec![connack(ConnectReturnCode::Success, None)],
        Packet::Subscribe(subscribe) => {
            let return_codes = vec![SubscribeReasonCode::Success(QoS::AtLeastOnce); subscribe.filters.len()];
            vec![Packet::SubAck(SubAck { pkid: subscribe.pkid, return_codes, properties: None })]
        }
        Packet::Publish(publish) if publish.qos == QoS::AtLeastOnce => {
            vec![Packet::PubAck(PubAck::new(publish.pkid, None))]
        }
        Packet::PingReq(_) => vec![Packet::PingResp(PingResp)],
        _ => vec![],
    })
}

/// A CONNACK, perhaps with a reference to another server.
pub(crate) fn connack(code: ConnectReturnCode, server_reference: Option<String>) -> Packet {
    let properties = server_reference
        .map(|reference| ConnAckProperties { server_reference: Some(reference), ..no_properties() });
    Packet::ConnAck(ConnAck { session_present: false, code, properties })
}

/// The CONNACK of a broker that has kept the session.
pub(crate) fn resumed() -> Packet {
    Packet::ConnAck(ConnAck { session_present: true, code: ConnectReturnCode::Success, properties: None })
}

/// The CONNACK of a broker that takes no larger packets.
pub(crate) fn takes_at_most(max_packet_size: u32) -> Packet {
    let properties = ConnAckProperties { max_packet_size: Some(max_packet_size), ..no_properties() };
    let code = ConnectReturnCode::Success;
    Packet::ConnAck(ConnAck { session_present: false, code, properties: Some(properties) })
}

fn no_properties() -> ConnAckProperties {
    ConnAckProperties {
        session_expiry_interval: None,
        receive_max: None,
        max_qos: None,
        retain_available: None,
        max_packet_size: None,
        assigned_client_identifier: None,
        topic_alias_max: None,
        reason_string: None,
        user_properties: Vec::new(),
        wildcard_subscription_available: None,
        subscription_identifiers_available: None,
        shared_subscription_available: None,
        server_keep_alive: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
    }
}

async fn serve(mut stream: TcpStream, mut answer: impl FnMut(&Packet) -> Answer) {
    let mut incoming = BytesMut::new();
    loop {
        match Packet::read(&mut incoming, None) {
            Ok(packet) => {
                let answer = answer(&packet);
                let mut outgoing = BytesMut::new();
                for packet in answer.packets {
                    packet.write(&mut outgoing, None).unwrap();
                }
                if stream.write_all(&outgoing).await.is_err() || answer.close {
                    return;
                }
            }
            Err(Error::InsufficientBytes(_)) => {
                if !matches!(stream.read_buf(&mut incoming).await, Ok(1..)) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
