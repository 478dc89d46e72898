//! What the gate has done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of all connections together. Touched only for publishers that are over their rate.
#[derive(Debug, Default)]
pub struct Counts {
    held: AtomicU64,
    delayed: AtomicU64,
    delay_micros: AtomicU64,
    overdue: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    closed: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Publishers that are held now.
    pub held: u64,
    /// Messages that waited before they passed.
    pub delayed: u64,
    /// The time that they waited, all together.
    pub delay: Duration,
    /// Those among them that passed over the rate because they could wait no longer.
    pub overdue: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// QoS 0 messages that were thrown away.
    pub dropped: u64,
    /// Connections that were closed.
    pub closed: u64,
}

impl Counts {
    /// The counts now.
    pub fn snapshot(&self) -> Snapshot {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Snapshot {
            held: read(&self.held),
            delayed: read(&self.delayed),
            delay: Duration::from_micros(read(&self.delay_micros)),
            overdue: read(&self.overdue),
            refused: read(&self.refused),
            dropped: read(&self.dropped),
            closed: read(&self.closed),
        }
    }

    /// Says what each metric means.
    pub(crate) fn describe() {
        let counters = [
            (
                "tidegate_gate_delayed_messages_total",
                "Messages that waited because their publisher was too fast",
            ),
            ("tidegate_gate_delay_milliseconds_total", "How long these waited, added up"),
            (
                "tidegate_gate_overdue_messages_total",
                "Messages that passed over the rate, having waited long enough",
            ),
            (
                "tidegate_gate_refused_messages_total",
                "Messages refused with 0x97 because of their publisher's rate",
            ),
            (
                "tidegate_gate_dropped_messages_total",
                "QoS 0 messages thrown away because of their publisher's rate",
            ),
            ("tidegate_gate_closed_total", "Clients disconnected because they went on being too fast"),
        ];
        for (name, text) in counters {
            metrics::describe_counter!(name, text);
        }
        metrics::describe_gauge!(
            "tidegate_gate_held",
            "Publishers whose message waits because of their rate"
        );
    }

    /// Copies them into the metrics registry.
    pub(crate) fn publish(&self) {
        let now = self.snapshot();
        metrics::gauge!("tidegate_gate_held").set(now.held as f64);
        metrics::counter!("tidegate_gate_delayed_messages_total").absolute(now.delayed);
        metrics::counter!("tidegate_gate_delay_milliseconds_total").absolute(now.delay.as_millis() as u64);
        metrics::counter!("tidegate_gate_overdue_messages_total").absolute(now.overdue);
        metrics::counter!("tidegate_gate_refused_messages_total").absolute(now.refused);
        metrics::counter!("tidegate_gate_dropped_messages_total").absolute(now.dropped);
        metrics::counter!("tidegate_gate_closed_total").absolute(now.closed);
    }

    pub(crate) fn delayed(&self, waited: Duration) {
        self.delayed.fetch_add(1, Ordering::Relaxed);
        self.delay_micros.fetch_add(waited.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn overdue(&self) {
        self.overdue.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A publisher that is held; counted for as long as this is there.
#[derive(Debug)]
pub(crate) struct Holding(Arc<Counts>);

impl Holding {
    pub(crate) fn start(counts: &Arc<Counts>) -> Self {
        counts.held.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counts))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}
