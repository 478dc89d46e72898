//! What was answered, and how.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of checks, each of which is answered in one way.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Looked up; those that were merged count here too.
    pub(crate) answered: AtomicU64,
    pub(crate) merged: AtomicU64,
    pub(crate) deferred: AtomicU64,
    /// Those among the deferred for which there was no room to wait.
    pub(crate) crowded: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Not answered at all: there was no room for the answer, and none for it to wait.
    pub(crate) unanswered: AtomicU64,
}

const ANSWERED: &str = "tidegate_check_answered_total";
const MERGED: &str = "tidegate_check_merged_total";
const DEFERRED: &str = "tidegate_check_deferred_total";
const CROWDED: &str = "tidegate_check_crowded_total";
const REFUSED: &str = "tidegate_check_refused_total";
const UNANSWERED: &str = "tidegate_check_unanswered_total";
const TOPICS: &str = "tidegate_check_topics";
const BYTES: &str = "tidegate_check_history_bytes";

impl Counts {
    /// Says what the metrics mean.
    pub(crate) fn describe() {
        metrics::describe_counter!(ANSWERED, "Checks that were answered with what was found.");
        metrics::describe_counter!(
            MERGED,
            "Those among them that were looked up with another that asked the same."
        );
        metrics::describe_counter!(
            DEFERRED,
            "Checks over check.max_rate or check.max_looks, which were told a time to come back."
        );
        metrics::describe_counter!(
            CROWDED,
            "Those among them for which check.max_waiting or check.max_waiting_bytes left no room to wait."
        );
        metrics::describe_counter!(
            REFUSED,
            "Checks that make no sense, or ask for what the client has not subscribed to."
        );
        metrics::describe_counter!(
            UNANSWERED,
            "Checks over all limits whose answers, too, were more than may wait (check.max_waiting_bytes)."
        );
        metrics::describe_gauge!(TOPICS, "Topics whose messages are numbered.");
        metrics::describe_gauge!(BYTES, "Bytes of payloads that are kept for checks.");
    }

    /// Copies them into the metrics registry, with the size of the history.
    pub(crate) fn publish(&self, topics: usize, bytes: usize) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        metrics::counter!(ANSWERED).absolute(read(&self.answered));
        metrics::counter!(MERGED).absolute(read(&self.merged));
        metrics::counter!(DEFERRED).absolute(read(&self.deferred));
        metrics::counter!(CROWDED).absolute(read(&self.crowded));
        metrics::counter!(REFUSED).absolute(read(&self.refused));
        metrics::counter!(UNANSWERED).absolute(read(&self.unanswered));
        metrics::gauge!(TOPICS).set(topics as f64);
        metrics::gauge!(BYTES).set(bytes as f64);
    }
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
