//! Divides what a queue can take among the publishers that feed it.

use tidegate_control::allocate::{self, Claim};

use crate::class::{Class, Classes};
use crate::number::Numbered;

/// Bits of a rate below those that tell rates apart: what is left makes four steps of each power of two, so that
/// publishers of a class whose wishes are within a factor of 1.25 share a claim.
const ALIKE_BITS: u32 = f64::MANTISSA_DIGITS - 1 - 2;

/// What publishers claim. Those of a class that want about the same are counted together, so that there are few.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    list: Vec<Claim>,
    places: Numbered<(usize, u32), usize>,
    /// Where the last one went: most publishers are like the one before.
    last: Option<((usize, u32), usize)>,
}

impl Claims {
    /// Adds a publisher of a class that wants this many messages a second.
    pub(crate) fn add(&mut self, index: usize, class: &Class, wants: f64) {
        self.add_many(index, class, wants, 1);
    }

    /// Adds so many publishers of a class, each of which wants this many messages a second.
    pub(crate) fn add_many(&mut self, index: usize, class: &Class, wants: f64, count: u64) {
        let ceiling = wants.min(class.ceiling).max(class.floor);
        let kind = (index, alike(ceiling));
        let place = match self.last {
            Some((last, place)) if last == kind => place,
            _ => *self.places.entry(kind).or_insert(self.list.len()),
        };
        self.last = Some((kind, place));
        if place == self.list.len() {
            self.list.push(Claim { members: 0, weight: class.weight, floor: class.floor, ceiling: 0.0 });
        }
        let claim = &mut self.list[place];
        claim.members += count;
        claim.ceiling += (ceiling - claim.ceiling) * count as f64 / claim.members.max(1) as f64;
    }

    /// What a publisher of each class may send: what one that wants more than it can get would get.
    pub(crate) fn rates(&self, total: f64, classes: &Classes) -> Vec<f64> {
        let level = allocate::level(total, &self.list);
        let rate = |index| {
            let class = classes.get(index);
            if class.exempt {
                return f64::INFINITY;
            }
            let Class { weight, floor, ceiling, least, .. } = *class;
            let rate = level.rate(&Claim { members: 1, weight, floor, ceiling });
            // When all wishes fit, nobody needs to be told more than there is.
            rate.min(total).max(least)
        };
        (0..classes.len()).map(rate).collect()
    }
}

/// A number that rates within a factor of each other share.
pub(crate) fn alike(rate: f64) -> u32 {
    (rate.max(f64::MIN_POSITIVE).to_bits() >> ALIKE_BITS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClassConfig, OverloadConfig};

    fn classes(list: &[ClassConfig]) -> Classes {
        Classes::new(&OverloadConfig { classes: list.to_vec(), ..OverloadConfig::default() })
    }

    fn class(name: &str) -> ClassConfig {
        ClassConfig { name: name.into(), client: Some("x".into()), ..ClassConfig::default() }
    }

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 0.02, "{value} is not {expected}");
    }

    #[test]
    fn who_wants_little_leaves_it_to_others() {
        let classes = classes(&[]);
        let mut claims = Claims::default();
        for _ in 0..90 {
            claims.add(0, classes.get(0), 1.0);
        }
        for _ in 0..10 {
            claims.add(0, classes.get(0), 1e6);
        }
        near(claims.rates(190.0, &classes)[0], 10.0);
        assert_eq!(claims.list.len(), 2);
    }

    #[test]
    fn rates_within_a_factor_are_alike() {
        for rate in [1e-6, 0.3, 1.0, 7.0, 1e9] {
            let step = (1..2000).map(|part| rate * (1.0 + f64::from(part) / 1000.0));
            let first_other = step.into_iter().find(|other| alike(*other) != alike(rate)).unwrap();
            assert!(first_other <= rate * 1.251, "{rate} and {first_other}");
        }
        assert_eq!(alike(0.0), alike(-1.0));
        assert_ne!(alike(1.0), alike(1.25));
    }

    #[test]
    fn weights_floors_ceilings_and_exemptions_hold() {
        let classes = classes(&[
            ClassConfig { weight: 4.0, ..class("heavy") },
            ClassConfig { floor: 3.0, weight: 0.01, ..class("floor") },
            ClassConfig { ceiling: Some(0.5), ..class("low") },
            ClassConfig { exempt: true, ..class("alarm") },
        ]);
        let mut claims = Claims::default();
        for index in [0, 1, 2, 4] {
            (0..10).for_each(|_| claims.add(index, classes.get(index), 1e9));
        }
        let rates = claims.rates(10.0 * (8.0 + 3.0 + 0.5 + 2.0), &classes);
        near(rates[0], 8.0);
        near(rates[1], 3.0);
        near(rates[2], 0.5);
        assert_eq!(rates[3], f64::INFINITY);
        near(rates[4], 2.0);
        // Nothing is left, and still nobody is told to stop for ever.
        assert!(claims.rates(0.0, &classes).iter().all(|rate| *rate > 0.0));
    }
}
