//! How long a client waits before it comes back.

use tidegate_control::random::{Random, Seeded};

use crate::clock::{Nanos, SECOND};
use crate::scenario::ConnectSettings;

/// After a failure nobody comes back sooner, in seconds.
const SHORTEST: f64 = 0.01;

/// The wait after a connection was lost, and after so many attempts that failed since: a random part of a time that
/// doubles, up to a limit.
pub fn wait(settings: &ConnectSettings, failures: u32, random: &mut Seeded) -> Nanos {
    let longest = (settings.backoff * 2f64.powi(failures.min(40) as i32)).min(settings.backoff_max);
    let wait = random.uniform() * longest;
    let wait = if failures > 0 { wait.max(SHORTEST) } else { wait };
    (wait * SECOND as f64) as Nanos
}

/// Whether a connection that was lost after this time was a success; one that is closed at once is a failed attempt.
pub fn has_lasted(settings: &ConnectSettings, lasted: Nanos) -> bool {
    lasted as f64 >= settings.backoff_max * SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_limit_and_differ() {
        let settings = ConnectSettings { backoff: 0.1, backoff_max: 2.0, ..ConnectSettings::default() };
        let mut random = Seeded::stream(1, 1);
        let mut longest = |failures: u32| {
            let waits: Vec<Nanos> = (0..100).map(|_| wait(&settings, failures, &mut random)).collect();
            assert!(waits.iter().any(|wait| *wait < waits.iter().max().copied().unwrap_or(0) / 2));
            waits.into_iter().max().unwrap_or(0) as f64 / SECOND as f64
        };
        for (failures, limit) in [(0, 0.1), (1, 0.2), (3, 0.8), (5, 2.0), (u32::MAX, 2.0)] {
            let seen = longest(failures);
            assert!(seen <= limit && seen > 0.8 * limit, "{failures}: {seen}");
        }
        let none = ConnectSettings { backoff: 0.0, ..settings };
        assert_eq!(wait(&none, 0, &mut random), 0);
        assert_eq!(wait(&none, 9, &mut random), SECOND / 100);
    }
}
