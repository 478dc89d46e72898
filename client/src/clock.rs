//! The only file that reads a clock or makes randomness.

use std::hash::{BuildHasher, RandomState};

use tidegate_control::random::Seeded;
use tidegate_control::time::{Moment, Span};
use tokio::time::{Duration, Instant};

/// A clock that starts when it is made. It follows tokio's time, which tests may stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::START + span(self.start.elapsed())
    }

    /// Waits until a moment; for ever when there is none.
    pub(crate) async fn sleep_until(&self, moment: Option<Moment>) {
        match moment {
            Some(moment) => {
                tokio::time::sleep_until(self.start + duration(moment.since(Moment::START))).await
            }
            None => std::future::pending().await,
        }
    }
}

/// A generator that nobody can foresee: the standard library seeds its hash tables from the system's randomness.
pub(crate) fn randomness() -> Seeded {
    Seeded::new(RandomState::new().hash_one(0))
}

pub(crate) fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}
