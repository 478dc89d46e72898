//! Random numbers as an argument: what an algorithm may ask for, and a seeded generator for simulator and tests.

/// A source of random numbers; only `next_u64` has to be written.
pub trait Random {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// A number spread evenly over [0, 1).
    fn uniform(&mut self) -> f64 {
        // 53 bits are all that a double holds.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number spread evenly over [low, high); `low` when the range is empty or NaN.
    fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        let draw = self.uniform();
        if high > low { (low + (high - low) * draw).min(high) } else { low }
    }

    /// A whole number spread evenly over 0..limit; 0 when the limit is 0.
    fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product: its bias is at most limit / 2^64.
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// Whether an event of this probability happens.
    fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A waiting time with this mean and no memory.
    fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - u lies in (0, 1], so the logarithm is finite.
        -libm::log(1.0 - self.uniform()) * mean
    }

    /// A number from the bell curve with this mean and standard deviation.
    fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = libm::sqrt(self.exponential(2.0));
        let angle = core::f64::consts::TAU * self.uniform();
        mean + deviation * radius * libm::cos(angle)
    }
}

impl<R: Random + ?Sized> Random for &mut R {
    fn next_u64(&mut self) -> u64 {
        (**self).next_u64()
    }
}

/// A fast generator (xoshiro256++) that gives the same numbers for the same seed on every machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeded {
    state: [u64; 4],
}

impl Seeded {
    /// A generator for this seed; any seed is a good one, also 0.
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        Self { state: core::array::from_fn(|_| mix(&mut counter)) }
    }

    /// A generator whose numbers are independent of this one's and of every other stream's.
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut counter = stream;
        Self::new(seed ^ mix(&mut counter))
    }
}

impl Random for Seeded {
    fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }
}

/// One step of splitmix64, which turns even neighbouring seeds into unrelated states.
fn mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*counter ^ (*counter >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Mean and standard deviation of many draws.
    fn moments(draw: impl FnMut() -> f64) -> (f64, f64) {
        let draws: Vec<f64> = core::iter::repeat_with(draw).take(100_000).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / draws.len() as f64;
        (mean, libm::sqrt(variance))
    }

    fn assert_near(value: f64, expected: f64, tolerance: f64) {
        assert!((value - expected).abs() <= tolerance, "{value} is not {expected} +- {tolerance}");
    }

    #[test]
    fn matches_the_published_sequence() {
        // The first outputs of xoshiro256++ from the state 1, 2, 3, 4.
        let mut random = Seeded { state: [1, 2, 3, 4] };
        assert_eq!(random.next_u64(), 41_943_041);
        assert_eq!(random.next_u64(), 58_720_359);
        assert_eq!(random.next_u64(), 3_588_806_011_781_223);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_streams_differ() {
        let take = |mut r: Seeded| -> Vec<u64> { (0..8).map(|_| r.next_u64()).collect() };
        assert_eq!(take(Seeded::new(7)), take(Seeded::new(7)));
        assert_ne!(take(Seeded::new(7)), take(Seeded::new(8)));
        assert_ne!(take(Seeded::stream(7, 0)), take(Seeded::stream(7, 1)));
    }

    #[test]
    fn the_distributions_have_their_moments() {
        let mut random = Seeded::new(1);
        let (mean, deviation) = moments(|| random.uniform_in(2.0, 4.0));
        assert_near(mean, 3.0, 0.01);
        assert_near(deviation, 2.0 / libm::sqrt(12.0), 0.01);
        let (mean, deviation) = moments(|| random.exponential(20.0));
        assert_near(mean, 20.0, 0.3);
        assert_near(deviation, 20.0, 0.4);
        let (mean, deviation) = moments(|| random.normal(5.0, 0.5));
        assert_near(mean, 5.0, 0.01);
        assert_near(deviation, 0.5, 0.01);
        let (mean, _) = moments(|| random.below(11) as f64);
        assert_near(mean, 5.0, 0.05);
    }

    #[test]
    fn odd_arguments_are_harmless() {
        let mut random = Seeded::new(3);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.uniform_in(2.0, 1.0), 2.0);
        assert!(!random.chance(f64::NAN));
        assert_eq!(random.exponential(0.0), 0.0);
    }
}
