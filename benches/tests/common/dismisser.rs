//! A target for MQTT 5 that says why it ends connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_bench::codec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How often it used each reason code.
pub type Used = Arc<Mutex<BTreeMap<u8, u64>>>;

/// Takes all messages, and ends some connections: each of the reasons is used once, in this order, 20 messages after a
/// connection began. The last one comes without a code, which means 0.
pub async fn dismisser(reasons: &'static [u8]) -> (SocketAddr, Used) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let used = Used::default();
    let shared = used.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, reasons, shared.clone()));
        }
    });
    (address, used)
}

async fn serve(mut stream: TcpStream, reasons: &'static [u8], used: Used) {
    let (mut input, mut count) = (Vec::new(), 0);
    while matches!(stream.read_buf(&mut input).await, Ok(size) if size > 0) {
        let mut output = Vec::new();
        while let Ok(Some(packet)) = codec::packet(&input) {
            match packet.first >> 4 {
                1 => output.extend([0x20, 3, 0, 0, 0]),
                3 => {
                    count += 1;
                    let topic = usize::from(packet.body[1]);
                    output.extend([0x40, 2, packet.body[2 + topic], packet.body[3 + topic]]);
                }
                _ => {}
            }
            let size = packet.size;
            input.drain(..size);
        }
        let reason = if count >= 20 { next(reasons, &used) } else { None };
        match reason {
            Some(0) => output.extend([0xE0, 0]),
            Some(reason) => output.extend([0xE0, 7, reason, 5, 0x1F, 0, 2, b'n', b'o']),
            None => {}
        }
        if stream.write_all(&output).await.is_err() || reason.is_some() {
            // Not to close before it was read: what is unread on this side would take the farewell with it.
            let _ = stream.shutdown().await;
            while matches!(stream.read(&mut [0; 1024]).await, Ok(size) if size > 0) {}
            return;
        }
    }
}

/// The next reason that was not used.
fn next(reasons: &[u8], used: &Used) -> Option<u8> {
    let mut used = used.lock();
    let reason = *reasons.get(used.values().sum::<u64>() as usize)?;
    *used.entry(reason).or_default() += 1;
    Some(reason)
}
