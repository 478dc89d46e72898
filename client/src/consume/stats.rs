//! What a subscriber counts.

use std::time::Duration;

/// What a subscriber saw since it started.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct SubscriberStats {
    /// Updates that came by themselves.
    pub passive: u64,
    /// Updates that a check brought.
    pub active: u64,
    /// Updates that are lost for good: neither way brought them.
    pub lost: u64,
    /// Updates among those lost that came, but the program did not take in time.
    pub overrun: u64,
    /// Updates that came twice and were handed on once.
    pub duplicates: u64,
    /// Checks made.
    pub checks: u64,
    /// Checks that found nothing that was missing.
    pub redundant_checks: u64,
    /// Checks that got no answer in time.
    pub silent_checks: u64,
    /// Checks that the gateway asked to make later.
    pub delayed_checks: u64,
    /// Checks that the gateway refused; the log says why.
    pub refused_checks: u64,
    /// The adaptive part of the interval between two checks now (t).
    pub interval: Duration,
    /// The mean number of updates that a check found overwritten (k).
    pub mean_lost: f64,
    /// The mean time from a check to what it asked for; when the gateway asked to come back later, from the first try on.
    pub response: Duration,
    /// The last time of that kind.
    pub last_response: Duration,
    /// Checks that were answered with what is missing.
    pub answered_checks: u64,
    /// Control messages that made no sense.
    pub nonsense: u64,
    /// Connections made.
    pub connections: u64,
}
