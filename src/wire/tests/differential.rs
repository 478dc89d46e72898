//! What rumqttc's codecs write for a client is accepted, with equal contents.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use rumqttc::mqttbytes::v4;
use rumqttc::v5::mqttbytes::v5;

use super::super::{
    Ack, Connect, Disconnect, Encoder, Filter, Outgoing, QoS, ReasonCode, RetainHandling, Unsubscribe,
    Version, Will,
};
use super::strategy::*;
use super::*;

const V5: Option<Version> = Some(Version::V5);
const V311: Option<Version> = Some(Version::V311);

fn bytes4(packet: v4::Packet) -> BytesMut {
    let mut bytes = BytesMut::new();
    packet.write(&mut bytes, usize::MAX).unwrap();
    bytes
}

fn bytes5(packet: v5::Packet) -> BytesMut {
    let mut bytes = BytesMut::new();
    packet.write(&mut bytes, None).unwrap();
    bytes
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn some_bytes(text: &str) -> Option<Bytes> {
    (!text.is_empty()).then(|| Bytes::copy_from_slice(text.as_bytes()))
}

fn qos_of(bits: u8) -> QoS {
    QoS::from_bits(bits).unwrap()
}

fn connect_of_4(sent: &v4::Connect) -> Connect {
    let will = sent.last_will.as_ref().map(|will| Will {
        topic: will.topic.clone(),
        payload: will.message.clone(),
        qos: qos_of(will.qos as u8),
        retain: will.retain,
        delay: 0,
        message_expiry: None,
        properties: Bytes::new(),
    });
    Connect {
        version: Version::V311,
        clean_start: sent.clean_session,
        keep_alive: sent.keep_alive,
        client_id: sent.client_id.clone(),
        will,
        user: sent.login.as_ref().and_then(|login| some_text(&login.username)),
        password: sent.login.as_ref().and_then(|login| some_bytes(&login.password)),
        session_expiry: if sent.clean_session { 0 } else { u32::MAX },
        receive_maximum: 65_535,
        maximum_packet_size: None,
        topic_alias_maximum: 0,
        request_response_information: false,
        request_problem_information: true,
        authentication_method: None,
    }
}

/// The will's properties are compared apart.
fn connect_of_5((sent, will, login): &Connect5, will_properties: Bytes) -> Connect {
    let properties = sent.properties.clone().unwrap_or_default();
    let will = will.as_ref().map(|will| Will {
        topic: String::from_utf8(will.topic.to_vec()).unwrap(),
        payload: will.message.clone(),
        qos: qos_of(will.qos as u8),
        retain: will.retain,
        delay: will.properties.as_ref().and_then(|found| found.delay_interval).unwrap_or(0),
        message_expiry: will.properties.as_ref().and_then(|found| found.message_expiry_interval),
        properties: will_properties,
    });
    Connect {
        version: Version::V5,
        clean_start: sent.clean_start,
        keep_alive: sent.keep_alive,
        client_id: sent.client_id.clone(),
        will,
        user: login.as_ref().and_then(|login| some_text(&login.username)),
        password: login.as_ref().and_then(|login| some_bytes(&login.password)),
        session_expiry: properties.session_expiry_interval.unwrap_or(0),
        receive_maximum: properties.receive_maximum.unwrap_or(65_535),
        maximum_packet_size: properties.max_packet_size,
        topic_alias_maximum: properties.topic_alias_max.unwrap_or(0),
        request_response_information: properties.request_response_info == Some(1),
        request_problem_information: properties.request_problem_info != Some(0),
        authentication_method: properties.authentication_method,
    }
}

/// What a PUBLISH carries to a version 5 subscriber, by rumqttc's reading.
fn delivered(properties: &[u8], message_expiry: Option<u32>) -> v5::PublishProperties {
    let encoder = Encoder { version: Version::V5, maximum: u32::MAX, problem_information: true };
    let outgoing = Outgoing {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: b"t",
        packet_id: 0,
        topic_alias: None,
        message_expiry,
        subscription_ids: &[],
        properties,
        payload: b"payload",
    };
    let mut out = Vec::new();
    assert!(encoder.publish(&mut out, &outgoing));
    match v5::Packet::read(&mut BytesMut::from(&out[..]), None) {
        Ok(v5::Packet::Publish(publish)) => {
            assert_eq!(&publish.payload[..], b"payload");
            publish.properties.unwrap_or_default()
        }
        other => panic!("{other:?}"),
    }
}

fn filter_of(sent: &v5::Filter) -> Filter {
    Filter {
        path: sent.path.clone(),
        qos: qos_of(sent.qos as u8),
        no_local: sent.nolocal,
        retain_as_published: sent.preserve_retain,
        retain_handling: match sent.retain_forward_rule {
            v5::RetainForwardRule::OnEverySubscribe => RetainHandling::Always,
            v5::RetainForwardRule::OnNewSubscribe => RetainHandling::IfNew,
            v5::RetainForwardRule::Never => RetainHandling::Never,
        },
    }
}

proptest! {
    #[test]
    fn connect_3_1_1(sent in connect4()) {
        let bytes = bytes4(v4::Packet::Connect(sent.clone()));
        prop_assert_eq!(read(None, &bytes), Ok(Packet::Connect(Box::new(connect_of_4(&sent)))));
    }

    #[test]
    fn connect_5(sent in connect5()) {
        let bytes = bytes5(v5::Packet::Connect(sent.0.clone(), sent.1.clone(), sent.2.clone()));
        let Ok(Packet::Connect(found)) = read(None, &bytes) else { panic!("{:?}", read(None, &bytes)) };
        let will_properties = found.will.as_ref().map(|will| will.properties.clone()).unwrap_or_default();
        prop_assert_eq!(&*found, &connect_of_5(&sent, will_properties.clone()));
        if let Some(will) = sent.1.and_then(|will| will.properties) {
            let expected = v5::PublishProperties {
                payload_format_indicator: will.payload_format_indicator,
                message_expiry_interval: None,
                topic_alias: None,
                response_topic: will.response_topic,
                correlation_data: will.correlation_data,
                user_properties: will.user_properties,
                subscription_identifiers: Vec::new(),
                content_type: will.content_type,
            };
            prop_assert_eq!(delivered(&will_properties, None), expected);
        }
    }

    #[test]
    fn publish_3_1_1(sent in publish4()) {
        let bytes = bytes4(v4::Packet::Publish(sent.clone()));
        let Ok(Packet::Publish(found)) = read(V311, &bytes) else { panic!("{:?}", read(V311, &bytes)) };
        prop_assert_eq!((found.dup, found.qos as u8, found.retain), (sent.dup, sent.qos as u8, sent.retain));
        prop_assert_eq!((found.topic, found.packet_id), (&sent.topic[..], sent.pkid));
        prop_assert_eq!(found.payload, &sent.payload[..]);
    }

    #[test]
    fn publish_5(sent in publish5()) {
        let bytes = bytes5(v5::Packet::Publish(sent.clone()));
        let Ok(Packet::Publish(found)) = read(V5, &bytes) else { panic!("{:?}", read(V5, &bytes)) };
        prop_assert_eq!((found.dup, found.qos as u8, found.retain), (sent.dup, sent.qos as u8, sent.retain));
        prop_assert_eq!((found.topic.as_bytes(), found.packet_id), (&sent.topic[..], sent.pkid));
        prop_assert_eq!(found.payload, &sent.payload[..]);
        let properties = sent.properties.unwrap_or_default();
        prop_assert_eq!(found.properties.topic_alias, properties.topic_alias);
        prop_assert_eq!(found.properties.message_expiry, properties.message_expiry_interval);
        let mut forwarded = Vec::new();
        found.properties.write_forwarded(&mut forwarded);
        let expected = v5::PublishProperties { topic_alias: None, ..properties };
        prop_assert_eq!(delivered(&forwarded, found.properties.message_expiry), expected);
    }

    #[test]
    fn subscribe_3_1_1(sent in subscribe4()) {
        let bytes = bytes4(v4::Packet::Subscribe(sent.clone()));
        let Ok(Packet::Subscribe(found)) = read(V311, &bytes) else { panic!("{:?}", read(V311, &bytes)) };
        prop_assert_eq!((found.packet_id, found.identifier), (sent.pkid, None));
        let paths: Vec<_> = found.filters.iter().map(|filter| (&filter.path, filter.qos as u8)).collect();
        let expected: Vec<_> = sent.filters.iter().map(|filter| (&filter.path, filter.qos as u8)).collect();
        prop_assert_eq!(paths, expected);
    }

    #[test]
    fn subscribe_5(sent in subscribe5()) {
        let bytes = bytes5(v5::Packet::Subscribe(sent.clone()));
        let Ok(Packet::Subscribe(found)) = read(V5, &bytes) else { panic!("{:?}", read(V5, &bytes)) };
        let id = sent.properties.and_then(|properties| properties.id);
        prop_assert_eq!((found.packet_id, found.identifier.map(|id| id as usize)), (sent.pkid, id));
        prop_assert_eq!(found.filters, sent.filters.iter().map(filter_of).collect::<Vec<_>>());
    }

    #[test]
    fn unsubscribe(sent in unsubscribe5()) {
        let version_4 = v4::Unsubscribe { pkid: sent.pkid, topics: sent.filters.clone() };
        let bytes = bytes4(v4::Packet::Unsubscribe(version_4));
        let expected =
            Unsubscribe { packet_id: sent.pkid, filters: sent.filters.clone() };
        prop_assert_eq!(read(V311, &bytes), Ok(Packet::Unsubscribe(expected.clone())));
        let bytes = bytes5(v5::Packet::Unsubscribe(sent));
        prop_assert_eq!(read(V5, &bytes), Ok(Packet::Unsubscribe(expected)));
    }

    #[test]
    fn acknowledgements_5(pkid in packet_id(), reason in proptest::option::of(text()), user in pairs()) {
        let ack = Ack { packet_id: pkid, reason: ReasonCode::SUCCESS };
        let properties = v5::PubAckProperties { reason_string: reason, user_properties: user };
        let bytes = bytes5(v5::Packet::PubAck(v5::PubAck::new(pkid, Some(properties.clone()))));
        prop_assert_eq!(read(V5, &bytes), Ok(Packet::PubAck(ack)));
        let v5::PubAckProperties { reason_string, user_properties } = properties;
        let properties = v5::PubRelProperties { reason_string, user_properties };
        let bytes = bytes5(v5::Packet::PubRel(v5::PubRel::new(pkid, Some(properties))));
        prop_assert_eq!(read(V5, &bytes), Ok(Packet::PubRel(ack)));
    }
}

#[test]
fn plain_packets_of_3_1_1() {
    let ack = Ack { packet_id: 9, reason: ReasonCode::SUCCESS };
    let disconnect = Disconnect { reason: ReasonCode::SUCCESS, session_expiry: None };
    for (sent, expected) in [
        (v4::Packet::PubAck(v4::PubAck::new(9)), Packet::PubAck(ack)),
        (v4::Packet::PubRec(v4::PubRec::new(9)), Packet::PubRec(ack)),
        (v4::Packet::PubRel(v4::PubRel::new(9)), Packet::PubRel(ack)),
        (v4::Packet::PubComp(v4::PubComp::new(9)), Packet::PubComp(ack)),
        (v4::Packet::PingReq, Packet::PingReq),
        (v4::Packet::Disconnect, Packet::Disconnect(disconnect)),
    ] {
        assert_eq!(read(V311, &bytes4(sent)), Ok(expected));
    }
}

#[test]
fn plain_packets_of_5() {
    let ack = Ack { packet_id: 9, reason: ReasonCode::SUCCESS };
    let disconnect = |reason| Disconnect { reason, session_expiry: Some(7) };
    let properties = v5::DisconnectProperties {
        session_expiry_interval: Some(7),
        reason_string: Some("why".into()),
        user_properties: vec![("k".into(), "v".into())],
        server_reference: None,
    };
    let left = v5::Disconnect {
        reason_code: v5::DisconnectReasonCode::DisconnectWithWillMessage,
        properties: Some(properties),
    };
    for (sent, expected) in [
        (v5::Packet::PubAck(v5::PubAck::new(9, None)), Packet::PubAck(ack)),
        (v5::Packet::PubRec(v5::PubRec::new(9, None)), Packet::PubRec(ack)),
        (v5::Packet::PubRel(v5::PubRel::new(9, None)), Packet::PubRel(ack)),
        (v5::Packet::PubComp(v5::PubComp::new(9, None)), Packet::PubComp(ack)),
        (v5::Packet::PingReq(v5::PingReq), Packet::PingReq),
        (v5::Packet::Disconnect(left), Packet::Disconnect(disconnect(ReasonCode::DISCONNECT_WITH_WILL))),
    ] {
        assert_eq!(read(V5, &bytes5(sent)), Ok(expected));
    }
}
