//! Tables whose keys are numbers that the gateway gave out itself.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by numbers of queues, publishers and classes.
pub(crate) type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// An odd number without a pattern.
const SPREAD: u64 = 0x9E6C_63D0_876A_9A99;

/// One multiplication for each number. Clients do not choose these numbers, so they can't choose ones that collide; the
/// control loop looks up each publisher several times a turn, which the standard hasher is too slow for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write_u64(&mut self, number: u64) {
        let wide = u128::from(self.0 ^ number) * u128::from(SPREAD);
        // both halves: tables look at the highest bits and at the lowest
        self.0 = (wide as u64) ^ (wide >> 64) as u64;
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, Hash};

    fn hash(value: impl Hash) -> u64 {
        BuildHasherDefault::<NumberHasher>::default().hash_one(value)
    }

    /// Numbers in a row, and numbers with gaps of a power of two, fill a table of twice their count evenly.
    #[test]
    fn numbers_spread() {
        for shift in [0, 1, 4, 10, 20, 32] {
            let mut places = vec![0_u32; 8192];
            (1..=4096_u64).for_each(|number| places[(hash(number << shift) % 8192) as usize] += 1);
            let most = places.iter().max().unwrap();
            assert!(*most <= 8, "{most} of 4096 share a place, {shift}");
        }
        assert_ne!(hash((1_usize, Some(2_u64))), hash((2_usize, Some(1_u64))));
        assert_ne!(hash((1_usize, None::<u64>)), hash((1_usize, Some(0_u64))));
    }
}
