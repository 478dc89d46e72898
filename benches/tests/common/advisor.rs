//! A target that tells devices their rate.

use std::net::SocketAddr;

use tidegate_bench::codec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How a target tells the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// On this topic after somebody has subscribed.
    Topic(&'static str),
    /// With the first PUBACK (MQTT 5).
    Ack,
}

/// A target for MQTT 5 that takes all messages and announces a rate.
pub async fn advisor(way: Way, rate: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, way, rate));
        }
    });
    address
}

async fn serve(mut stream: TcpStream, way: Way, rate: &'static str) {
    let (mut input, mut told) = (Vec::new(), false);
    while matches!(stream.read_buf(&mut input).await, Ok(size) if size > 0) {
        let mut output = Vec::new();
        while let Ok(Some(packet)) = codec::packet(&input) {
            match packet.first >> 4 {
                1 => output.extend([0x20, 3, 0, 0, 0]),
                3 => {
                    let topic = usize::from(packet.body[1]);
                    let mut body = packet.body[2 + topic..4 + topic].to_vec();
                    if way == Way::Ack && !told {
                        told = true;
                        body.extend([0, (5 + 9 + rate.len()) as u8, 0x26]);
                        codec::put_text("tide-rate", &mut body);
                        codec::put_text(rate, &mut body);
                    }
                    codec::put_packet(0x40, &body, &mut output);
                }
                8 => {
                    output.extend([0x90, 4, packet.body[0], packet.body[1], 0, 0]);
                    if let Way::Topic(topic) = way {
                        let mut body = Vec::new();
                        codec::put_text(topic, &mut body);
                        body.push(0);
                        let text =
                            format!(r#"{{"v":1,"seq":1,"phase":"protect","rate":{rate},"ttl_ms":60000}}"#);
                        body.extend(text.as_bytes());
                        codec::put_packet(0x31, &body, &mut output);
                    }
                }
                _ => {}
            }
            let size = packet.size;
            input.drain(..size);
        }
        if stream.write_all(&output).await.is_err() {
            return;
        }
    }
}
