//! The publisher that applications hold.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::builder::PublisherBuilder;
use super::counters::PublisherStats;
use super::driver::Shared;
use crate::clock::duration;
use crate::net::{Connection, Status};
use crate::sample::Sample;

/// The buffer of urgent messages has no room for this one, or its topic is no topic name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the buffer of urgent messages is full, or the topic is no topic name")]
#[non_exhaustive]
pub struct UrgentFull;

/// Publishes samples at the rate that the gateway allows, and aggregates them while it is held back.
///
/// It connects in the background and for as long as it lives. Dropping it drops the connection without a word;
/// [`Publisher::close`] says goodbye.
#[derive(Debug)]
#[must_use = "a publisher that is dropped is disconnected"]
pub struct Publisher {
    pub(super) shared: Arc<Shared>,
    pub(super) status: Arc<Mutex<Status>>,
    pub(super) close: mpsc::Sender<oneshot::Sender<()>>,
    pub(super) task: JoinHandle<()>,
}

impl Publisher {
    /// Starts to describe a publisher.
    pub fn builder(connection: Connection) -> PublisherBuilder {
        PublisherBuilder::new(connection)
    }

    /// Offers a sample, to be sent when the rate allows it. Never waits, connected or not.
    ///
    /// False when it could not be taken at all; [`Publisher::stats`] counts that, and what became of every other one.
    pub fn offer(&self, topic: &str, sample: impl Into<Sample>) -> bool {
        let taken = self.shared.offer(topic, sample.into());
        self.shared.offered.notify_one();
        taken
    }

    /// Offers an alarm: it goes before all samples, in order, and is kept until it is acknowledged. Never waits.
    pub fn offer_urgent(&self, topic: &str, payload: impl Into<Bytes>) -> Result<(), UrgentFull> {
        let taken = self.shared.outbox.lock().offer_urgent(topic, payload.into());
        self.shared.offered.notify_one();
        taken
    }

    /// The messages a second that may be sent now; none for no limit.
    pub fn rate(&self) -> Option<f64> {
        self.shared.outbox.lock().limit(self.shared.clock.now()).rate
    }

    /// The time between two messages now: a sensor that reads less often saves power, and loses nothing.
    pub fn interval(&self) -> Duration {
        self.rate().map_or(Duration::ZERO, |rate| duration(tidegate_control::time::Span::from_rate(rate)))
    }

    /// Whether the gateway holds this publisher below its own rate now.
    pub fn is_held_back(&self) -> bool {
        self.shared.outbox.lock().limit(self.shared.clock.now()).held
    }

    /// What became of everything that was offered.
    pub fn stats(&self) -> PublisherStats {
        self.shared.outbox.lock().stats()
    }

    /// Whether it is connected now.
    pub fn is_connected(&self) -> bool {
        self.status.lock().connected
    }

    /// Why the last connection ended, or could not be made; for people, not for programs.
    pub fn last_error(&self) -> Option<String> {
        self.status.lock().error.clone()
    }

    /// Bytes of samples in its buffers.
    pub fn buffered_bytes(&self) -> usize {
        self.shared.outbox.lock().bytes()
    }

    /// Waits until everything that was offered is delivered, or came to another end that [`Publisher::stats`] counts.
    /// What is within the deadband is not waited for.
    ///
    /// That takes as long as the rate says, and for ever without a connection: combine it with a timeout. It ends, too, when
    /// nothing can be delivered any more because the runtime is going.
    pub async fn delivered(&self) {
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            // From here on no progress is missed.
            progress.as_mut().enable();
            if self.shared.outbox.lock().is_settled(self.shared.clock.now()) {
                return;
            }
            tokio::select! {
                () = progress => {}
                () = self.close.closed() => return,
            }
        }
    }

    /// Says goodbye to the broker. What was not delivered is lost: see [`Publisher::delivered`].
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        if self.close.send(done).await.is_ok() {
            let _ = closed.await;
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared").field("stats", &self.outbox.lock().stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Nobody is left who could deliver anything.
    #[tokio::test]
    async fn whoever_waits_for_delivery_is_told_when_there_will_be_none() {
        let connection = Connection::new("mqtt://localhost:1", "c").unwrap();
        let publisher = Publisher::builder(connection).start().unwrap();
        assert!(publisher.offer("t", 1) && !publisher.is_connected());
        publisher.task.abort();
        tokio::time::timeout(Duration::from_secs(60), publisher.delivered()).await.unwrap();
    }
}
