//! One client with the divided decrease, or another strategy, against one source.

use super::Sample;
use tidegate_control::active::{Check, Strategy};
use tidegate_control::random::{Random, Seeded};
use tidegate_control::time::Moment;

/// The figures of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    pub(super) mean_s: f64,
    pub(super) interval: f64,
    pub(super) growths: f64,
    pub(super) rate: f64,
    pub(super) bulk: f64,
    pub(super) lost: f64,
    pub(super) redundant: f64,
}

/// One client that makes its checks in virtual time; `watch` hears when each was made, and after which interval.
pub(super) fn simulate(
    strategy: &mut dyn Strategy,
    gaps: (f64, f64),
    checks: u32,
    random: &mut Seeded,
    watch: &mut dyn FnMut(f64, f64),
) -> Run {
    let mut now = 0.0;
    let mut update = random.uniform_in(0.0, gaps.1);
    let mut last_change = None;
    let mut log = Log::default();
    for _ in 0..checks {
        let interval = strategy.interval().as_secs_f64();
        now += interval;
        let mut found = 0;
        while update <= now {
            found += 1;
            last_change = Some(Moment::from_secs_f64(update));
            update += random.uniform_in(gaps.0, gaps.1);
        }
        let check = Check::found(Moment::from_secs_f64(now), found).changed(last_change);
        watch(now, interval);
        log.record(interval, &check);
        strategy.on_check(&check, random);
    }
    log.finish(now, checks)
}

/// What one run counts.
#[derive(Debug, Default)]
struct Log {
    /// Time and growths since the last decrease; none before the first.
    since: Option<(f64, f64)>,
    s: Sample,
    intervals: Sample,
    growths: Sample,
    bulks: Sample,
    updates: u32,
    lost: u32,
    empty: u32,
}

impl Log {
    fn record(&mut self, interval: f64, check: &Check) {
        self.updates += check.updates;
        self.lost += check.lost;
        self.empty += u32::from(check.updates == 0);
        let (time, growths) = self.since.map_or((0.0, 0.0), |(time, growths)| (time + interval, growths));
        if check.lost == 0 {
            self.since = self.since.map(|_| (time, growths + 1.0));
            return;
        }
        self.intervals.push(interval);
        self.bulks.push(f64::from(check.lost));
        if self.since.is_some() {
            self.s.push(time);
            self.growths.push(growths);
        }
        self.since = Some((0.0, 0.0));
    }

    fn finish(self, time: f64, checks: u32) -> Run {
        Run {
            mean_s: self.s.mean(),
            interval: self.intervals.mean(),
            growths: self.growths.mean(),
            rate: f64::from(checks) / time,
            bulk: self.bulks.mean(),
            lost: f64::from(self.lost) / f64::from(self.updates.max(1)),
            redundant: 100.0 * f64::from(self.empty) / f64::from(checks),
        }
    }
}
