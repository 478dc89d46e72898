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
    /// When clients sent messages, if what came at once began with one.
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
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        // The first byte of a PUBLISH.
        if let Some(sent) = sent.as_ref().filter(|_| buffer[0] >> 4 == 3) {
            sent.lock().push(Instant::now());
        }
        if cable.wait_for(|now| *now != Cable::Out).await.is_err()
            || to.write_all(&buffer[..length]).await.is_err()
        {
            return;
        }
    }
}
