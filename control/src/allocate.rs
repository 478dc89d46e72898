//! Divides a total rate: equally, or by weighted max-min fairness with floors and ceilings.

use alloc::vec::Vec;

/// No rate in here is higher, whatever is asked for, so that sums stay finite.
pub const MAX_RATE: f64 = 1e15;
/// Stands for a weight of zero, so that what others leave is still used.
const LEAST_WEIGHT: f64 = 1e-9;

/// What the clients of one class may claim, each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// How many clients share this claim.
    pub members: u64,
    /// A client's share, relative to those of the others; 0 is served when all others are content.
    pub weight: f64,
    /// A client's least rate, kept before anything else is given out.
    pub floor: f64,
    /// A client's highest rate: what it leaves is used by others.
    pub ceiling: f64,
}

impl Claim {
    /// A claim of one client with weight 1, no floor, and this ceiling.
    pub fn up_to(ceiling: f64) -> Self {
        Self { members: 1, weight: 1.0, floor: 0.0, ceiling }
    }

    /// The same claim with every number made harmless: not NaN, not negative, floor under ceiling.
    fn sound(&self) -> Self {
        let ceiling = sound(self.ceiling);
        let weight = sound(self.weight).max(LEAST_WEIGHT);
        Self { members: self.members, weight, floor: sound(self.floor).min(ceiling), ceiling }
    }

    fn members(&self) -> f64 {
        self.members as f64
    }
}

/// The same rate for each of `clients`, at most `ceiling`; the ceiling when there is nobody to divide by.
pub fn equal(total: f64, clients: u64, ceiling: f64) -> f64 {
    let ceiling = sound(ceiling);
    if clients == 0 { ceiling } else { (sound(total) / clients as f64).min(ceiling) }
}

/// A rate that can be counted on: not NaN, not negative, not without end.
pub(crate) fn sound(rate: f64) -> f64 {
    if rate > 0.0 { rate.min(MAX_RATE) } else { 0.0 }
}

/// How high the water stands: all that is needed to work out any client's rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    height: f64,
    /// Under 1 when not even the floors fit.
    floor_share: f64,
}

impl Level {
    /// The rate of one client of this claim.
    pub fn rate(&self, claim: &Claim) -> f64 {
        self.rate_of_sound(&claim.sound())
    }

    fn rate_of_sound(&self, claim: &Claim) -> f64 {
        (claim.weight * self.height).max(claim.floor * self.floor_share).min(claim.ceiling)
    }
}

/// The rate of one client of each claim, so that the total is used as far as the ceilings allow and nobody could get
/// more without taking it from a client that has less for its weight.
pub fn water_fill(total: f64, claims: &[Claim]) -> Vec<f64> {
    let level = level(total, claims);
    claims.iter().map(|claim| level.rate(claim)).collect()
}

/// The water level for these claims, in time proportional to their number.
pub fn level(total: f64, claims: &[Claim]) -> Level {
    let total = sound(total);
    let present = || claims.iter().map(Claim::sound).filter(|claim| claim.members > 0);
    let floors: f64 = present().map(|claim| claim.members() * claim.floor).sum();
    if floors >= total {
        let floor_share = if floors > 0.0 { total / floors } else { 1.0 };
        return Level { height: 0.0, floor_share };
    }
    let ceilings: f64 = present().map(|claim| claim.members() * claim.ceiling).sum();
    let height = if ceilings <= total { f64::MAX } else { rise(total, present().collect()) };
    Level { height, floor_share: 1.0 }
}

/// Finds the height at which the claims use up the total.
///
/// A client's rate grows with the height only between two bends: where it leaves its floor and where it reaches its
/// ceiling. Each turn halves the bends that are left by asking on which side of their median the answer lies.
fn rise(total: f64, mut open: Vec<Claim>) -> f64 {
    let mut fixed = 0.0;
    let mut slope = 0.0;
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut bends = Vec::new();
    loop {
        open.retain(|claim| {
            let (from, to) = bends_of(claim);
            if to <= low {
                fixed += claim.members() * claim.ceiling;
            } else if from >= high {
                fixed += claim.members() * claim.floor;
            } else if from <= low && to >= high {
                slope += claim.members() * claim.weight;
            } else {
                return true;
            }
            false
        });
        bends.clear();
        bends.extend(
            open.iter().flat_map(|c| <[f64; 2]>::from(bends_of(c))).filter(|b| *b > low && *b < high),
        );
        if bends.is_empty() {
            break;
        }
        let middle = bends.len() / 2;
        let (_, &mut height, _) = bends.select_nth_unstable_by(middle, f64::total_cmp);
        let used: f64 =
            open.iter().map(|c| c.members() * (c.weight * height).clamp(c.floor, c.ceiling)).sum();
        if fixed + slope * height + used <= total {
            low = height;
        } else {
            high = height;
        }
    }
    let height = if slope > 0.0 { (total - fixed) / slope } else { low };
    height.max(low).min(high)
}

/// The heights at which a client leaves its floor and reaches its ceiling.
fn bends_of(claim: &Claim) -> (f64, f64) {
    (claim.floor / claim.weight, claim.ceiling / claim.weight)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::random::{Random, Seeded};
    use proptest::prelude::*;
    use std::vec;

    fn claim(members: u64, weight: f64, floor: f64, ceiling: f64) -> Claim {
        Claim { members, weight, floor, ceiling }
    }

    fn used(claims: &[Claim], rates: &[f64]) -> f64 {
        claims.iter().zip(rates).map(|(c, r)| c.members as f64 * r).sum()
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{value} is not {expected}");
    }

    #[test]
    fn weights_divide_and_ceilings_hand_on() {
        let rates = water_fill(100.0, &[claim(10, 4.0, 0.0, 100.0), claim(10, 1.0, 0.0, 100.0)]);
        assert_eq!(rates, vec![8.0, 2.0]);
        // The heavy class stops at 5: the light one gets the rest.
        let rates = water_fill(100.0, &[claim(10, 4.0, 0.0, 5.0), claim(10, 1.0, 0.0, 100.0)]);
        assert_eq!(rates, vec![5.0, 5.0]);
    }

    #[test]
    fn floors_come_first() {
        let rates = water_fill(10.0, &[claim(1, 1.0, 8.0, 9.0), claim(4, 1.0, 0.0, 9.0)]);
        assert_eq!(rates, vec![8.0, 0.5]);
        // Floors of 20 don't fit into 10: each is halved.
        let rates = water_fill(10.0, &[claim(1, 1.0, 12.0, 20.0), claim(2, 9.0, 4.0, 20.0)]);
        assert_eq!(rates, vec![6.0, 2.0]);
    }

    #[test]
    fn plenty_gives_everybody_the_ceiling() {
        assert_eq!(water_fill(1e9, &[claim(3, 1.0, 0.0, 2.0), claim(1, 0.0, 0.5, 7.0)]), vec![2.0, 7.0]);
    }

    #[test]
    fn an_equal_split_is_capped() {
        assert_eq!(equal(10.0, 4, 2.0), 2.0);
        assert_eq!(equal(10.0, 10, 2.0), 1.0);
        assert_eq!(equal(10.0, 0, 2.0), 2.0);
        assert_eq!(equal(f64::NAN, 3, 2.0), 0.0);
    }

    #[test]
    fn a_hundred_thousand_clients_are_filled_to_the_brim() {
        let mut random = Seeded::new(5);
        let claims: Vec<Claim> = (0..100_000)
            .map(|_| {
                let floor = random.uniform_in(0.0, 0.5);
                claim(1, random.uniform_in(0.5, 8.0), floor, floor + random.uniform_in(0.0, 4.0))
            })
            .collect();
        let rates = water_fill(60_000.0, &claims);
        assert_near(used(&claims, &rates), 60_000.0);
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        (0u64..50, 0.0..10.0f64, 0.0..3.0f64, 0.0..5.0f64)
            .prop_map(|(m, w, f, extra)| claim(m, w, f, f + extra))
    }

    proptest! {
        #[test]
        fn within_bounds_and_max_min_fair(total in 0.0..2000.0f64, claims in proptest::collection::vec(any_claim(), 1..40)) {
            let rates = water_fill(total, &claims);
            let floors: f64 = claims.iter().map(|c| c.members as f64 * c.floor).sum();
            prop_assert!(used(&claims, &rates) <= total * (1.0 + 1e-9) + 1e-9);
            for (claim, rate) in claims.iter().zip(&rates) {
                prop_assert!(*rate <= claim.ceiling + 1e-9);
                prop_assert!(floors > total || *rate >= claim.floor - 1e-9);
            }
            if floors > total {
                return Ok(());
            }
            let present = || claims.iter().zip(&rates).filter(|(c, _)| c.members > 0 && c.weight > 1e-3);
            // Who is held under the ceiling has at least as much for its weight as anyone above the floor.
            for (held, rate) in present().filter(|(c, r)| **r < c.ceiling - 1e-9) {
                for (other, more) in present().filter(|(c, r)| **r > c.floor + 1e-9) {
                    prop_assert!(more / other.weight <= rate / held.weight + 1e-6);
                }
            }
            // Nothing is left while somebody is held.
            if claims.iter().zip(&rates).any(|(c, r)| c.members > 0 && *r < c.ceiling - 1e-6) {
                prop_assert!(used(&claims, &rates) >= total * (1.0 - 1e-9) - 1e-9);
            }
        }

        #[test]
        fn wild_numbers_give_finite_rates(total in any::<f64>(), raw in proptest::collection::vec((any::<u64>(), any::<f64>(), any::<f64>(), any::<f64>()), 0..20)) {
            let claims: Vec<Claim> = raw.into_iter().map(|(m, w, f, c)| claim(m, w, f, c)).collect();
            for rate in water_fill(total, &claims) {
                prop_assert!(rate.is_finite() && (0.0..=MAX_RATE).contains(&rate));
            }
        }
    }
}
