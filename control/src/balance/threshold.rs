//! How deep a queue may be before its messages come too late.

use crate::time::Span;

/// What a topic's subscribers require, and where the time goes on the way to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// From publisher to subscriber, at most.
    pub required: Span,
    /// Spent on all links together.
    pub transmission: Span,
    /// Spent in other brokers and for everything but waiting in this one.
    pub elsewhere: Span,
}

impl Latency {
    /// The time that a message may wait in the edge broker's queue (t_e).
    pub fn allowed(&self) -> Span {
        self.required.saturating_sub(self.transmission).saturating_sub(self.elsewhere)
    }
}

/// Messages a second in and out of a queue, predicted for the next check period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// In (lambda).
    pub input: f64,
    /// Out (mu).
    pub output: f64,
}

/// The depth over which messages would be late before a migration helps: `(t_e - t_LB) mu - (lambda - mu)`.
///
/// Never below zero; zero also for rates that are no numbers.
pub fn depth_threshold(allowed: Span, migration_cost: Span, rates: Rates) -> f64 {
    let time = allowed.saturating_sub(migration_cost).as_secs_f64();
    let threshold = time * rates.output - (rates.input - rates.output);
    if threshold.is_nan() { 0.0 } else { threshold.clamp(0.0, f64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn topic_8_of_the_paper() {
        let latency = Latency {
            required: Span::from_millis(1100),
            transmission: Span::from_millis(300),
            elsewhere: Span::ZERO,
        };
        assert_eq!(latency.allowed(), Span::from_millis(800));
        let rates = Rates { input: 1400.0, output: 1225.0 };
        assert_eq!(depth_threshold(latency.allowed(), Span::from_millis(100), rates), 682.5);
    }

    proptest! {
        #[test]
        fn it_is_a_number_that_grows_with_the_time_allowed(
            allowed in any::<u64>(), cost in any::<u64>(), input in any::<f64>(), output in any::<f64>(),
        ) {
            let (allowed, cost, rates) = (Span::from_nanos(allowed / 2), Span::from_nanos(cost), Rates { input, output });
            let threshold = depth_threshold(allowed, cost, rates);
            prop_assert!(threshold.is_finite() && threshold >= 0.0);
            if output >= 0.0 && input.is_finite() && output.is_finite() {
                prop_assert!(depth_threshold(allowed + allowed, cost, rates) >= threshold);
            }
        }
    }
}
