//! A target that gives messages to everybody.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_bench::codec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

/// A target that gives every message (QoS 0) to everybody who has subscribed to anything, with a pause after
/// each.
pub async fn shouter(pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (all, _) = broadcast::channel::<Vec<u8>>(10_000);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(shout(stream, all.clone(), pause));
        }
    });
    address
}

async fn shout(mut stream: TcpStream, all: broadcast::Sender<Vec<u8>>, pause: Duration) {
    let (mut input, mut heard, mut subscribed) = (Vec::new(), all.subscribe(), false);
    loop {
        let mut output = Vec::new();
        tokio::select! {
            size = stream.read_buf(&mut input) => if !matches!(size, Ok(size) if size > 0) { return },
            Ok(message) = heard.recv() => if subscribed {
                output = message;
                tokio::time::sleep(pause).await;
            },
        }
        while let Ok(Some(packet)) = codec::packet(&input) {
            let size = packet.size;
            match packet.first >> 4 {
                1 => output.extend([0x20, 2, 0, 0]),
                3 => drop(all.send(input[..size].to_vec())),
                8 => {
                    subscribed = true;
                    output.extend([0x90, 3, packet.body[0], packet.body[1], 0]);
                }
                _ => {}
            }
            input.drain(..size);
        }
        if stream.write_all(&output).await.is_err() {
            return;
        }
    }
}
