//! What a subscriber can be told before it starts.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::active::{Bounds, CheckTimer, SelfTuningConfig, Strategy};
use tidegate_control::backoff::BackoffConfig;
use tidegate_control::pacing::Bucket;
use tidegate_control::time::Span;
use tidegate_control::topic;
use tokio::sync::mpsc;

use super::checks::{AnyStrategy, Checks};
use super::driver::{Driver, Parts, Shared};
use super::receipts::Receipts;
use super::round::is_shared;
use super::subscriber::Subscriber;
use super::tracker::{Tracker, TrackerSettings};
use crate::clock::{Clock, span};
use crate::error::Error;
use crate::net::{Connection, Link, Qos, RECEIVE_MAXIMUM, Version};

/// How long a subscriber that never asks waits for an update that was overtaken.
const OVERTAKEN: Duration = Duration::from_secs(1);

/// Describes a [`Subscriber`].
#[must_use]
pub struct SubscriberBuilder {
    connection: Connection,
    filters: Vec<(String, Qos)>,
    /// None for no active checks.
    checks: Option<Result<AnyStrategy, Error>>,
    backoff: BackoffConfig,
    most_checks: f64,
    patience: Duration,
    hold: Duration,
    most_topics: usize,
    buffer: usize,
    buffer_bytes: usize,
    answer: usize,
}

impl SubscriberBuilder {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            filters: Vec::new(),
            checks: Some(default_strategy()),
            backoff: BackoffConfig::default(),
            most_checks: 0.4,
            patience: Duration::from_secs(5),
            hold: Duration::from_secs(10),
            most_topics: 10_000,
            buffer: 1_024,
            buffer_bytes: 16 * 1024 * 1024,
            answer: 100,
        }
    }

    /// Subscribes to a filter, at least once. A shared one (`$share/group/filter`) works too: its updates are handed on as
    /// they come, and are not asked for, since others in the group get what this one does not.
    pub fn filter(self, filter: impl Into<String>) -> Self {
        self.filter_with(filter, Qos::AtLeastOnce)
    }

    /// Subscribes to a filter with this quality of service.
    pub fn filter_with(mut self, filter: impl Into<String>, qos: Qos) -> Self {
        self.filters.push((filter.into(), qos));
        self
    }

    /// Waits between two checks as this strategy says. Default: self-tuning, from 2.5 s to a minute.
    ///
    /// Strategies and their settings are in [`control::active`](crate::control::active).
    pub fn strategy(mut self, strategy: impl Strategy + Send + 'static) -> Self {
        self.checks = Some(Ok(Box::new(strategy)));
        self
    }

    /// Never asks for what is missing: only what comes by itself, and an update waits for a second at most for one
    /// before it.
    pub fn passive_only(mut self) -> Self {
        self.checks = None;
        self
    }

    /// What counts as congestion, where the first backoff value comes from, and its bounds.
    pub fn backoff(mut self, backoff: BackoffConfig) -> Self {
        self.backoff = backoff;
        self
    }

    /// Checks a second at most, those out of turn included. Default: 0.4.
    pub fn most_checks(mut self, a_second: f64) -> Self {
        self.most_checks = a_second;
        self
    }

    /// How long an answer may take before it counts as silence. Default: 5 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long an update waits for a missing one before it. Default: 10 s; zero hands on at once what comes.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// Topics that are kept track of, with names of 256 bytes on average; what comes under others is handed on as it comes.
    /// Default: 10,000.
    pub fn most_topics(mut self, topics: usize) -> Self {
        self.most_topics = topics;
        self
    }

    /// Updates that wait for the program; when there are more, the newest are lost and counted. Default: 1,024.
    ///
    /// What came with QoS 1 or 2 is not lost, as far as [`SubscriberBuilder::buffer_bytes`] goes: it is acknowledged when the program takes it, so that the
    /// broker's window is its bound. With MQTT 5 that is 64 messages, with 3.1.1 the broker chooses it.
    pub fn buffer(mut self, updates: usize) -> Self {
        self.buffer = updates;
        self
    }

    /// Bytes of updates that wait for the program, their topics and what it takes to keep them included, and as many again that wait for a missing one before them. Default: 16 MiB.
    /// An update that is longer than this alone is lost, and counted.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Updates that one answer may bring. Default: 100.
    pub fn answer_limit(mut self, updates: usize) -> Self {
        self.answer = updates;
        self
    }

    /// Starts to connect and to subscribe, on the current tokio runtime.
    pub fn start(self) -> Result<Subscriber, Error> {
        let topics = self.connection.topics(None)?;
        let tls = self.connection.validate()?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        self.validate()?;
        let clock = Clock::start();
        let own = self.filters.iter().any(|(filter, _)| !is_shared(filter));
        let checks = self.checks.filter(|_| own);
        // Nobody will fetch what is missing: all that can come is what was overtaken.
        let hold = if checks.is_some() { self.hold } else { self.hold.min(OVERTAKEN) };
        let hold = span(hold);
        let tracker = TrackerSettings {
            most_topics: self.most_topics,
            most_held: self.buffer,
            most_held_bytes: self.buffer_bytes,
            patience: hold,
        };
        let checks = match checks {
            None => None,
            Some(strategy) => {
                let timer = CheckTimer::new(strategy?, self.backoff.build()?);
                // Two at once: one out of turn may come right after a regular one.
                let limiter = Bucket::new(clock.now(), self.most_checks, 2.0)?;
                Some(Checks::new(span(self.patience), timer, limiter))
            }
        };
        let shared = Arc::new(Shared::default());
        let (sender, updates) = mpsc::unbounded_channel();
        // What the other side may send again, because it did not hear that it arrived: MQTT 5 says how much that is.
        let window = match self.connection.version {
            Version::V5 => usize::from(RECEIVE_MAXIMUM),
            Version::V311 => 1_024,
        };
        let (taken, takings) = mpsc::unbounded_channel();
        let (close, closing) = mpsc::channel(1);
        let link = Link::start(self.connection, &topics, tls);
        let parts = Parts {
            tracker: Tracker::new(tracker),
            checks,
            updates: sender,
            receipts: Receipts::new(window),
            filters: self.filters,
            most_updates: self.buffer,
            most_bytes: self.buffer_bytes,
            answer: self.answer,
            topics,
            clock,
        };
        let status = link.status();
        let driver = Driver::new(shared.clone(), link, parts);
        let task = runtime.spawn(driver.run(takings, closing));
        Ok(Subscriber { shared, status, updates, taken, close, task })
    }

    fn validate(&self) -> Result<(), Error> {
        let wrong = |key, value: String, wanted| Err(Error::Setting { key, value, wanted });
        if let Some((filter, _)) = self.filters.iter().find(|(filter, _)| !is_subscription(filter)) {
            let value = filter.chars().take(50).collect();
            let wanted =
                "a topic filter, with + as a whole level and # as the last one, or $share/group/filter";
            return Err(Error::Name { what: "filter", value, wanted });
        }
        if self.filters.is_empty() || self.filters.len() > 100 {
            return wrong("filters", self.filters.len().to_string(), "1 to 100");
        }
        if self.buffer == 0 {
            return wrong("buffer", "0".into(), "at least 1");
        }
        if self.answer == 0 {
            return wrong("answer_limit", "0".into(), "at least 1");
        }
        if !(self.most_checks > 0.0 && self.most_checks.is_finite()) {
            return wrong("most_checks", self.most_checks.to_string(), "a finite number above 0");
        }
        Ok(())
    }
}

impl std::fmt::Debug for SubscriberBuilder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SubscriberBuilder")
            .field("connection", &self.connection)
            .field("filters", &self.filters)
            .field("active", &self.checks.is_some())
            .finish_non_exhaustive()
    }
}

fn is_subscription(filter: &str) -> bool {
    let plain = topic::split_share(filter).map(|shared| shared.map_or(filter, |(_, plain)| plain));
    filter.len() <= usize::from(u16::MAX) && plain.is_ok_and(topic::is_filter)
}

fn default_strategy() -> Result<AnyStrategy, Error> {
    let bounds = Bounds { shortest: Span::from_millis(2_500), longest: Span::from_secs(60) };
    Ok(Box::new(SelfTuningConfig { bounds, ..SelfTuningConfig::default() }.build()?))
}
