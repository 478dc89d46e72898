//! `$SYS/broker/...`: what a server tells of itself.

use crate::client;
use crate::common::packet::*;

both_versions!(version_and_uptime_are_retained, sys_cannot_be_written);

/// Section 4.7.2: the version and the time since the start are there at once.
fn version_and_uptime_are_retained(version: Version) {
    let mut client = client(version);
    for topic in ["$SYS/broker/version", "$SYS/broker/uptime"] {
        client.subscribe(topic, 0);
        let publish = client.receive();
        assert_eq!(publish.topic, topic);
        assert!(publish.retain && !publish.payload.is_empty(), "{publish:?}");
    }
}

/// Section 4.7.2: what clients publish there changes nothing. 3.1.1 may close or ignore, 5.0 may say 0x87.
fn sys_cannot_be_written(version: Version) {
    let mut liar = client(version);
    let _ = liar.try_send(&Publish::new("$SYS/broker/version", "a lie").qos(1).id(1).retain());
    let _ = liar.recv_within(crate::common::PATIENCE);
    let mut client = client(version);
    client.subscribe("$SYS/broker/version", 0);
    assert_ne!(client.receive().text(), "a lie");
}
