//! What it costs to read and write a packet: `cargo bench -p tidegate-bench --bench codec`.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use tidegate::wire::{Connack, Encoder, Outgoing, Packet, QoS, ReasonCode, Version, decode, frame};

const TOPIC: &[u8] = b"plant/7/line/3/meter/1042/power";
const PAYLOAD: [u8; 64] = [b'7'; 64];
/// Payload format, content type, a user property.
const PROPERTIES: &[u8] = b"\x01\x01\x03\x00\x10application/json\x26\x00\x04unit\x00\x04watt";
const MAXIMUM: usize = 1 << 20;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    read(&mut criterion);
    write(&mut criterion);
    criterion.final_summary();
}

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    let (v4, v5) = (Some(Version::V311), Some(Version::V5));
    let packets = [
        ("publish 64 B v4", v4, publish(Version::V311, b"")),
        ("publish 64 B v5", v5, publish(Version::V5, b"")),
        ("publish 64 B v5 with properties", v5, publish(Version::V5, PROPERTIES)),
        ("connect v4", None, connect(4)),
        ("connect v5", None, connect(5)),
        ("subscribe v4, 3 filters", v4, subscribe(Version::V311)),
        ("subscribe v5, 3 filters", v5, subscribe(Version::V5)),
    ];
    for (name, version, bytes) in &packets {
        group.throughput(Throughput::Elements(1));
        assert_eq!(kind(&read_one(*version, bytes)), name.split(' ').next().unwrap());
        group.bench_function(*name, |b| {
            b.iter(|| {
                black_box(read_one(*version, black_box(bytes)));
            });
        });
    }
}

fn write(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    let publishes: [(&str, Version, &[u8]); 3] = [
        ("publish 64 B v4", Version::V311, b""),
        ("publish 64 B v5", Version::V5, b""),
        ("publish 64 B v5 with properties", Version::V5, PROPERTIES),
    ];
    let mut out = Vec::with_capacity(1024);
    for (name, version, properties) in publishes {
        group.throughput(Throughput::Elements(1));
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                assert!(encoder(version).publish(&mut out, black_box(&outgoing(properties))));
                black_box(&out);
            });
        });
    }
    let connack = Connack { reason: ReasonCode::SUCCESS, receive_maximum: Some(1024), ..Connack::default() };
    group.bench_function("connack v5", |b| {
        b.iter(|| {
            out.clear();
            encoder(Version::V5).connack(&mut out, black_box(&connack));
            black_box(&out);
        });
    });
    group.bench_function("puback v5", |b| {
        b.iter(|| {
            out.clear();
            encoder(Version::V5).puback(&mut out, black_box(7), ReasonCode::SUCCESS, None, &[]);
            black_box(&out);
        });
    });
}

fn read_one(version: Option<Version>, bytes: &[u8]) -> Packet<'_> {
    let found = frame(bytes, MAXIMUM).unwrap().unwrap();
    decode(version, found, &bytes[found.header..]).unwrap()
}

fn kind(packet: &Packet<'_>) -> &'static str {
    match packet {
        Packet::Publish(_) => "publish",
        Packet::Connect(_) => "connect",
        Packet::Subscribe(_) => "subscribe",
        _ => "another",
    }
}

fn encoder(version: Version) -> Encoder {
    Encoder { version, maximum: u32::MAX, problem_information: true }
}

fn outgoing(properties: &[u8]) -> Outgoing<'_> {
    Outgoing {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: TOPIC,
        packet_id: 7,
        topic_alias: None,
        message_expiry: None,
        subscription_ids: &[],
        properties,
        payload: &PAYLOAD,
    }
}

/// A PUBLISH looks the same in both directions.
fn publish(version: Version, properties: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(encoder(version).publish(&mut out, &outgoing(properties)));
    out
}

/// With a user, a password and a will; with session expiry and receive maximum in version 5.
fn connect(level: u8) -> Vec<u8> {
    let (properties, will_properties): (&[u8], &[u8]) =
        if level == 5 { (b"\x08\x11\0\0\x0e\x10\x21\0\x40", b"\0") } else { (b"", b"") };
    let fixed = [text("MQTT"), vec![level, 0b1100_1110, 0, 60], properties.to_vec(), text("meter-1042")];
    let will = [will_properties.to_vec(), text("plant/7/gone"), text("meter-1042")];
    packet(0x10, &[fixed.concat(), will.concat(), text("meter"), text("not a secret")].concat())
}

fn subscribe(version: Version) -> Vec<u8> {
    let mut body = vec![0, 9];
    if version == Version::V5 {
        body.extend([2, 0x0B, 5]);
    }
    for filter in ["plant/7/#", "plant/+/alarm", "$share/readers/plant/7/line/+/meter/+/power"] {
        body.extend(text(filter));
        body.push(1);
    }
    packet(0x82, &body)
}

fn text(words: &str) -> Vec<u8> {
    let length = u16::try_from(words.len()).unwrap();
    [&length.to_be_bytes(), words.as_bytes()].concat()
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128, "one byte of length");
    [&[first, body.len() as u8], body].concat()
}
