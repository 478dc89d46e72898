//! The mean of numbers, with their count, so that the mean over all messages can still be had.

use super::{Added, Aggregate, Merged};
use crate::sample::Sample;

/// The mean of the samples and their count; see [`super::Policy::Mean`].
#[derive(Debug, Default)]
pub struct Mean {
    mean: f64,
    count: u64,
}

impl Aggregate for Mean {
    fn add(&mut self, sample: Sample) -> Added {
        let Some(number) = sample.number() else { return Added::Refused };
        self.count += 1;
        // As a running mean: a sum of large numbers might leave the range of doubles, their mean can't.
        let share = 1.0 / self.count as f64;
        self.mean = self.mean * (1.0 - share) + number * share;
        Added::Kept
    }

    fn take(&mut self) -> Option<Merged> {
        let Self { mean, count } = std::mem::take(self);
        let payload = || serde_json::json!({ "mean": mean, "count": count }).to_string().into();
        (count > 0).then(|| Merged { payload: payload(), samples: count })
    }

    fn size(&self) -> usize {
        if self.count == 0 { 0 } else { size_of::<Self>() }
    }

    fn grows_by(&self, _sample: &Sample) -> usize {
        size_of::<Self>() - self.size()
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn mean_and_count(merged: &Merged) -> (f64, u64) {
        let value: serde_json::Value = serde_json::from_slice(&merged.payload).unwrap();
        (value["mean"].as_f64().unwrap(), value["count"].as_u64().unwrap())
    }

    proptest! {
        /// However the samples are cut into messages, the mean over all messages is that of the samples.
        #[test]
        fn the_mean_over_all_messages_is_that_of_the_samples(
            samples in prop::collection::vec((-1e6..1e6f64, any::<bool>()), 1..300)
        ) {
            let mut mean = Mean::default();
            let (mut sum, mut count) = (0.0, 0);
            for (number, cut) in &samples {
                prop_assert_eq!(mean.add((*number).into()), Added::Kept);
                if *cut {
                    let (m, c) = mean_and_count(&mean.take().unwrap());
                    (sum, count) = (sum + m * c as f64, count + c);
                }
            }
            if let Some(rest) = mean.take() {
                let (m, c) = mean_and_count(&rest);
                (sum, count) = (sum + m * c as f64, count + c);
            }
            let offered: f64 = samples.iter().map(|(number, _)| number).sum();
            prop_assert_eq!(count, samples.len() as u64);
            prop_assert!((sum - offered).abs() <= 1e-9 * 1e6 * samples.len() as f64, "{} {}", sum, offered);
        }
    }

    #[test]
    fn what_is_no_number_is_refused_and_the_largest_numbers_are_not() {
        let mut mean = Mean::default();
        assert_eq!(mean.add("warm".into()), Added::Refused);
        assert_eq!(mean.take(), None);
        for _ in 0..3 {
            assert_eq!(mean.add(f64::MAX.into()), Added::Kept);
        }
        let (mean, count) = mean_and_count(&mean.take().unwrap());
        assert!(mean.is_finite() && mean > 0.99 * f64::MAX);
        assert_eq!(count, 3);
    }
}
