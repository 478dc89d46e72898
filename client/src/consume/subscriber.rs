//! The subscriber that applications hold.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::builder::SubscriberBuilder;
use super::driver::{Queued, Shared};
use super::stats::SubscriberStats;
use crate::net::{Connection, Status};

/// How an update got here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Via {
    /// It came by itself.
    Passive,
    /// It was missing, and a check brought it.
    Active,
}

/// One update of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Bytes,
    /// Its number within its topic, if the gateway says it.
    pub seq: Option<u64>,
    /// How it got here.
    pub via: Via,
    /// How many updates of this topic before it are lost for good.
    pub lost_before: u64,
    /// Whether it is what the broker kept from before the subscription.
    pub retained: bool,
}

impl Update {
    /// The bytes that it takes while it waits, about.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.topic.len() + self.payload.len()
    }
}

/// Receives updates as they come and asks for those that went missing.
///
/// Updates come in the order of their topic, each once. It is also a [`Stream`]. An update is acknowledged when the
/// program takes it, so that a program that can't keep up is seen by the gateway, and publishers are told.
#[derive(Debug)]
#[must_use = "a subscriber that is dropped is disconnected"]
pub struct Subscriber {
    pub(super) shared: Arc<Shared>,
    pub(super) status: Arc<Mutex<Status>>,
    pub(super) updates: mpsc::UnboundedReceiver<Queued>,
    pub(super) taken: mpsc::UnboundedSender<u64>,
    pub(super) close: mpsc::Sender<oneshot::Sender<()>>,
    pub(super) task: JoinHandle<()>,
}

impl Subscriber {
    /// Starts to describe a subscriber.
    pub fn builder(connection: Connection) -> SubscriberBuilder {
        SubscriberBuilder::new(connection)
    }

    /// The next update; none only when the runtime is going. Nothing is lost when it is dropped while waiting.
    pub async fn next(&mut self) -> Option<Update> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// What it saw, and how it asks.
    pub fn stats(&self) -> SubscriberStats {
        *self.shared.stats.lock()
    }

    /// Whether it is connected now.
    pub fn is_connected(&self) -> bool {
        self.status.lock().connected
    }

    /// Why the last connection ended, or could not be made; for people, not for programs.
    pub fn last_error(&self) -> Option<String> {
        self.status.lock().error.clone()
    }

    /// Says goodbye to the broker.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        if self.close.send(done).await.is_ok() {
            let _ = closed.await;
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Update>> {
        let queued = std::task::ready!(self.updates.poll_recv(context));
        Poll::Ready(queued.map(|Queued { update, token }| {
            self.shared.take(update.size());
            if let Some(token) = token {
                // Fails only when the driver is gone, and the connection with it.
                let _ = self.taken.send(token);
            }
            update
        }))
    }
}

impl Stream for Subscriber {
    type Item = Update;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Update>> {
        self.get_mut().poll(context)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}
