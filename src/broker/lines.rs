//! Log lines that clients cause, bounded: a hostile client must not fill the disk.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::clock::Millis;

/// Lines of each kind in a second.
const MOST: u64 = 10;

/// One limit for each kind of line.
#[derive(Debug, Default)]
pub struct Lines {
    /// A client broke the rules.
    pub protocol_error: Limit,
    /// A CONNECT was refused.
    pub connect_refused: Limit,
    /// A publish or a subscription was refused.
    pub refused: Limit,
    /// A message was not retained.
    pub not_retained: Limit,
    /// A session was not kept.
    pub not_kept: Limit,
    /// A consumer made no progress.
    pub stalled: Limit,
    /// A connection ended by a panic.
    pub panicked: Limit,
}

/// Counts the lines of one kind.
#[derive(Debug, Default)]
pub struct Limit {
    second: AtomicU64,
    lines: AtomicU64,
    left_out: AtomicU64,
}

impl Limit {
    /// Whether a line may be written now; one that may not is counted.
    pub fn allows(&self, now: Millis) -> bool {
        let second = now / 1000;
        if self.second.swap(second, Relaxed) != second {
            self.lines.store(0, Relaxed);
        }
        let allowed = self.lines.fetch_add(1, Relaxed) < MOST;
        if !allowed {
            self.left_out.fetch_add(1, Relaxed);
        }
        allowed
    }

    /// How many lines were left out since the last time.
    pub(crate) fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Relaxed)
    }
}

impl Lines {
    /// Says once how many lines were left out since the last time, by kind.
    pub fn report(&self) {
        for (kind, limit) in [
            ("protocol errors", &self.protocol_error),
            ("refused connections", &self.connect_refused),
            ("refused publishes and subscriptions", &self.refused),
            ("messages not retained", &self.not_retained),
            ("sessions not kept", &self.not_kept),
            ("consumers without progress", &self.stalled),
            ("panics", &self.panicked),
        ] {
            let left_out = limit.take_left_out();
            if left_out > 0 {
                tracing::warn!(left_out, kind, "log lines were left out: there were too many of their kind");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_lines_and_the_rest_is_counted() {
        let limit = Limit::default();
        let written = |now| (0..25).filter(|_| limit.allows(now)).count();
        assert_eq!((written(5_000), written(5_999), written(6_000)), (10, 0, 10));
        assert_eq!(limit.left_out.load(Relaxed), 55);
    }
}
