//! What a publisher can be told before it starts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_control::time::Span;
use tokio::sync::{Notify, mpsc};

use super::driver::{Driver, Shared};
use super::outbox::{Outbox, OutboxSettings};
use super::publisher::Publisher;
use super::slots::SlotSettings;
use crate::aggregate::Policy;
use crate::clock::{Clock, randomness, span};
use crate::error::Error;
use crate::net::{Connection, Link, Qos};

/// Describes a [`Publisher`].
#[derive(Clone)]
#[must_use]
pub struct PublisherBuilder {
    connection: Connection,
    class: Option<String>,
    qos: Qos,
    retain: bool,
    outbox: OutboxSettings,
}

impl PublisherBuilder {
    pub(super) fn new(connection: Connection) -> Self {
        let slots = SlotSettings {
            policy: Arc::new(|_| Policy::Latest),
            most_topics: 1_000,
            most_bytes: 1024 * 1024,
            min_interval: Span::ZERO,
            deadband: 0.0,
        };
        let outbox = OutboxSettings {
            slots,
            own_rate: None,
            growth: 1.1,
            urgent: 100,
            urgent_bytes: 256 * 1024,
            urgent_memory: Span::from_secs(5),
            window: 16,
        };
        Self { connection, class: None, qos: Qos::default(), retain: false, outbox }
    }

    /// The class whose rate it follows. Default: none, so that the rate for everybody holds.
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// How samples are aggregated while they wait. Default: [`Policy::Latest`].
    pub fn policy(self, policy: Policy) -> Self {
        self.policy_by(move |_| policy.clone())
    }

    /// How samples are aggregated, by topic; asked when a topic is offered for the first time, or again after a long time.
    pub fn policy_by(mut self, policy: impl Fn(&str) -> Policy + Send + Sync + 'static) -> Self {
        self.outbox.slots.policy = Arc::new(policy);
        self
    }

    /// Its own rate, in messages a second over all topics, which it keeps while nobody asks for less. Default: no limit.
    pub fn rate(mut self, messages_a_second: f64) -> Self {
        self.outbox.own_rate = Some(messages_a_second);
        self
    }

    /// For senders that send when something happens: the least time between two messages of a topic. Default: none.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.outbox.slots.min_interval = span(interval);
        self
    }

    /// The least change of a value that is worth a message. Default: 0.
    ///
    /// It widens with the interval that the gateway asks for: at twice [`PublisherBuilder::min_interval`] it is twice as
    /// wide. What is within it waits, and is part of the next message.
    pub fn deadband(mut self, change: f64) -> Self {
        self.outbox.slots.deadband = change;
        self
    }

    /// What a rate that nobody confirmed is multiplied by each second after its time, until the publisher's own rate is
    /// reached. Default: 1.1.
    pub fn growth(mut self, factor: f64) -> Self {
        self.outbox.growth = factor;
        self
    }

    /// How safely samples travel. Default: at least once. Urgent messages are never sent less safely than that.
    pub fn qos(mut self, qos: Qos) -> Self {
        self.qos = qos;
        self
    }

    /// Whether the broker keeps the last message of each topic for those who subscribe later. Default: no.
    pub fn retain(mut self, retain: bool) -> Self {
        self.retain = retain;
        self
    }

    /// The bounds of the buffer for samples: topics, and bytes over all of them, those on their way included. Default: 1,000
    /// and 1 MiB.
    pub fn buffer(mut self, topics: usize, bytes: usize) -> Self {
        (self.outbox.slots.most_topics, self.outbox.slots.most_bytes) = (topics, bytes);
        self
    }

    /// The bounds of the buffer for urgent messages: messages and bytes. Default: 100 and 256 KiB.
    pub fn urgent_buffer(mut self, messages: usize, bytes: usize) -> Self {
        (self.outbox.urgent, self.outbox.urgent_bytes) = (messages, bytes);
        self
    }

    /// How long an urgent message is kept after it was acknowledged, within the bounds of [`PublisherBuilder::urgent_buffer`].
    /// Default: 5 s.
    ///
    /// A broker may be killed after it acknowledged a message and before it handed it on. When it is back without the
    /// session, the urgent messages of so long before the last sign of life are sent again, in order: subscribers may get them twice.
    /// With [`Qos::ExactlyOnce`], or zero, they are not.
    pub fn urgent_memory(mut self, time: Duration) -> Self {
        self.outbox.urgent_memory = span(time);
        self
    }

    /// How many messages may wait for their acknowledgement. Default: 16.
    pub fn window(mut self, messages: u16) -> Self {
        self.outbox.window = usize::from(messages.clamp(1, 64));
        self
    }

    /// Starts to connect and to publish, on the current tokio runtime.
    pub fn start(mut self) -> Result<Publisher, Error> {
        self.validate()?;
        if self.qos == Qos::ExactlyOnce {
            self.outbox.urgent_memory = Span::ZERO;
        }
        let topics = self.connection.topics(self.class.as_deref())?;
        let tls = self.connection.validate()?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let shared = Arc::new(Shared {
            policy: self.outbox.slots.policy.clone(),
            outbox: Mutex::new(Outbox::new(self.outbox)),
            offered: Notify::new(),
            progress: Notify::new(),
            clock: Clock::start(),
        });
        let link = Link::start(self.connection, &topics, tls);
        let status = link.status();
        let driver = Driver {
            shared: shared.clone(),
            link,
            topics,
            qos: self.qos,
            retain: self.retain,
            random: randomness(),
            requests: None,
        };
        let (close, closing) = mpsc::channel(1);
        let task = runtime.spawn(driver.run(closing));
        Ok(Publisher { shared, status, close, task })
    }

    fn validate(&self) -> Result<(), Error> {
        let check = |key, value: f64, wanted, good: bool| {
            if good { Ok(()) } else { Err(Error::Setting { key, value: value.to_string(), wanted }) }
        };
        let OutboxSettings { own_rate, growth, ref slots, .. } = self.outbox;
        if let Some(rate) = own_rate {
            check("rate", rate, "a finite number above 0", rate.is_finite() && rate > 0.0)?;
        }
        check("growth", growth, "above 1 and at most 10", growth > 1.0 && growth <= 10.0)?;
        let band = slots.deadband;
        check("deadband", band, "a finite number of at least 0", band.is_finite() && band >= 0.0)?;
        check("buffer.topics", slots.most_topics as f64, "at least 1", slots.most_topics > 0)
    }
}

impl std::fmt::Debug for PublisherBuilder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PublisherBuilder")
            .field("connection", &self.connection)
            .field("class", &self.class)
            .field("rate", &self.outbox.own_rate)
            .finish_non_exhaustive()
    }
}
