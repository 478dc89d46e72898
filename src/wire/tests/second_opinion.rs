//! What the encoder writes, rumqttc's codecs read with equal contents, within the client's maximum.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rumqttc::mqttbytes::v4;
use rumqttc::v5::mqttbytes::{self, v5};

use super::super::{Connack, Encoder, Outgoing, QoS, ReasonCode, Version};
use super::strategy::*;

const V5: Encoder = Encoder { version: Version::V5, maximum: u32::MAX, problem_information: true };
const V311: Encoder = Encoder { version: Version::V311, ..V5 };

fn read4(bytes: &[u8]) -> v4::Packet {
    let mut bytes = BytesMut::from(bytes);
    let packet = v4::Packet::read(&mut bytes, usize::MAX).unwrap();
    assert!(bytes.is_empty(), "one packet and nothing else");
    packet
}

fn read5(bytes: &[u8]) -> v5::Packet {
    let mut bytes = BytesMut::from(bytes);
    let packet = v5::Packet::read(&mut bytes, None).unwrap();
    assert!(bytes.is_empty(), "one packet and nothing else");
    packet
}

fn borrowed(pairs: &Pairs) -> Vec<(&str, &str)> {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn ack_properties(text: Option<String>, user: Pairs) -> Option<v5::PubAckProperties> {
    let some = text.is_some() || !user.is_empty();
    some.then_some(v5::PubAckProperties { reason_string: text, user_properties: user })
}

fn outgoing<'a>(sent: &'a v5::Publish, ids: &'a [u32]) -> Outgoing<'a> {
    let properties = sent.properties.as_ref();
    Outgoing {
        dup: sent.dup,
        qos: QoS::from_bits(sent.qos as u8).unwrap(),
        retain: sent.retain,
        topic: &sent.topic,
        packet_id: sent.pkid,
        topic_alias: properties.and_then(|found| found.topic_alias),
        message_expiry: properties.and_then(|found| found.message_expiry_interval),
        subscription_ids: ids,
        properties: &[],
        payload: &sent.payload,
    }
}

#[derive(Debug, Clone)]
struct Limits {
    expiry: Option<u32>,
    receive: Option<u16>,
    size: Option<u32>,
    aliases: Option<u16>,
    keep_alive: Option<u16>,
}

fn limits() -> impl Strategy<Value = Limits> {
    (
        option::of(any::<u32>()),
        any::<Option<u16>>(),
        any::<Option<u32>>(),
        any::<Option<u16>>(),
        any::<Option<u16>>(),
    )
        .prop_map(|(expiry, receive, size, aliases, keep_alive)| Limits {
            expiry,
            receive,
            size,
            aliases,
            keep_alive,
        })
}

proptest! {
    #[test]
    fn connack(present: bool, limits in limits(), texts in proptest::array::uniform4(option::of(text()))) {
        let [id, information, server, reason] = texts;
        let connack = Connack {
            session_present: present,
            reason: ReasonCode::SUCCESS,
            session_expiry: limits.expiry,
            receive_maximum: limits.receive,
            maximum_packet_size: limits.size,
            assigned_client_id: id.as_deref(),
            topic_alias_maximum: limits.aliases,
            server_keep_alive: limits.keep_alive,
            response_information: information.as_deref(),
            server_reference: server.as_deref(),
            reason_string: reason.as_deref(),
        };
        let mut out = Vec::new();
        V5.connack(&mut out, &connack);
        let v5::Packet::ConnAck(found) = read5(&out) else { panic!("{out:?}") };
        prop_assert_eq!((found.session_present, found.code), (present, v5::ConnectReturnCode::Success));
        let expected = v5::ConnAckProperties {
            session_expiry_interval: limits.expiry,
            receive_max: limits.receive,
            max_qos: None,
            retain_available: None,
            max_packet_size: limits.size,
            assigned_client_identifier: id.clone(),
            topic_alias_max: limits.aliases,
            reason_string: reason.clone(),
            user_properties: Vec::new(),
            wildcard_subscription_available: None,
            subscription_identifiers_available: None,
            shared_subscription_available: None,
            server_keep_alive: limits.keep_alive,
            response_information: information.clone(),
            server_reference: server.clone(),
            authentication_method: None,
            authentication_data: None,
        };
        let none = out.len() == 5;
        prop_assert_eq!(found.properties, (!none).then_some(expected));

        out.clear();
        V311.connack(&mut out, &connack);
        let expected = v4::ConnAck::new(v4::ConnectReturnCode::Success, present);
        prop_assert_eq!(read4(&out), v4::Packet::ConnAck(expected));
    }

    /// Up to two identifiers: rumqttc can't read three.
    #[test]
    fn publish(mut sent in publish5(), ids in vec(1..=268_435_455_u32, 0..=2)) {
        if let Some(properties) = &mut sent.properties {
            *properties = v5::PublishProperties {
                topic_alias: properties.topic_alias,
                message_expiry_interval: properties.message_expiry_interval,
                ..Default::default()
            };
        }
        let mut out = Vec::new();
        prop_assert!(V5.publish(&mut out, &outgoing(&sent, &ids)));
        let v5::Packet::Publish(mut found) = read5(&out) else { panic!("{out:?}") };
        let mut expected = sent.clone();
        let mut properties = expected.properties.take().unwrap_or_default();
        properties.subscription_identifiers = ids.iter().map(|&id| id as usize).collect();
        prop_assert_eq!(found.properties.take().unwrap_or_default(), properties);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn publish_3_1_1(sent in publish4(), ids in vec(1..100_u32, 0..3)) {
        let outgoing = Outgoing {
            dup: sent.dup,
            qos: QoS::from_bits(sent.qos as u8).unwrap(),
            retain: sent.retain,
            topic: sent.topic.as_bytes(),
            packet_id: sent.pkid,
            // Nothing of this exists in 3.1.1.
            topic_alias: Some(3),
            message_expiry: Some(4),
            subscription_ids: &ids,
            properties: b"properties",
            payload: &sent.payload,
        };
        let mut out = Vec::new();
        prop_assert!(V311.publish(&mut out, &outgoing));
        prop_assert_eq!(read4(&out), v4::Packet::Publish(sent.clone()));
    }

    #[test]
    fn acknowledgements(pkid in packet_id(), text in option::of(text()), user in pairs()) {
        let mut out = Vec::new();
        V5.puback(&mut out, pkid, ReasonCode::QUOTA_EXCEEDED, text.as_deref(), &borrowed(&user));
        let properties = ack_properties(text.clone(), user.clone());
        let expected = v5::PubAck { pkid, reason: v5::PubAckReason::QuotaExceeded, properties };
        prop_assert_eq!(read5(&out), v5::Packet::PubAck(expected));

        out.clear();
        V5.pubrec(&mut out, pkid, ReasonCode::SUCCESS, text.as_deref(), &borrowed(&user));
        let properties = ack_properties(text.clone(), user.clone())
            .map(|same| v5::PubRecProperties { reason_string: same.reason_string, user_properties: same.user_properties });
        let expected = v5::PubRec { pkid, reason: v5::PubRecReason::Success, properties };
        prop_assert_eq!(read5(&out), v5::Packet::PubRec(expected));

        out.clear();
        V311.puback(&mut out, pkid, ReasonCode::QUOTA_EXCEEDED, text.as_deref(), &borrowed(&user));
        prop_assert_eq!(read4(&out), v4::Packet::PubAck(v4::PubAck::new(pkid)));
        out.clear();
        V311.pubrec(&mut out, pkid, ReasonCode::SUCCESS, text.as_deref(), &borrowed(&user));
        prop_assert_eq!(read4(&out), v4::Packet::PubRec(v4::PubRec::new(pkid)));
    }

    #[test]
    fn an_acknowledgement_fits(maximum in 0..80_u32, text in option::of(text()), user in pairs()) {
        let encoder = Encoder { maximum, ..V5 };
        let mut out = Vec::new();
        encoder.puback(&mut out, 9, ReasonCode::SUCCESS, text.as_deref(), &borrowed(&user));
        prop_assert!(out.len() <= maximum as usize);
        prop_assert_eq!(out.is_empty(), maximum < 4);
        if !out.is_empty() {
            let v5::Packet::PubAck(found) = read5(&out) else { panic!("{out:?}") };
            let allowed = [
                ack_properties(text, user.clone()),
                ack_properties(None, user),
                None,
            ];
            prop_assert!(allowed.contains(&found.properties), "{:?}", found);
        }
    }

    #[test]
    fn a_publish_fits_or_is_not_written(maximum in 0..400_u32, sent in publish5()) {
        let encoder = Encoder { maximum, ..V5 };
        let mut out = b"before".to_vec();
        let written = encoder.publish(&mut out, &outgoing(&sent, &[]));
        let mut unlimited = b"before".to_vec();
        prop_assert!(V5.publish(&mut unlimited, &outgoing(&sent, &[])));
        prop_assert_eq!(written, unlimited.len() - 6 <= maximum as usize);
        prop_assert_eq!(&out[..], if written { &unlimited[..] } else { b"before" });
    }

    #[test]
    fn disconnect(maximum in 0..80_u32, text in option::of(text()), server in option::of(text())) {
        let encoder = Encoder { maximum, problem_information: false, ..V5 };
        let mut out = Vec::new();
        encoder.disconnect(&mut out, ReasonCode::SERVER_MOVED, text.as_deref(), server.as_deref());
        prop_assert!(out.len() <= maximum as usize);
        prop_assert_eq!(out.is_empty(), maximum < 4);
        if !out.is_empty() {
            let v5::Packet::Disconnect(found) = read5(&out) else { panic!("{out:?}") };
            prop_assert_eq!(found.reason_code, v5::DisconnectReasonCode::ServerMoved);
            let found = found.properties.map(|found| (found.reason_string, found.server_reference));
            let allowed = [(text, server.clone()), (None, server), (None, None)];
            prop_assert!(allowed.contains(&found.unwrap_or_default()));
        }
    }
}

#[test]
fn suback_and_unsuback() {
    use v5::SubscribeReasonCode::{NotAuthorized, Success};
    let codes = [ReasonCode(1), ReasonCode::NOT_AUTHORIZED, ReasonCode(2)];
    let mut out = Vec::new();
    V5.suback(&mut out, 9, &codes);
    let return_codes =
        vec![Success(mqttbytes::QoS::AtLeastOnce), NotAuthorized, Success(mqttbytes::QoS::ExactlyOnce)];
    assert_eq!(read5(&out), v5::Packet::SubAck(v5::SubAck { pkid: 9, return_codes, properties: None }));

    out.clear();
    V5.unsuback(&mut out, 9, &[ReasonCode::SUCCESS, ReasonCode::NO_SUBSCRIPTION_EXISTED]);
    let reasons = vec![v5::UnsubAckReason::Success, v5::UnsubAckReason::NoSubscriptionExisted];
    assert_eq!(read5(&out), v5::Packet::UnsubAck(v5::UnsubAck { pkid: 9, reasons, properties: None }));

    out.clear();
    V311.unsuback(&mut out, 9, &codes);
    assert_eq!(read4(&out), v4::Packet::UnsubAck(v4::UnsubAck::new(9)));
}

#[test]
fn pubrel_pubcomp_and_pingresp() {
    for (reason, released, completed) in [
        (ReasonCode::SUCCESS, v5::PubRelReason::Success, v5::PubCompReason::Success),
        (
            ReasonCode::PACKET_IDENTIFIER_NOT_FOUND,
            v5::PubRelReason::PacketIdentifierNotFound,
            v5::PubCompReason::PacketIdentifierNotFound,
        ),
    ] {
        let mut out = Vec::new();
        V5.pubrel(&mut out, 9, reason);
        assert_eq!(
            read5(&out),
            v5::Packet::PubRel(v5::PubRel { pkid: 9, reason: released, properties: None })
        );
        out.clear();
        V5.pubcomp(&mut out, 9, reason);
        assert_eq!(
            read5(&out),
            v5::Packet::PubComp(v5::PubComp { pkid: 9, reason: completed, properties: None })
        );
    }
    let mut out = Vec::new();
    V311.pubrel(&mut out, 9, ReasonCode::SUCCESS);
    assert_eq!(read4(&out), v4::Packet::PubRel(v4::PubRel::new(9)));
    out.clear();
    V311.pubcomp(&mut out, 9, ReasonCode::SUCCESS);
    assert_eq!(read4(&out), v4::Packet::PubComp(v4::PubComp::new(9)));
    out.clear();
    V311.pingresp(&mut out);
    assert_eq!(read4(&out), v4::Packet::PingResp);
}
