//! What the property tests draw from: packets of rumqttc's codecs that a client may send.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rumqttc::mqttbytes::{self, v4};
use rumqttc::v5::mqttbytes as mqttbytes5;
use rumqttc::v5::mqttbytes::v5;

pub(super) type Pairs = Vec<(String, String)>;

pub(super) fn text() -> impl Strategy<Value = String> {
    "[^\\x00]{0,12}"
}

pub(super) fn topic() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/]{1,9}", "[^\\x00+#]{1,20}", "[a-z]{130,300}"]
}

pub(super) fn filter() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z+#/]{1,9}", "[^\\x00]{1,20}", "\\$share/[a-z]{1,4}/[a-z+#/]{1,9}"]
}

pub(super) fn pairs() -> impl Strategy<Value = Pairs> {
    vec((text(), text()), 0..4)
}

pub(super) fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..40), vec(any::<u8>(), 100..200)]
}

pub(super) fn packet_id() -> impl Strategy<Value = u16> {
    1..=u16::MAX
}

fn flag() -> impl Strategy<Value = Option<u8>> {
    option::of(0..=1_u8)
}

pub(super) fn qos4() -> impl Strategy<Value = mqttbytes::QoS> {
    use mqttbytes::QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};
    prop_oneof![Just(AtMostOnce), Just(AtLeastOnce), Just(ExactlyOnce)]
}

pub(super) fn qos5() -> impl Strategy<Value = mqttbytes5::QoS> {
    use mqttbytes5::QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};
    prop_oneof![Just(AtMostOnce), Just(AtLeastOnce), Just(ExactlyOnce)]
}

pub(super) fn connect4() -> impl Strategy<Value = v4::Connect> {
    let will = (topic(), payload(), qos4(), any::<bool>())
        .prop_map(|(topic, message, qos, retain)| v4::LastWill::new(topic, message, qos, retain));
    // The writer leaves out what is empty, and a password may not stand alone.
    let login = ("[^\\x00]{1,9}", text()).prop_map(|(user, password)| v4::Login::new(user, password));
    (any::<u16>(), text(), any::<bool>(), option::of(will), option::of(login)).prop_map(
        |(keep_alive, client_id, clean_session, last_will, login)| v4::Connect {
            protocol: mqttbytes::Protocol::V4,
            keep_alive,
            client_id,
            clean_session,
            last_will,
            login,
        },
    )
}

pub(super) fn publish4() -> impl Strategy<Value = v4::Publish> {
    (any::<bool>(), qos4(), any::<bool>(), topic(), packet_id(), payload()).prop_map(
        |(dup, qos, retain, topic, pkid, payload)| {
            let acknowledged = qos != mqttbytes::QoS::AtMostOnce;
            let mut publish = v4::Publish::new(topic, qos, payload);
            publish.dup = dup && acknowledged;
            publish.retain = retain;
            publish.pkid = if acknowledged { pkid } else { 0 };
            publish
        },
    )
}

pub(super) fn subscribe4() -> impl Strategy<Value = v4::Subscribe> {
    let filter = (filter(), qos4()).prop_map(|(path, qos)| v4::SubscribeFilter::new(path, qos));
    (packet_id(), vec(filter, 1..5)).prop_map(|(pkid, filters)| v4::Subscribe { pkid, filters })
}

/// CONNECT with its will and login, as the codec writes them.
pub(super) type Connect5 = (v5::Connect, Option<v5::LastWill>, Option<v5::Login>);

pub(super) fn connect5() -> impl Strategy<Value = Connect5> {
    let connect = (any::<u16>(), text(), any::<bool>(), option::of(connect_properties())).prop_map(
        |(keep_alive, client_id, clean_start, properties)| v5::Connect {
            keep_alive,
            client_id,
            clean_start,
            properties,
        },
    );
    let will = (topic(), payload(), qos5(), any::<bool>(), option::of(will_properties())).prop_map(
        |(topic, message, qos, retain, properties)| {
            v5::LastWill::new(topic, message, qos, retain, properties)
        },
    );
    let login = (text(), text()).prop_map(|(user, password)| v5::Login::new(user, password));
    (connect, option::of(will), option::of(login))
}

fn connect_properties() -> impl Strategy<Value = v5::ConnectProperties> {
    (
        option::of(any::<u32>()),
        option::of(1..=u16::MAX),
        option::of(1..=u32::MAX),
        option::of(any::<u16>()),
        flag(),
        flag(),
        pairs(),
        option::of((text(), option::of(payload()))),
    )
        .prop_map(|(expiry, receive, size, aliases, response, problem, user, method)| {
            let (method, data) = method.map_or((None, None), |(method, data)| (Some(method), data));
            v5::ConnectProperties {
                session_expiry_interval: expiry,
                receive_maximum: receive,
                max_packet_size: size,
                topic_alias_max: aliases,
                request_response_info: response,
                request_problem_info: problem,
                user_properties: user,
                authentication_method: method,
                authentication_data: data.map(Into::into),
            }
        })
}

fn will_properties() -> impl Strategy<Value = v5::LastWillProperties> {
    (option::of(any::<u32>()), publish_properties()).prop_map(|(delay_interval, rest)| {
        v5::LastWillProperties {
            delay_interval,
            payload_format_indicator: rest.payload_format_indicator,
            message_expiry_interval: rest.message_expiry_interval,
            content_type: rest.content_type,
            response_topic: rest.response_topic,
            correlation_data: rest.correlation_data,
            user_properties: rest.user_properties,
        }
    })
}

pub(super) fn publish_properties() -> impl Strategy<Value = v5::PublishProperties> {
    (
        flag(),
        option::of(any::<u32>()),
        option::of(1..=u16::MAX),
        option::of(topic()),
        option::of(payload()),
        pairs(),
        option::of(text()),
    )
        .prop_map(|(format, expiry, alias, response, correlation, user, content)| {
            v5::PublishProperties {
                payload_format_indicator: format,
                message_expiry_interval: expiry,
                topic_alias: alias,
                response_topic: response,
                correlation_data: correlation.map(Into::into),
                user_properties: user,
                subscription_identifiers: Vec::new(),
                content_type: content,
            }
        })
}

pub(super) fn publish5() -> impl Strategy<Value = v5::Publish> {
    let content = (topic(), any::<bool>(), payload(), option::of(publish_properties()));
    (any::<bool>(), qos5(), any::<bool>(), packet_id(), content).prop_map(
        |(dup, qos, retain, pkid, (topic, aliased, payload, properties))| {
            let acknowledged = qos != mqttbytes5::QoS::AtMostOnce;
            let has_alias = properties.as_ref().is_some_and(|found| found.topic_alias.is_some());
            let topic = if has_alias && aliased { String::new() } else { topic };
            let mut publish = v5::Publish::new(topic, qos, payload, properties);
            publish.dup = dup && acknowledged;
            publish.retain = retain;
            publish.pkid = if acknowledged { pkid } else { 0 };
            publish
        },
    )
}

pub(super) fn subscribe5() -> impl Strategy<Value = v5::Subscribe> {
    use v5::RetainForwardRule::{Never, OnEverySubscribe, OnNewSubscribe};
    let rule = prop_oneof![Just(OnEverySubscribe), Just(OnNewSubscribe), Just(Never)];
    let filter = (filter(), qos5(), any::<bool>(), any::<bool>(), rule).prop_map(
        |(path, qos, nolocal, preserve_retain, retain_forward_rule)| v5::Filter {
            nolocal: nolocal && !path.starts_with("$share/"),
            path,
            qos,
            preserve_retain,
            retain_forward_rule,
        },
    );
    let id = prop_oneof![1..200_usize, 1..=268_435_455_usize];
    let properties = (option::of(id), pairs())
        .prop_map(|(id, user_properties)| v5::SubscribeProperties { id, user_properties });
    (packet_id(), vec(filter, 1..5), option::of(properties))
        .prop_map(|(pkid, filters, properties)| v5::Subscribe { pkid, filters, properties })
}

pub(super) fn unsubscribe5() -> impl Strategy<Value = v5::Unsubscribe> {
    let properties = pairs().prop_map(|user_properties| v5::UnsubscribeProperties { user_properties });
    (packet_id(), vec(filter(), 1..5), option::of(properties))
        .prop_map(|(pkid, filters, properties)| v5::Unsubscribe { pkid, filters, properties })
}
