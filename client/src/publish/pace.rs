//! When the next message may go: a token bucket with a random phase.
//!
//! A fleet that is told the same rate at the same moment must not send in step. So a publisher that is held back and has
//! been idle does not send at once, although its bucket would let it: it waits for a random part of the interval.

use tidegate_control::pacing::{Bucket, Pass};
use tidegate_control::random::Random;
use tidegate_control::time::{Moment, Span};

use super::rate::Limit;

/// A timer that fires late by up to this, or by up to half an interval, does not move what comes after: it would slow the
/// publisher down, and all publishers of a program that stands still for a moment would send in step from then on.
const LATE: Span = Span::from_millis(100);

/// The intervals of a publisher that is held back vary by this share, around the one that it was told: whatever brought a
/// fleet into step, it does not stay there.
const UNEVEN: f64 = 0.1;

/// Says when messages may go.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: Limit,
    /// None while there is no limit.
    bucket: Option<Bucket>,
    /// When the message that waits now may go; none when nothing was asked since the last one went.
    due: Option<Moment>,
    /// Nothing goes before this.
    hold: Moment,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let limit = Limit { rate: None, burst: 1.0, held: false, until: None };
        Self { limit, bucket: None, due: None, hold: Moment::START }
    }

    /// Follows a new limit: what was waited so far counts in proportion.
    pub(crate) fn follow(&mut self, now: Moment, limit: Limit) {
        let old = std::mem::replace(&mut self.limit, limit);
        if (old.rate, old.burst) == (limit.rate, limit.burst) {
            return;
        }
        // Those who kept a rate of their own in step would keep the gateway's in step: they draw their place anew.
        let joins = limit.held && !old.held;
        match (limit.rate, old.rate, &mut self.bucket) {
            (Some(new), Some(old_rate), Some(bucket)) if old.burst == limit.burst && !joins => {
                bucket.set_rate(now, new);
                self.due = self.due.map(|due| now + due.since(now).scale(old_rate / new));
            }
            (Some(new), ..) => {
                // Rates and bursts are checked where they come in; a bucket that refuses one is no bucket.
                self.bucket = Bucket::new(now, new, limit.burst).ok();
                self.due = None;
            }
            (None, ..) => (self.bucket, self.due) = (None, None),
        }
    }

    /// The time between two messages now; zero without a limit.
    pub(crate) fn interval(&self) -> Span {
        self.limit.rate.map_or(Span::ZERO, Span::from_rate)
    }

    /// Books a message if one may go now. Only to be asked when one is waiting.
    pub(crate) fn ask(&mut self, now: Moment, random: &mut dyn Random) -> Pass {
        let due = match self.due {
            Some(due) => due,
            None => self.look(now, random),
        };
        self.due = Some(due);
        let due = due.max(self.hold);
        if now < due {
            return Pass::Wait(due.since(now));
        }
        let late = LATE.max(self.interval().scale(0.5));
        // Booked when it was due: what the timer was late is not lost.
        if let Some(bucket) = &mut self.bucket
            && let Pass::Wait(wait) = bucket.take(due.max(now - late))
        {
            self.due = Some(now + wait);
            return Pass::Wait(wait);
        }
        if let (Some(bucket), Some(rate), true) = (&mut self.bucket, self.limit.rate, self.limit.held) {
            bucket.set_rate(now, rate / random.uniform_in(1.0 - UNEVEN, 1.0 + UNEVEN));
        }
        self.due = None;
        Pass::Go
    }

    /// Whether an urgent message may go now: it does not wait for its turn, but what comes after it does.
    pub(crate) fn ask_urgent(&mut self, now: Moment) -> Pass {
        if now < self.hold {
            return Pass::Wait(self.hold.since(now));
        }
        if let Some(bucket) = &mut self.bucket {
            bucket.charge(now, 1);
            self.due = self.due.map(|due| due.max(now + bucket.wait(now, 1)));
        }
        Pass::Go
    }

    /// The gateway refused a message, or asked for a pause: nothing goes for so long and a random time more.
    pub(crate) fn hold(&mut self, now: Moment, wait: Span, random: &mut dyn Random) {
        let spread = self.interval().max(wait.scale(0.5)).scale(random.uniform());
        self.hold = self.hold.max(now + wait);
        self.due = Some(self.due.unwrap_or(now).max(self.hold + spread));
    }

    /// The first look at a waiting message.
    fn look(&self, now: Moment, random: &mut dyn Random) -> Moment {
        let Some(bucket) = &self.bucket else { return now };
        let wait = bucket.wait(now, 1);
        if wait.is_zero() && self.limit.held {
            return now + self.interval().scale(random.uniform());
        }
        now + wait
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;
    use tidegate_control::random::Seeded;

    fn at(seconds: f64) -> Moment {
        Moment::from_secs_f64(seconds)
    }

    fn limit(rate: f64) -> Limit {
        Limit { rate: Some(rate), burst: 1.0, held: true, until: None }
    }

    /// When messages of a publisher that always has one waiting go, over so many seconds; the timer is late by `late`.
    fn times(pace: &mut Pace, from: f64, seconds: f64, late: f64, random: &mut Seeded) -> Vec<f64> {
        let (mut now, mut gone) = (at(from), Vec::new());
        while now < at(from + seconds) {
            match pace.ask(now, random) {
                Pass::Go => gone.push(now.as_secs_f64()),
                Pass::Wait(wait) => now += wait + Span::from_secs_f64(late * random.uniform()),
            }
        }
        gone
    }

    #[test]
    fn without_a_limit_everything_goes() {
        let (mut pace, mut random) = (Pace::new(), Seeded::new(1));
        for _ in 0..100 {
            assert_eq!(pace.ask(at(1.0), &mut random), Pass::Go);
        }
    }

    #[test]
    fn the_rate_is_kept_though_timers_are_late() {
        for rate in [0.43, 5.0, 100.0] {
            let (mut pace, mut random) = (Pace::new(), Seeded::new(1));
            pace.follow(at(0.0), limit(rate));
            let count = times(&mut pace, 0.0, 10_000.0 / rate, 0.004, &mut random).len();
            assert!((9_980..=10_020).contains(&count), "{count} at {rate}");
        }
    }

    #[test]
    fn a_fleet_that_is_told_at_once_does_not_send_in_step() {
        let mut random = Seeded::new(2);
        let mut all = Vec::new();
        for _ in 0..200 {
            let mut pace = Pace::new();
            pace.follow(at(5.0), limit(0.25));
            all.extend(times(&mut pace, 5.0, 60.0, 0.002, &mut random));
        }
        // In step, every other window would hold twice its share.
        let share = 200.0 * 0.25 * 2.0;
        for start in 5..63 {
            let start = f64::from(start);
            let count = all.iter().filter(|time| (start..start + 2.0).contains(*time)).count();
            assert!((count as f64) < 1.5 * share, "{count} from {start}, where {share} is the share");
        }
    }

    /// They started together and sent at their own rate until the gateway told them another one.
    #[test]
    fn a_fleet_that_was_in_step_is_not_when_it_is_held_back() {
        let mut random = Seeded::new(2);
        let mut all = Vec::new();
        for _ in 0..200 {
            let mut pace = Pace::new();
            pace.follow(at(0.0), Limit { held: false, ..limit(1.25) });
            assert_eq!(times(&mut pace, 0.0, 5.0, 0.002, &mut random).len(), 7);
            pace.follow(at(5.0), limit(0.25));
            all.extend(times(&mut pace, 5.0, 60.0, 0.002, &mut random));
        }
        let share = 200.0 * 0.25 * 2.0;
        for start in 5..63 {
            let start = f64::from(start);
            let count = all.iter().filter(|time| (start..start + 2.0).contains(*time)).count();
            assert!((count as f64) < 1.5 * share, "{count} from {start}, where {share} is the share");
        }
    }

    /// A program with a whole fleet stands still for a second and a half, several times.
    #[test]
    fn a_fleet_that_stood_still_does_not_send_in_step() {
        let mut random = Seeded::new(2);
        let mut all = Vec::new();
        for _ in 0..200 {
            let mut pace = Pace::new();
            pace.follow(at(0.0), limit(0.25));
            for (from, to) in [(0.0, 17.0), (18.5, 38.0), (39.5, 59.0), (60.5, 80.0)] {
                all.extend(times(&mut pace, from, to - from, 0.002, &mut random));
            }
        }
        let share = 200.0 * 0.25 * 2.0;
        // What was late goes at once when the program goes on; after that it is as before.
        for start in 62..78 {
            let start = f64::from(start);
            let count = all.iter().filter(|time| (start..start + 2.0).contains(*time)).count();
            assert!((count as f64) < 1.5 * share, "{count} from {start}, where {share} is the share");
        }
    }

    #[test]
    fn idle_publishers_that_wake_together_spread_only_while_held_back() {
        let mut random = Seeded::new(3);
        let mut firsts = Vec::new();
        for _ in 0..200 {
            let mut pace = Pace::new();
            pace.follow(at(0.0), limit(0.5));
            match pace.ask(at(100.0), &mut random) {
                Pass::Wait(wait) => firsts.push(wait.as_secs_f64()),
                Pass::Go => firsts.push(0.0),
            }
        }
        firsts.sort_by(f64::total_cmp);
        assert!(firsts[20] > 0.1 && firsts[180] > 1.6 && firsts[199] <= 2.0, "{firsts:?}");
        let mut own = Pace::new();
        own.follow(at(0.0), Limit { held: false, ..limit(0.5) });
        assert_eq!(own.ask(at(100.0), &mut random), Pass::Go, "its own rate makes nobody wait without need");
    }

    #[test]
    fn a_change_counts_what_was_waited() {
        let (mut pace, mut random) = (Pace::new(), Seeded::new(1));
        pace.follow(at(0.0), Limit { held: false, ..limit(1.0) });
        assert_eq!(pace.ask(at(0.0), &mut random), Pass::Go);
        let Pass::Wait(_) = pace.ask(at(0.0), &mut random) else { panic!("the second must wait") };
        pace.follow(at(0.5), Limit { held: false, ..limit(0.1) });
        let Pass::Wait(wait) = pace.ask(at(0.5), &mut random) else { panic!("half an interval is left") };
        assert!((wait.as_secs_f64() - 5.0).abs() < 1e-6, "{wait}");
        pace.follow(at(0.5), limit(0.1));
        let Pass::Wait(same) = pace.ask(at(0.5), &mut random) else {
            panic!("the same rate changes nothing")
        };
        assert_eq!(same, wait);
        pace.follow(at(0.5), Limit { rate: None, ..limit(1.0) });
        assert_eq!(pace.ask(at(0.5), &mut random), Pass::Go);
    }

    #[test]
    fn an_urgent_message_goes_first_and_the_others_pay_for_it() {
        let (mut pace, mut random) = (Pace::new(), Seeded::new(1));
        pace.follow(at(0.0), Limit { held: false, ..limit(1.0) });
        assert_eq!(pace.ask_urgent(at(0.0)), Pass::Go);
        let Pass::Wait(wait) = pace.ask(at(0.0), &mut random) else { panic!("it pays") };
        assert!((wait.as_secs_f64() - 1.0).abs() < 1e-6);
        assert_eq!(pace.ask_urgent(at(0.0)), Pass::Go);
    }

    #[test]
    fn a_pause_holds_everything_and_ends_at_random() {
        let mut ends = Vec::new();
        for seed in 0..100 {
            let (mut pace, mut random) = (Pace::new(), Seeded::new(seed));
            pace.hold(at(0.0), Span::from_secs(2), &mut random);
            assert_eq!(pace.ask_urgent(at(1.0)), Pass::Wait(Span::from_secs(1)));
            let Pass::Wait(wait) = pace.ask(at(0.0), &mut random) else { panic!("held") };
            ends.push(wait.as_secs_f64());
        }
        ends.sort_by(f64::total_cmp);
        assert!(ends[0] >= 2.0 && ends[99] <= 3.0 && ends[90] - ends[10] > 0.5, "{ends:?}");
    }
}
