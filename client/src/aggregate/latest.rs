//! Only the newest sample counts.

use super::{Added, Aggregate, Merged};
use crate::sample::Sample;

/// Keeps the newest sample; see [`super::Policy::Latest`].
#[derive(Debug, Default)]
pub struct Latest {
    sample: Option<Sample>,
}

impl Aggregate for Latest {
    fn add(&mut self, sample: Sample) -> Added {
        if matches!(sample, Sample::Number(number) if !number.is_finite()) {
            return Added::Refused;
        }
        match self.sample.replace(sample) {
            None => Added::Kept,
            Some(_) => Added::Replaced(1),
        }
    }

    fn take(&mut self) -> Option<Merged> {
        Some(Merged { payload: self.sample.take()?.into_bytes(), samples: 1 })
    }

    fn size(&self) -> usize {
        self.sample.as_ref().map_or(0, Sample::size)
    }

    fn grows_by(&self, sample: &Sample) -> usize {
        sample.size().saturating_sub(self.size())
    }

    fn value(&self) -> Option<f64> {
        self.sample.as_ref()?.number()
    }

    fn newest_wins(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_replaces_the_older() {
        let mut latest = Latest::default();
        assert_eq!(latest.take(), None);
        assert_eq!(latest.add(1.into()), Added::Kept);
        assert_eq!(latest.add("two".into()), Added::Replaced(1));
        assert_eq!(latest.add(f64::NAN.into()), Added::Refused);
        assert_eq!(latest.size(), 3);
        assert_eq!(latest.take(), Some(Merged { payload: "two".into(), samples: 1 }));
        assert_eq!((latest.take(), latest.size()), (None, 0));
    }
}
