//! Any bytes, in any split: no panic, and the same answer.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use rumqttc::mqttbytes::v4;
use rumqttc::v5::mqttbytes::v5;

use super::super::{Frame, Version, WireError, decode, frame};
use super::strategy::*;
use super::*;

const VERSIONS: [Option<Version>; 3] = [None, Some(Version::V311), Some(Version::V5)];

/// Reads packets until the bytes end or one is refused, and uses what it gets.
fn read_all(version: Option<Version>, mut bytes: &[u8]) -> Result<usize, WireError> {
    let mut packets = 0;
    while let Some(Frame { first, header, body }) = frame(bytes, 1 << 20)? {
        let packet = decode(version, Frame { first, header, body }, &bytes[header..header + body])?;
        if let Packet::Publish(publish) = packet {
            let mut forwarded = Vec::new();
            publish.properties.write_forwarded(&mut forwarded);
            assert!(forwarded.len() <= publish.properties.raw.len());
            assert!(publish.topic.is_empty() <= publish.properties.topic_alias.is_some());
        }
        bytes = &bytes[header + body..];
        packets += 1;
    }
    Ok(packets)
}

/// Reads as a connection does: pieces arrive, and whole packets are taken out.
fn read_pieces(version: Option<Version>, pieces: &[&[u8]]) -> Result<usize, WireError> {
    let mut buffer: Vec<u8> = Vec::new();
    let mut packets = 0;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some(found) = frame(&buffer, 1 << 20)? {
            decode(version, found, &buffer[found.header..found.header + found.body])?;
            buffer.drain(..found.header + found.body);
            packets += 1;
        }
    }
    Ok(packets)
}

/// Bytes that look like packets: a type that a client may send, and a body of plausible fields.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let first =
        proptest::sample::select(&[0x10, 0x30, 0x32, 0x3D, 0x40, 0x62, 0x82, 0xA2, 0xC0, 0xE0, 0xF0][..]);
    let field = prop_oneof![
        Just(sized("MQTT")),
        text().prop_map(sized),
        pairs().prop_map(|pairs| pairs.iter().flat_map(|(key, value)| user(key, value)).collect()),
        (0..0x30_u8, text()).prop_map(|(id, value)| property(id, value)),
        vec(any::<u8>(), 0..6),
        (0..0x30_u8, vec(0..3_u8, 1..5)).prop_map(|(id, value)| [vec![id], value].concat()),
    ];
    (first, vec(field, 0..8)).prop_map(|(first, fields)| {
        let parts: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        packet(first, &parts)
    })
}

/// A sound packet as rumqttc writes it.
fn sound() -> impl Strategy<Value = Vec<u8>> {
    let four = |packet: v4::Packet| {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, usize::MAX).unwrap();
        bytes.to_vec()
    };
    let five = |packet: v5::Packet| {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, None).unwrap();
        bytes.to_vec()
    };
    prop_oneof![
        connect4().prop_map(move |sent| four(v4::Packet::Connect(sent))),
        publish4().prop_map(move |sent| four(v4::Packet::Publish(sent))),
        subscribe4().prop_map(move |sent| four(v4::Packet::Subscribe(sent))),
        connect5().prop_map(move |(sent, will, login)| five(v5::Packet::Connect(sent, will, login))),
        publish5().prop_map(move |sent| five(v5::Packet::Publish(sent))),
        subscribe5().prop_map(move |sent| five(v5::Packet::Subscribe(sent))),
        unsubscribe5().prop_map(move |sent| five(v5::Packet::Unsubscribe(sent))),
    ]
}

/// Sound packets, one after the other, with a few bytes changed.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    (vec(sound(), 1..4), vec((any::<Index>(), any::<u8>()), 0..4)).prop_map(|(packets, changes)| {
        let mut bytes = packets.concat();
        for (index, value) in changes {
            let position = index.index(bytes.len());
            bytes[position] = value;
        }
        bytes
    })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..300), vec(almost(), 1..4).prop_map(|packets| packets.concat()), damaged()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn never_panics_and_splits_do_not_matter(bytes in any_bytes(), cuts in vec(any::<Index>(), 0..6)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        for version in VERSIONS {
            prop_assert_eq!(read_all(version, &bytes), read_pieces(version, &pieces));
        }
    }

    #[test]
    fn more_bytes_never_change_an_answer(bytes in any_bytes(), maximum in 0..400_usize) {
        let whole = frame(&bytes, maximum);
        for length in 0..bytes.len() {
            match frame(&bytes[..length], maximum) {
                Ok(None) => {}
                answer => prop_assert_eq!(answer, whole, "{} bytes", length),
            }
        }
    }

    #[test]
    fn the_body_decides_alone(first in any::<u8>(), body in vec(any::<u8>(), 0..60)) {
        for version in VERSIONS {
            let _ = decode(version, Frame { first, header: 2, body: body.len() }, &body);
        }
    }
}
