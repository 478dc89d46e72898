//! A relay between client and broker: counts who connects, and can be pulled like a cable.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the cable does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cable {
    /// Carries bytes.
    In,
    /// Carries nothing, and nobody is told: new connections hang, old ones too.
    Out,
    /// All connections are closed, and new ones at once.
    Cut,
}

/// The relay; it ends when this value goes.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    /// When each connection was accepted while the cable was in.
    pub(crate) accepted: Arc<Mutex<Vec<Instant>>>,
    /// When clients sent messages.
    #[allow(dead_code, reason = "read by the example must_show")]
    pub(crate) sent: Arc<Mutex<Vec<Instant>>>,
    cable: watch::Sender<Cable>,
    task: JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cable, seen) = watch::channel(Cable::In);
        let accepted = Arc::new(Mutex::new(Vec::new()));
        let (times, sent) = (accepted.clone(), Arc::new(Mutex::new(Vec::new())));
        let messages = sent.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if *seen.borrow() == Cable::In {
                    times.lock().push(Instant::now());
                }
                tokio::spawn(carry(stream, target, seen.clone(), messages.clone()));
            }
        });
        Self { address, accepted, sent, cable, task }
    }

    pub(crate) fn set(&self, cable: Cable) {
        self.cable.send_replace(cable);
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    near: TcpStream,
    target: SocketAddr,
    mut cable: watch::Receiver<Cable>,
    sent: Arc<Mutex<Vec<Instant>>>,
) {
    // A connection that was made through a cable that is out stays dead, as its packets went nowhere.
    let at_first = *cable.borrow();
    if at_first == Cable::Cut {
        return;
    }
    let Ok(far) = TcpStream::connect(target).await else { return };
    let (mut near_in, mut near_out) = near.into_split();
    let (mut far_in, mut far_out) = far.into_split();
    let (there, back) = (cable.clone(), cable.clone());
    let cut = async move { while cable.wait_for(|now| *now == Cable::Cut).await.is_err() {} };
    tokio::select! {
        () = copy(&mut near_in, &mut far_out, there, Some(sent)) => {}
        () = copy(&mut far_in, &mut near_out, back, None) => {}
        () = cut => {}
    }
}

async fn copy(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut cable: watch::Receiver<Cable>,
    sent: Option<Arc<Mutex<Vec<Instant>>>>,
) {
    let (mut buffer, mut packets) = (vec![0; 16 * 1024], Packets::default());
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if let Some(sent) = &sent {
            let messages = packets.messages(&buffer[..length]);
            sent.lock().extend(std::iter::repeat_n(Instant::now(), messages));
        }
        if cable.wait_for(|now| *now != Cable::Out).await.is_err()
            || to.write_all(&buffer[..length]).await.is_err()
        {
            return;
        }
    }
}

/// Where packets begin in a stream of bytes, however they are cut.
#[derive(Default)]
struct Packets {
    /// Bytes of the length of the packet that were read, and the length so far; none before its first byte.
    header: Option<(u32, usize)>,
    /// Bytes of the packet that are still to come.
    rest: usize,
}

impl Packets {
    /// How many messages begin in these bytes.
    fn messages(&mut self, mut bytes: &[u8]) -> usize {
        let mut messages = 0;
        while let [first, rest @ ..] = bytes {
            match self.header {
                _ if self.rest > 0 => {
                    let passed = self.rest.min(bytes.len());
                    self.rest -= passed;
                    bytes = &bytes[passed..];
                    continue;
                }
                None => {
                    messages += usize::from(first >> 4 == 3);
                    self.header = Some((0, 0));
                }
                Some((count, length)) => {
                    let length = length | usize::from(first & 0x7f) << (7 * count);
                    let whole = first & 0x80 == 0;
                    (self.header, self.rest) =
                        if whole { (None, length) } else { (Some((count + 1, length)), 0) };
                }
            }
            bytes = rest;
        }
        messages
    }
}

#[test]
fn messages_are_counted_however_they_are_cut() {
    let publish = |length: u8| [&[0x32, length][..], &vec![0x32; length.into()]].concat();
    let long = [&[0x30, 0xc8, 0x01][..], &[0x30; 200]].concat();
    let stream =
        [publish(9), vec![0xc0, 0], publish(5), long, vec![0x40, 2, 0x30, 0x30], publish(0)].concat();
    assert_eq!(Packets::default().messages(&stream), 4);
    for size in 1..stream.len() {
        let mut packets = Packets::default();
        assert_eq!(stream.chunks(size).map(|some| packets.messages(some)).sum::<usize>(), 4, "{size}");
    }
}
