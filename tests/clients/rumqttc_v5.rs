//! rumqttc with MQTT 5.

use std::time::Duration;

use rumqttc::Transport;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{LastWill, Packet, Publish, PublishProperties, SubscribeReasonCode};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use tokio::time::timeout;

use crate::common::packet::Version::V5;
use crate::common::{PATIENCE, unique};
use crate::{certificates, server};

const LEVELS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// Options for each transport.
fn options(transport: &str) -> MqttOptions {
    let authority = std::fs::read(&certificates().authority).expect("the authority");
    let (ws, wss) = (format!("ws://{}/mqtt", server().ws), format!("wss://{}/mqtt", server().wss));
    let (host, port, transport) = match transport {
        "tcp" => ("127.0.0.1", server().mqtt.port(), Transport::Tcp),
        "tls" => ("127.0.0.1", server().mqtts.port(), Transport::tls(authority, None, None)),
        "ws" => (ws.as_str(), server().ws.port(), Transport::Ws),
        _ => (wss.as_str(), server().wss.port(), Transport::wss(authority, None, None)),
    };
    let mut options = MqttOptions::new(unique("rumqttc"), host, port);
    options.set_transport(transport).set_keep_alive(Duration::from_secs(30));
    options.set_max_packet_size(Some(4_000_000));
    options
}

/// The next packet that came in.
async fn incoming(events: &mut EventLoop) -> Packet {
    loop {
        let event = timeout(PATIENCE, events.poll()).await.expect("an event in time");
        if let Event::Incoming(packet) = event.expect("a connection") {
            return packet;
        }
    }
}

async fn next_message(events: &mut EventLoop) -> Publish {
    loop {
        if let Packet::Publish(publish) = incoming(events).await {
            return publish;
        }
    }
}

/// Connected and subscribed.
async fn subscribe(options: MqttOptions, topic: &str) -> (AsyncClient, EventLoop) {
    let (client, mut events) = AsyncClient::new(options, 200);
    client.subscribe(topic, QoS::ExactlyOnce).await.expect("a request");
    loop {
        if let Packet::SubAck(suback) = incoming(&mut events).await {
            assert_eq!(suback.return_codes, [SubscribeReasonCode::Success(QoS::ExactlyOnce)]);
            return (client, events);
        }
    }
}

/// Fifty messages at each QoS there and back, in order.
async fn series(transport: &str) {
    let topic = unique("rumqttc/");
    let (client, mut events) = subscribe(options(transport), &topic).await;
    for qos in LEVELS {
        for n in 0..50 {
            client.publish(&topic, qos, false, n.to_string()).await.expect("a request");
        }
        for n in 0..50 {
            let publish = next_message(&mut events).await;
            assert_eq!((publish.qos, publish.payload.as_ref()), (qos, n.to_string().as_bytes()));
            assert_eq!(publish.topic.as_ref(), topic.as_bytes());
        }
    }
    client.publish(&topic, QoS::AtLeastOnce, false, vec![7; 300_000]).await.expect("a request");
    assert_eq!(next_message(&mut events).await.payload.len(), 300_000);
}

#[tokio::test]
async fn over_tcp() {
    series("tcp").await;
}

#[tokio::test]
async fn over_tls() {
    series("tls").await;
}

#[tokio::test]
async fn over_websocket() {
    series("ws").await;
}

#[tokio::test]
async fn over_secure_websocket() {
    series("wss").await;
}

/// A retained message, and a will when the event loop is dropped.
#[tokio::test]
async fn retained_and_will() {
    let topic = unique("rumqttc/");
    let mut mortal = options("tcp");
    mortal.set_last_will(LastWill::new(&topic, "gone", QoS::AtLeastOnce, true, None));
    let (client, events) = subscribe(mortal, &unique("other/")).await;
    drop((client, events));
    let mut subscriber = server().client(V5);
    subscriber.subscribe(&topic, 1);
    assert_eq!(subscriber.receive().text(), "gone");
}

/// A session that is kept: rumqttc reconnects and gets what it missed.
#[tokio::test]
async fn persistent_session() {
    let topic = unique("rumqttc/");
    let mut kept = options("tcp");
    kept.set_clean_start(false).set_session_expiry_interval(Some(600));
    let (client, mut events) = subscribe(kept.clone(), &topic).await;
    client.disconnect().await.expect("a request");
    while events.poll().await.is_ok() {}
    let mut publisher = server().client(V5);
    publisher.publish(crate::common::packet::Publish::new(&topic, "waiting").qos(2));
    let (_client, mut events) = AsyncClient::new(kept, 10);
    let connack = incoming(&mut events).await;
    assert!(matches!(&connack, Packet::ConnAck(connack) if connack.session_present), "{connack:?}");
    assert_eq!(next_message(&mut events).await.payload.as_ref(), b"waiting");
}

/// Properties come through.
#[tokio::test]
async fn properties() {
    let topic = unique("rumqttc/");
    let (client, mut events) = subscribe(options("tcp"), &topic).await;
    let sent = PublishProperties {
        content_type: Some("text/plain".into()),
        response_topic: Some("answer".into()),
        correlation_data: Some(vec![0, 255].into()),
        user_properties: vec![("b".into(), "1".into()), ("a".into(), "2".into())],
        ..PublishProperties::default()
    };
    let request = client.publish_with_properties(&topic, QoS::AtLeastOnce, false, "x", sent.clone());
    request.await.expect("a request");
    let got = next_message(&mut events).await.properties.expect("properties");
    assert_eq!(got, sent);
}
