//! What counts as congestion.

use crate::invalid::{self, Invalid};
use crate::time::Span;

/// How slow a response must be to count as congested.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Level {
    /// Slower than processing and network, plus a tolerated share of the processing time for the queue.
    Rigorous {
        /// Time to process one request.
        processing: Span,
        /// Network round trip.
        network: Span,
        /// The tolerated queueing as a share of the processing time (q, at least 0 and below 1).
        queueing: f64,
    },
    /// Slower than the delay that the gateway announces, plus the network.
    Mediate {
        /// The delay to assume until the gateway announces one.
        assumed: Span,
        /// Network round trip.
        network: Span,
    },
    /// Slower than a multiple of the client's own moving average, which drifts up under lasting load.
    Light {
        /// The multiple (above 1).
        multiple: f64,
    },
}

impl Default for Level {
    /// Slower than what the gateway announces, or than 0.1 s while it announces nothing, and a network of 0.1 s.
    fn default() -> Self {
        let tenth = Span::from_millis(100);
        Self::Mediate { assumed: tenth, network: tenth }
    }
}

impl Level {
    /// Refuses a level that every response or no response would reach.
    pub fn validate(&self) -> Result<(), Invalid> {
        match *self {
            Self::Rigorous { processing, queueing, .. } => {
                invalid::positive("processing", processing.as_secs_f64())?;
                let good = (0.0..1.0).contains(&queueing);
                invalid::check("queueing", queueing, "at least 0 and below 1", good)
            }
            Self::Mediate { assumed, .. } => invalid::positive("assumed", assumed.as_secs_f64()),
            Self::Light { multiple } => invalid::check("multiple", multiple, "above 1", multiple > 1.0),
        }
        .map(|_| ())
    }

    /// Whether a response of `took` seconds is congested, given the announced delay and the mean response time.
    pub fn is_congested(&self, took: f64, announced: Option<Span>, mean: Option<f64>) -> bool {
        self.limit(announced, mean).is_some_and(|limit| took > limit)
    }

    /// The longest response that is not congested, in seconds; none when nothing is known yet.
    fn limit(&self, announced: Option<Span>, mean: Option<f64>) -> Option<f64> {
        match *self {
            Self::Rigorous { processing, network, queueing } => {
                Some(processing.as_secs_f64() * (1.0 + queueing) + network.as_secs_f64())
            }
            Self::Mediate { assumed, network } => {
                Some((announced.unwrap_or(assumed) + network).as_secs_f64())
            }
            Self::Light { multiple } => mean.map(|mean| multiple * mean),
        }
    }
}
