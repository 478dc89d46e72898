//! Drives an outbox with a clock, randomness and a connection.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::random::Seeded;
use tidegate_control::time::Moment;
use tokio::sync::{Notify, mpsc, oneshot};

use super::outbox::{Outbox, Step};
use super::rate::Source;
use crate::clock::Clock;
use crate::net::{Event, Incoming, Link, Qos, Requests, Up, Wanted};
use crate::protocol::Topics;

/// What publisher and driver share.
pub(super) struct Shared {
    pub(super) outbox: Mutex<Outbox>,
    /// Something was offered.
    pub(super) offered: Notify,
    /// Something was answered.
    pub(super) progress: Notify,
    pub(super) clock: Clock,
}

/// The task behind a publisher.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Link,
    pub(super) topics: Topics,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) random: Seeded,
    /// What to ask on the connection; none while there is none.
    pub(super) requests: Option<Requests>,
}

impl Driver {
    /// Runs until it is told to close.
    pub(super) async fn run(mut self, mut close: mpsc::Receiver<oneshot::Sender<()>>) {
        loop {
            let wake = self.send_all();
            tokio::select! {
                event = self.link.next() => match event {
                    Some(event) => self.on_event(event),
                    None => return,
                },
                () = self.shared.offered.notified() => {}
                () = self.shared.clock.sleep_until(wake) => {}
                done = close.recv() => {
                    self.say_goodbye().await;
                    if let Some(done) = done {
                        let _ = done.send(());
                    }
                    return;
                }
            }
        }
    }

    /// Sends what may go now; when to look again.
    fn send_all(&mut self) -> Option<Moment> {
        loop {
            let now = self.shared.clock.now();
            let step = self.shared.outbox.lock().step(now, &mut self.random);
            match step {
                Step::Send(message) => {
                    let qos = if message.urgent && self.qos == Qos::AtMostOnce {
                        Qos::AtLeastOnce
                    } else {
                        self.qos
                    };
                    let retain = self.retain && !message.urgent;
                    let requests = self.requests.as_ref();
                    if !requests.is_some_and(|to| to.publish(&message.topic, message.payload, qos, retain)) {
                        // The connection is going: it will say so, and what was handed over goes back.
                        self.requests = None;
                        self.shared.outbox.lock().disconnected();
                        return None;
                    }
                }
                Step::Wait(Some(moment)) if moment <= now => {}
                Step::Wait(wake) => return wake,
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = self.shared.clock.now();
        match event {
            Event::Up(up) => self.on_up(up),
            Event::Down => {
                self.requests = None;
                self.shared.outbox.lock().disconnected();
            }
            Event::Sent(id) => self.shared.outbox.lock().sent(id, now),
            Event::Answered { id, outcome, hints } => {
                self.shared.outbox.lock().answered(id, outcome, &hints, now, &mut self.random);
            }
            Event::Message(message) => self.on_message(&message, now),
            // Without the rate topics there are still the acknowledgements.
            Event::Subscribed { refused: 0 } => {}
            Event::Subscribed { refused } => tracing::warn!(refused, "rate topics refused"),
        }
        self.shared.progress.notify_waiters();
    }

    fn on_up(&mut self, up: Up) {
        let Topics { rate, class, client, moved, .. } = &self.topics;
        let filters = [Some(rate), class.as_ref(), Some(client), Some(moved)];
        // Wanted again each time: the rate may have changed meanwhile.
        let wanted =
            |filter: &String| Wanted { filter: filter.clone(), qos: Qos::AtLeastOnce, retained_again: true };
        up.requests.subscribe(&filters.into_iter().flatten().map(wanted).collect::<Vec<_>>());
        self.requests = Some(up.requests);
        self.shared.outbox.lock().connected(up.receive_maximum, up.max_packet, up.resumed);
    }

    fn on_message(&mut self, message: &Incoming, now: Moment) {
        if let (Some(receipt), Some(requests)) = (message.receipt, &self.requests) {
            requests.acknowledge(receipt);
        }
        let Topics { rate, class, client, .. } = &self.topics;
        let source = match &message.topic {
            topic if topic == client => Source::Client,
            topic if class.as_ref() == Some(topic) => Source::Class,
            topic if topic == rate => Source::Everybody,
            _ => return,
        };
        self.shared.outbox.lock().announced(source, &message.payload, now);
    }

    async fn say_goodbye(&mut self) {
        let Some(requests) = self.requests.take() else { return };
        requests.disconnect();
        let gone = async { while !matches!(self.link.next().await, None | Some(Event::Down)) {} };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(2), gone).await;
    }
}
