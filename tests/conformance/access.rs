//! What the rules deny.

use crate::client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::unique;

both_versions!(denied_subscription, denied_among_others);

fn is_denial(version: Version, code: u8) -> bool {
    code == 0x80 || version == V5 && code == 0x87
}

/// [MQTT-3.9.3-2], [MQTT-3.8.4-5] / [MQTT-3.8.4-7] A subscription that is not allowed gets a failure
/// code. Mosquitto grants it.
fn denied_subscription(version: Version) {
    let mut client = client(version);
    let codes = client.try_subscribe("test/nosubscribe", 2);
    assert!(codes.len() == 1 && is_denial(version, codes[0]), "{codes:02x?}");
    client.ping();
}

/// [MQTT-3.9.3-1] The others of the same SUBSCRIBE are granted.
fn denied_among_others(version: Version) {
    let (topic, mut client) = (unique("allowed/"), client(version));
    let suback = client.subscribe_with(&Subscribe::new(1, &[("test/nosubscribe", 1), (&topic, 1)]));
    assert!(is_denial(version, suback.codes[0]), "{:02x?}", suback.codes);
    assert_eq!(suback.codes[1..], [1]);
    client.publish(Publish::new(&topic, "x").qos(1));
    assert_eq!(client.receive().text(), "x");
}
