//! The broker's one clock: milliseconds since it started, cheap to copy and to compare.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_control::time::Moment;

/// Milliseconds since the broker started. Never 0, so that 0 can mean "none".
pub type Millis = u64;

/// The same moment as algorithms count it.
pub fn moment(at: Millis) -> Moment {
    Moment::from_nanos(at.saturating_mul(1_000_000))
}

/// Milliseconds since 1970, for what people read and for nothing else: it may jump.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Reads the time; one of the few places that do.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Now, in milliseconds since the start.
    pub fn now(&self) -> Millis {
        // 2^64 milliseconds are 500 million years
        self.start.elapsed().as_millis() as u64 + 1
    }

    /// The instant of a moment, for timers.
    pub fn instant(&self, at: Millis) -> Instant {
        self.start + Duration::from_millis(at.saturating_sub(1))
    }
}
