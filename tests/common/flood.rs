//! Publishing many messages with a window, as a busy client does.

use super::client::Client;
use super::decode::Packet;
use super::packet::{Kind, Publish};

/// Publishes everything, with at most `window` messages of QoS 1 unacknowledged, and returns when all are
/// acknowledged. `acknowledged` is told how many are, each time that changes.
pub fn flood(
    client: &mut Client,
    messages: impl IntoIterator<Item = Publish>,
    window: usize,
    mut acknowledged: impl FnMut(usize),
) {
    let (mut sent, mut done) = (0, 0);
    for publish in messages {
        while sent - done >= window {
            done += acknowledgement(client);
            acknowledged(done);
        }
        let publish = if publish.qos == 0 { publish } else { publish.id(client.packet_id()) };
        client.send(&publish);
        sent += usize::from(publish.qos > 0);
    }
    while done < sent {
        done += acknowledgement(client);
        acknowledged(done);
    }
}

fn acknowledgement(client: &mut Client) -> usize {
    match client.recv() {
        Packet::Ack(ack) if ack.kind == Kind::Puback => {
            assert!(ack.code < 0x80, "refused: {ack:?}");
            1
        }
        other => panic!("expected PUBACK, got {other:?}"),
    }
}
