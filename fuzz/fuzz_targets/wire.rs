//! Any bytes as a connection's input: no panic, and what comes out can be passed on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::wire::{Encoder, Outgoing, Packet, Version, decode, frame};

fuzz_target!(|bytes: &[u8]| {
    for version in [None, Some(Version::V311), Some(Version::V5)] {
        read_all(version, bytes);
    }
});

fn read_all(version: Option<Version>, mut bytes: &[u8]) {
    while let Ok(Some(found)) = frame(bytes, 1 << 20) {
        let (packet, rest) = bytes.split_at(found.header + found.body);
        match decode(version, found, &packet[found.header..]) {
            Ok(packet) => pass_on(&packet),
            Err(_) => return,
        }
        bytes = rest;
    }
}

/// A PUBLISH that was accepted is written for a subscriber, and reads the same again.
fn pass_on(packet: &Packet<'_>) {
    let Packet::Publish(publish) = packet else { return };
    if publish.topic.is_empty() {
        return;
    }
    let mut properties = Vec::new();
    publish.properties.write_forwarded(&mut properties);
    let outgoing = Outgoing {
        dup: publish.dup,
        qos: publish.qos,
        retain: publish.retain,
        topic: publish.topic.as_bytes(),
        packet_id: publish.packet_id,
        topic_alias: None,
        message_expiry: None,
        subscription_ids: &[],
        properties: &properties,
        payload: publish.payload,
    };
    let encoder = Encoder { version: Version::V5, maximum: u32::MAX, problem_information: true };
    let mut out = Vec::new();
    assert!(encoder.publish(&mut out, &outgoing));
    let found = frame(&out, usize::MAX).unwrap().unwrap();
    let Ok(Packet::Publish(again)) = decode(Some(Version::V5), found, &out[found.header..]) else {
        panic!("not accepted again");
    };
    assert_eq!((again.topic, again.payload), (publish.topic, publish.payload));
    assert_eq!(again.properties.raw, properties);
}
