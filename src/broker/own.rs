//! Messages of the gateway itself on their way into the spine: wills, `$SYS`, those of plugins.
//!
//! Those who publish them cannot wait, so they wait here, and there is a bound: when much waits, `$SYS` is left out, so are
//! messages of plugins, counted, and a client with a will is let in later. So no more than [`ENOUGH`], one message of
//! each who publishes just then, and one will for each client wait. What is here is not lost.

use std::future::poll_fn;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use super::Broker;

/// Bytes that may wait before clients with wills do.
pub(super) const ENOUGH: usize = 4 * 1024 * 1024;

/// What waits, and its way in.
pub struct Own {
    sender: mpsc::UnboundedSender<(u64, Bytes)>,
    bytes: AtomicUsize,
    room: Notify,
}

/// Its way out.
pub type Messages = mpsc::UnboundedReceiver<(u64, Bytes)>;

impl Own {
    /// Nothing waits.
    pub fn new() -> (Self, Messages) {
        let (sender, messages) = mpsc::unbounded_channel();
        (Self { sender, bytes: AtomicUsize::new(0), room: Notify::new() }, messages)
    }

    /// Adds a batch of this publisher.
    pub fn send(&self, publisher: u64, batch: Bytes) {
        self.bytes.fetch_add(batch.len(), Ordering::AcqRel);
        // the receiver lives as long as the broker
        let _ = self.sender.send((publisher, batch));
    }

    /// Whether much waits.
    pub fn crowded(&self) -> bool {
        self.bytes.load(Ordering::Acquire) > ENOUGH
    }

    /// Returns when not much waits.
    pub async fn room(&self) {
        loop {
            // made before the look, so that no notice is missed
            let notice = self.room.notified();
            if !self.crowded() {
                return;
            }
            notice.await;
        }
    }

    fn done(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if !self.crowded() {
            self.room.notify_waiters();
        }
    }
}

/// Gives everything to the spine, in order, until the broker is dropped.
pub async fn run(broker: Weak<Broker>, mut messages: Messages) {
    while let Some((publisher, batch)) = messages.recv().await {
        let Some(broker) = broker.upgrade() else { return };
        let bytes = batch.len();
        let mut batch = Some(batch);
        poll_fn(|cx| match batch.take().map(|batch| broker.spine.offer(publisher, batch, cx.waker())) {
            Some(Err(full)) => {
                batch = Some(full);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
        broker.own.done(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn there_is_room_again_when_enough_has_left() {
        let (own, _messages) = Own::new();
        own.send(1, Bytes::from(vec![0; ENOUGH]));
        assert!(!own.crowded());
        own.send(1, Bytes::from_static(b"one more"));
        let mut room = pin!(own.room());
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(room.as_mut().poll(&mut cx), Poll::Pending);
        own.done(8);
        assert_eq!(room.as_mut().poll(&mut cx), Poll::Ready(()));
    }
}
