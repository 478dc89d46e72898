//! The Will Delay Interval of MQTT 5.

use crate::common::client::Client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

fn watcher() -> (Client, String) {
    let (mut watcher, topic) = (client(V5), unique("late/"));
    watcher.subscribe(&topic, 1);
    (watcher, topic)
}

fn delayed(topic: &str, text: &str, seconds: u32) -> Will {
    Will::new(topic, text).qos(1).with(int(WILL_DELAY, seconds))
}

fn mortal(will: Will) -> Connect {
    Connect::persistent(V5, &unique("mortal")).will(will)
}

/// [MQTT-3.1.2-8] The will comes after its delay: one with a longer delay that broke earlier comes later.
#[test]
fn published_after_the_delay() {
    let (mut watcher, topic) = watcher();
    server().connect(&mortal(delayed(&topic, "3 s", 3))).vanish();
    server().connect(&mortal(delayed(&topic, "1 s", 1))).vanish();
    server().connect(&mortal(delayed(&topic, "0 s", 0))).vanish();
    assert_eq!(watcher.receive_texts(3), ["0 s", "1 s", "3 s"]);
}

/// [MQTT-3.1.3-9] A new connection to the session in time: no will.
#[test]
fn cancelled_by_reconnect() {
    let (mut watcher, topic) = watcher();
    let connect = mortal(delayed(&topic, "must not come", 2));
    server().connect(&connect).vanish();
    let back = server().connect(&Connect { will: None, ..connect });
    assert!(back.connack.session_present);
    // A will of the same delay that broke later comes when the first one would have been overdue.
    server().connect(&mortal(delayed(&topic, "later", 2))).vanish();
    assert_eq!(watcher.receive().text(), "later");
}

/// [MQTT-3.1.3-9] A take-over that takes up the session is such a connection.
#[test]
fn cancelled_by_take_over() {
    let (mut watcher, topic) = watcher();
    let connect = mortal(delayed(&topic, "must not come", 1));
    let mut old = server().connect(&connect);
    let _new = server().connect(&Connect { will: None, ..connect });
    old.expect_end();
    server().connect(&mortal(delayed(&topic, "later", 1))).vanish();
    assert_eq!(watcher.receive().text(), "later");
}

/// [MQTT-3.1.2-8] The session ends before the delay: the will comes at once. Mosquitto does not publish
/// it.
#[test]
fn published_when_the_session_ends() {
    let (mut watcher, topic) = watcher();
    let connect = Connect::v5(&unique("brief")).will(delayed(&topic, "no session", 600));
    server().connect(&connect).vanish();
    assert_eq!(watcher.receive().text(), "no session");
}

/// [MQTT-3.1.2-8] The same when the session expires meanwhile.
#[test]
fn published_when_the_session_expires() {
    let (mut watcher, topic) = watcher();
    let connect = Connect::v5(&unique("brief")).with(int(SESSION_EXPIRY, 1));
    server().connect(&connect.will(delayed(&topic, "expired", 600))).vanish();
    assert_eq!(watcher.receive().text(), "expired");
}

/// [MQTT-3.1.2-8], [MQTT-3.1.2-4] The same when a clean start ends the session. Mosquitto drops the will.
#[test]
fn published_when_clean_start_ends_the_session() {
    let (mut watcher, topic) = watcher();
    let connect = mortal(delayed(&topic, "cleaned", 600));
    server().connect(&connect).vanish();
    let _new = server().connect(&Connect { will: None, clean: true, ..connect });
    assert_eq!(watcher.receive().text(), "cleaned");
}

/// [MQTT-3.1.2-10] A delayed will does not survive a proper DISCONNECT of the next connection.
#[test]
fn discarded_by_disconnect() {
    let (mut watcher, topic) = watcher();
    server().connect(&mortal(delayed(&topic, "must not come", 1))).disconnect();
    server().connect(&mortal(delayed(&topic, "later", 1))).vanish();
    assert_eq!(watcher.receive().text(), "later");
}
