//! A link that drops a fifth of the notifications.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use rumqttc::v5::mqttbytes::v5::Packet;
use tidegate_client::control::random::{Random, Seeded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Passes everything, except a fifth of the messages under `room/` that go to the client, others for each connection.
pub(crate) async fn lossy_relay(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut seeds = 3..;
        while let (Ok((near, _)), Some(seed)) = (listener.accept().await, seeds.next()) {
            let far = TcpStream::connect(target).await.unwrap();
            let (mut near_in, near_out) = near.into_split();
            let (far_in, mut far_out) = far.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut near_in, &mut far_out).await });
            tokio::spawn(drop_some(far_in, near_out, Seeded::new(seed)));
        }
    });
    address
}

async fn drop_some(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut random: Seeded,
) {
    let mut bytes = BytesMut::new();
    while let Ok(1..) = from.read_buf(&mut bytes).await {
        // Whole packets only: their length stands in one to four bytes after the first.
        while let Some(length) = packet_length(&bytes) {
            let packet = bytes.split_to(length);
            let parsed = Packet::read(&mut packet.clone(), None);
            let update =
                matches!(&parsed, Ok(Packet::Publish(publish)) if publish.topic.starts_with(b"room/"));
            if !(update && random.chance(0.2)) && to.write_all(packet.chunk()).await.is_err() {
                return;
            }
        }
    }
}

fn packet_length(bytes: &[u8]) -> Option<usize> {
    let (mut length, mut shift) = (0, 0);
    for (place, byte) in bytes.iter().enumerate().skip(1).take(4) {
        length |= usize::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            let whole = 1 + place + length;
            return (bytes.len() >= whole).then_some(whole);
        }
    }
    None
}
