//! Publishers that send more than they may, on a real gateway over TCP: a plugin of the test's own says what rates they
//! have, and the `gate` plugin holds them to it.
//!
//! How much may pass depends on the time that went by, which is read after what passed was seen: on a slow machine more
//! time goes by, and nothing else changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod house;
mod peers;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::client::{Client, End};
use common::decode::Packet;
use common::flood::flood;
use common::packet::Version::{V5, V311};
use common::packet::*;
use common::property::*;
use house::{House, Pace};
use tidegate_gate::{Excess, GateConfig, Qos0};

/// No grace, so that what may pass can be worked out.
fn strict() -> GateConfig {
    GateConfig { grace: Duration::ZERO, ..GateConfig::default() }
}

fn messages(count: usize, qos: u8) -> impl Iterator<Item = Publish> {
    (0..count).map(move |number| Publish::new("flood", format!("{number:060}")).qos(qos))
}

#[test]
fn a_flood_is_held_to_its_rate_and_others_are_not() {
    let house = House::start(strict(), |_| {});
    house.set_rate("flooder", 200.0);
    let mut consumer = house.connect(&Connect::v311("consumer"));
    consumer.subscribe("flood", 1);
    for connect in [Connect::v311("flooder"), Connect::v5("flooder")] {
        let mut flooder = house.connect(&connect);
        let pace = Pace::start(200.0, &strict());
        flood(&mut flooder, messages(500, 1), 100, |acknowledged| pace.check(acknowledged));
        for number in 0..500 {
            assert_eq!(consumer.receive().text(), format!("{number:060}"));
        }
        let mut free = house.connect(&Connect::v311("free"));
        flood(&mut free, messages(500, 1), 100, |_| {});
        consumer.receive_texts(500);
    }
    let counted = house.counts.snapshot();
    assert!(counted.delayed >= 2 * (500 - 26 - 100), "{counted:?}");
    assert_eq!((counted.overdue, counted.refused, counted.dropped, counted.closed), (0, 0, 0, 0));
}

#[test]
fn a_rate_that_rises_lets_go() {
    let house = House::start(strict(), |_| {});
    house.set_rate("flooder", 0.001);
    let mut flooder = house.connect(&Connect::v311("flooder").keep_alive(0));
    flooder.send(&messages(20, 1).enumerate().map(numbered).collect::<Vec<_>>().concat()[..]);
    let acknowledged = |client: &mut Client, count: usize| {
        for _ in 0..count {
            client.wait_for("PUBACK", |packet| matches!(packet, Packet::Ack(_)).then_some(()));
        }
    };
    acknowledged(&mut flooder, 2);
    flooder.expect_silence();
    house.set_rate("flooder", f64::INFINITY);
    acknowledged(&mut flooder, 18);
}

/// A message with an identifier, as bytes.
fn numbered((index, publish): (usize, Publish)) -> Vec<u8> {
    let publish = if publish.qos == 0 { publish } else { publish.id(index as u16 + 1) };
    publish.encode(V311)
}

#[test]
fn a_held_client_gets_its_pings_answered_and_outlives_its_keep_alive() {
    let house = House::start(strict(), |_| {});
    house.set_rate("held", 0.001);
    let mut client = house.connect(&Connect::v311("held").keep_alive(2));
    client.send(&messages(9, 1).enumerate().map(numbered).collect::<Vec<_>>().concat()[..]);
    let (mut acknowledged, mut pings) = (0, 0);
    // Two pass at once, and then one in a second: seven seconds, which is more than one and a half times two.
    while acknowledged < 9 {
        client.send(&PINGREQ);
        loop {
            match client.recv() {
                Packet::Ack(ack) if ack.kind == Kind::Puback => acknowledged += 1,
                Packet::Pingresp => break,
                other => panic!("{other:?}"),
            }
        }
        pings += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(pings > 5, "{pings}");
    assert_eq!(house.counts.snapshot().overdue, 7);
}

/// Enough is held that the connection is not even read: the ping waits in the socket behind megabytes.
#[test]
fn a_flood_of_qos0_outlives_its_keep_alive() {
    let house = House::start(strict(), |settings| settings.listen.max_buffer = 65_536);
    house.set_rate("flooder", 1.0);
    let mut client = house.connect(&Connect::v311("flooder").keep_alive(2));
    let some: Vec<u8> = messages(10_000, 0).enumerate().flat_map(numbered).collect();
    for _ in 0..4 {
        client.send(&some[..]);
        client.ping();
    }
    assert!(house.counts.snapshot().overdue > 0);
}

#[test]
fn what_is_kept_of_floods_is_bounded() {
    const FLOODERS: usize = 20;
    let house = House::start(strict(), |settings| settings.listen.max_buffer = 65_536);
    let some: Vec<u8> = messages(2_000, 0).enumerate().flat_map(numbered).collect();
    let before = resident_kb();
    let mut clients = Vec::new();
    for number in 0..FLOODERS {
        let id = format!("flooder-{number}");
        house.set_rate(&id, 0.001);
        let client = house.connect(&Connect::v311(&id).keep_alive(0));
        client.stream().set_nonblocking(true).unwrap();
        clients.push(client);
    }
    // As much as it takes until nobody takes more: 16 MB each would be taken if nothing were bounded.
    let deadline = Instant::now() + PATIENCE;
    let (mut taken, mut idle) = (0, 0);
    while idle < 20 && taken < FLOODERS * 16_000_000 && Instant::now() < deadline {
        let written: usize =
            clients.iter().map(|client| (&mut client.stream()).write(&some).unwrap_or(0)).sum();
        taken += written;
        idle = if written == 0 { idle + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(u64::from(written == 0) * 10));
    }
    assert!(taken < FLOODERS * 16_000_000, "nobody was held");
    let grown = resident_kb().saturating_sub(before);
    assert!(grown < 100_000, "{grown} kB more, of {} kB that were taken", taken / 1000);
}

fn resident_kb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

#[test]
fn qos0_is_dropped_if_so_configured() {
    let config = GateConfig { qos0: Qos0::Drop, qos0_wait: Duration::from_millis(100), ..strict() };
    let house = House::start(config, |_| {});
    house.set_rate("flooder", 50.0);
    let mut consumer = house.connect(&Connect::v311("consumer"));
    consumer.subscribe("flood", 0);
    let mut flooder = house.connect(&Connect::v311("flooder"));
    let pace = Pace::start(50.0, &config);
    let some: Vec<u8> = messages(50, 0).enumerate().flat_map(numbered).collect();
    let enough = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !enough.load(Relaxed) {
                flooder.send(&some[..]);
                flooder.ping();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        for received in 1..=100 {
            consumer.receive();
            pace.check(received);
        }
        enough.store(true, Relaxed);
    });
    let deadline = Instant::now() + PATIENCE;
    while house.counts.snapshot().dropped < 1000 {
        assert!(Instant::now() < deadline, "{:?}", house.counts.snapshot());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_refusal_says_the_rate_and_the_wait() {
    let house = House::start(GateConfig { excess: Excess::Refuse, ..strict() }, |_| {});
    house.set_rate("eager", 0.5);
    let mut eager = house.connect(&Connect::v5("eager"));
    for qos in [1, 2] {
        let mut refused = None;
        for _ in 0..6 {
            let id = eager.packet_id();
            eager.send(&Publish::new("t", "x").qos(qos).id(id));
            let kind = if qos == 1 { Kind::Puback } else { Kind::Pubrec };
            refused = Some(eager.expect_ack(kind, id)).filter(|ack| ack.code >= 0x80);
        }
        let refused = refused.expect("the sixth at the latest");
        assert_eq!(refused.code, 0x97);
        let users = refused.properties.users();
        let value = |name: &str| users.iter().find(|user| user.0 == name).expect(name).1;
        assert_eq!(value("tide-rate"), "0.500");
        let wait: u64 = value("tide-wait-ms").parse().unwrap();
        // behind those that were refused before it, each an interval after the other
        assert!((1..=12 * 1_667).contains(&wait), "{wait}");
    }
    assert!(house.counts.snapshot().refused >= 2);
}

#[test]
fn who_goes_on_is_closed_if_so_configured() {
    let config = GateConfig { excess: Excess::Close, close_after: Duration::from_secs(1), ..strict() };
    let house = House::start(config, |_| {});
    for version in [V311, V5] {
        house.set_rate("stubborn", 1.0);
        let mut stubborn = house.connect(&Connect::new(version, "stubborn"));
        let mut sent = 0;
        loop {
            let publish = Publish::new("t", "x").qos(1).id(stubborn.packet_id());
            if stubborn.try_send(&publish).is_err() {
                break;
            }
            sent += 1;
            match stubborn.recv_within(PATIENCE) {
                Ok(Packet::Ack(_)) => {}
                Ok(Packet::Disconnect(disconnect)) => {
                    assert_eq!((version, disconnect.code), (V5, 0x96));
                    break;
                }
                Err(End::Closed) => break assert_eq!(version, V311),
                other => panic!("{other:?}"),
            }
        }
        assert!(sent < 20, "{sent} were sent");
    }
    assert_eq!(house.counts.snapshot().closed, 2);
}
