//! Drives an outbox with a clock, randomness and a connection.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::random::Seeded;
use tidegate_control::time::Moment;
use tokio::sync::{Notify, mpsc, oneshot};

use super::outbox::{Offer, Outbox, Step};
use super::rate::Source;
use super::slots::PolicyOf;
use crate::clock::Clock;
use crate::net::{Event, Incoming, Link, Qos, Requests, Up, Wanted};
use crate::protocol::Topics;
use crate::sample::Sample;

/// What publisher and driver share.
pub(super) struct Shared {
    pub(super) outbox: Mutex<Outbox>,
    /// Something was offered.
    pub(super) offered: Notify,
    /// Something was answered.
    pub(super) progress: Notify,
    pub(super) clock: Clock,
    pub(super) policy: Arc<PolicyOf>,
}

impl Shared {
    /// Offers a sample; whether it was taken. What is the user's runs while nothing is locked.
    pub(super) fn offer(&self, topic: &str, sample: Sample) -> bool {
        let mut offer = self.outbox.lock().offer(topic, sample);
        loop {
            offer = match offer {
                Offer::Done(taken) => return taken,
                Offer::Make(sample) => {
                    let aggregate = (self.policy)(topic).make();
                    self.outbox.lock().made(topic, aggregate, sample)
                }
                Offer::Work(job) => {
                    let finished = job.run();
                    let taken = finished.is_taken();
                    let (_, panic) = self.outbox.lock().finish(finished, self.clock.now());
                    match panic {
                        None => Offer::Done(taken),
                        Some(panic) => std::panic::resume_unwind(panic),
                    }
                }
            }
        }
    }
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
        let wake = self.send_some();
        // Something may have gone without being sent: it was replaced, or the broker would never take it.
        self.shared.progress.notify_waiters();
        wake
    }

    fn send_some(&mut self) -> Option<Moment> {
        loop {
            let now = self.shared.clock.now();
            let step = self.shared.outbox.lock().step(now, &mut self.random);
            match self.work(step, now) {
                Step::Send(message) => {
                    let qos = if message.urgent && self.qos == Qos::AtMostOnce {
                        Qos::AtLeastOnce
                    } else {
                        self.qos
                    };
                    let retain = self.retain && !message.urgent;
                    let requests = self.requests.as_ref();
                    if !requests.is_some_and(|to| to.publish(&message.topic, message.payload, qos, retain)) {
                        // The connection is going, and will say so. What was handed over before may still be sent.
                        self.shared.outbox.lock().not_taken();
                        return None;
                    }
                }
                Step::Work(_) => {}
                Step::Wait(Some(moment)) if moment <= now => {}
                Step::Wait(wake) => return wake,
            }
        }
    }

    /// Does the work of a step, if it is that, without the lock; what to do next.
    fn work(&self, step: Step, now: Moment) -> Step {
        let Step::Work(job) = step else { return step };
        let finished = job.run();
        let (next, panic) = self.shared.outbox.lock().finish(finished, now);
        if panic.is_some() {
            tracing::error!("an aggregate panicked: its samples are counted as dropped");
        }
        next
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
    }

    fn on_up(&mut self, up: Up) {
        let Topics { rate, class, client, moved, .. } = &self.topics;
        let rates = [Some(rate), class.as_ref(), Some(client)].into_iter().flatten();
        // Wanted again each time: the rate may have changed meanwhile.
        let wanted = |filter: &String, qos| Wanted { filter: filter.clone(), qos, retained_again: true };
        // Whoever follows an order to move is gone before it can acknowledge it.
        let moved = wanted(moved, Qos::AtMostOnce);
        let rates = rates.map(|filter| wanted(filter, Qos::AtLeastOnce));
        up.requests.subscribe(&rates.chain([moved]).collect::<Vec<_>>());
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
