//! A target that speaks just enough MQTT to take messages and forget them: what the generator can send at most.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::codec::{self, Packet, kind};

const CHUNK: usize = 256 * 1024;

/// A sink that listens.
pub struct Sink {
    /// Where.
    pub address: SocketAddr,
    /// Messages taken.
    pub taken: Arc<AtomicU64>,
    listener: TcpListener,
}

impl Sink {
    /// Listens.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { address: listener.local_addr()?, taken: Arc::default(), listener })
    }

    /// Serves clients until the listener fails.
    pub async fn run(self) -> io::Result<()> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let taken = self.taken.clone();
            tokio::spawn(async move {
                // A client that leaves is no news.
                let _ = serve(stream, &taken).await;
            });
        }
    }
}

async fn serve(mut stream: TcpStream, taken: &AtomicU64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut output) = (Vec::with_capacity(CHUNK), Vec::new());
    let mut v5 = false;
    loop {
        input.reserve(CHUNK / 2);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let (mut used, mut count) = (0, 0);
        while let Some(packet) = codec::packet(&input[used..]).map_err(io::Error::other)? {
            used += packet.size;
            count += u64::from(packet.kind() == kind::PUBLISH);
            v5 |= packet.kind() == kind::CONNECT && packet.body.get(6) == Some(&5);
            answer(&packet, v5, &mut output);
        }
        input.drain(..used);
        taken.fetch_add(count, Relaxed);
        if !output.is_empty() {
            stream.write_all(&output).await?;
            output.clear();
        }
    }
}

fn answer(packet: &Packet<'_>, v5: bool, output: &mut Vec<u8>) {
    let id = |at: usize| match packet.body.get(at..at + 2) {
        Some([high, low]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    match packet.kind() {
        kind::CONNECT if v5 => output.extend([kind::CONNACK << 4, 3, 0, 0, 0]),
        kind::CONNECT => output.extend([kind::CONNACK << 4, 2, 0, 0]),
        kind::PUBLISH if packet.first & 6 > 0 => {
            let acknowledgement = if packet.first & 6 == 2 { kind::PUBACK } else { kind::PUBREC };
            codec::put_ack(acknowledgement, id(2 + usize::from(id(0))), output);
        }
        kind::PUBREL => codec::put_ack(kind::PUBCOMP, id(0), output),
        kind::SUBSCRIBE => {
            let [high, low] = id(0).to_be_bytes();
            // One code is enough: the generator's consumers have one filter, its devices don't look.
            if v5 {
                output.extend([kind::SUBACK << 4, 4, high, low, 0, 0]);
            } else {
                output.extend([kind::SUBACK << 4, 3, high, low, 0]);
            }
        }
        kind::PINGREQ => output.extend([kind::PINGRESP << 4, 0]),
        _ => {}
    }
}
