//! The gate in virtual time, behind a connection as the gateway has them: messages wait in order behind the one at the
//! head, which is asked about again when its pause is over.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::random::{Random, Seeded};
use tidegate_plugin::{Client, Hook, Moment, Plugin, Publish, Publisher, Verdict};

use crate::{Counts, Excess, GateConfig, Qos0, Snapshot};

/// One client's connection, in steps of a millisecond.
struct Line {
    publisher: Arc<Publisher>,
    hook: Box<dyn Hook>,
    counts: Arc<Counts>,
    now: u64,
    /// When each message came, with its QoS.
    waiting: VecDeque<(u64, u8)>,
    until: u64,
    /// When each message that passed came, and when it passed.
    passed: Vec<(u64, u64)>,
    delays: u64,
    dropped: Vec<(u64, u64)>,
    refused: Vec<Duration>,
    closed: Option<u64>,
}

impl Line {
    fn new(config: GateConfig, keep_alive: u16, level: u8) -> Self {
        let gate = config.build().unwrap();
        let publisher = Arc::new(Publisher::new("c".into(), None, keep_alive, level));
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let client =
            Client { id: "c", user: None, password: None, peer, certificate: None, publisher: &publisher };
        let hook = gate.connect(&client).unwrap().unwrap();
        let (waiting, passed, dropped, refused) = Default::default();
        let counts = gate.counts();
        Self {
            publisher,
            hook,
            counts,
            now: 1,
            waiting,
            until: 0,
            passed,
            delays: 0,
            dropped,
            refused,
            closed: None,
        }
    }

    fn plain() -> Self {
        Self::new(GateConfig::default(), 60, 4)
    }

    fn ask(&mut self, topic: &str, came: u64, qos: u8) -> Verdict {
        let now = Moment::from_nanos(self.now * 1_000_000);
        let waited = Duration::from_millis(self.now - came);
        self.hook.on_publish(&Publish { topic, payload: b"", qos, retain: false, now, waited })
    }

    /// A millisecond in which so many messages come.
    fn step(&mut self, count: usize, qos: u8) {
        self.now += 1;
        if self.closed.is_some() {
            return;
        }
        self.waiting.extend(std::iter::repeat_n((self.now, qos), count));
        if self.now < self.until {
            return;
        }
        while let Some((came, qos)) = self.waiting.front().copied() {
            match self.ask("t", came, qos) {
                Verdict::Continue => self.passed.push((came, self.now)),
                Verdict::Delay(pause) => {
                    self.delays += 1;
                    self.until = self.now + (pause.as_millis() as u64).max(1);
                    return;
                }
                Verdict::Drop => self.dropped.push((came, self.now)),
                Verdict::Refuse(refusal) => {
                    assert_eq!(refusal.code, 0x97);
                    self.refused.push(refusal.retry_after.unwrap());
                }
                Verdict::Close(refusal) => {
                    assert_eq!(refusal.code, 0x96);
                    self.closed = Some(self.now);
                    return;
                }
            }
            self.waiting.pop_front();
        }
    }

    /// A flood: there is always another message, and a client with an acknowledgement window has `window` of them waiting.
    fn flood(&mut self, millis: u64, qos: u8, window: usize) {
        for _ in 0..millis {
            let room = window.saturating_sub(self.waiting.len());
            self.step(room, qos);
        }
    }

    fn passed_between(&self, from: u64, to: u64) -> usize {
        self.passed.iter().filter(|(_, at)| (from..to).contains(at)).count()
    }

    /// The longest time without a message passing, from one moment on.
    fn longest_pause(&self, from: u64) -> u64 {
        let at: Vec<_> = self.passed.iter().map(|(_, at)| *at).filter(|at| *at >= from).collect();
        at.windows(2).map(|pair| pair[1] - pair[0]).max().expect("two messages")
    }

    fn counted(&self) -> Snapshot {
        self.counts.snapshot()
    }
}

#[test]
fn without_a_limit_everything_passes() {
    let mut line = Line::plain();
    line.flood(1000, 0, 1000);
    assert_eq!((line.passed.len(), line.delays), (1_000_000, 0));
    assert_eq!(line.counted(), Snapshot::default());
}

/// Who is too fast may be so by the slack at first; who goes on has the rate and little more.
#[test]
fn a_flood_is_held_to_the_rate() {
    for rate in [0.5, 1.0, 10.0, 333.0, 1000.0, 20_000.0] {
        let mut line = Line::plain();
        line.publisher.set_rate(rate);
        let window = (rate * 0.1) as usize + 100;
        line.flood(1001, 1, window);
        let from = line.now;
        assert!(line.passed.len() >= window, "a grace first");
        line.flood(1000, 1, window);
        let passed = line.passed_between(from, line.now) as f64;
        let burst = 2.0 + rate * 1.2 * 0.1;
        assert!(
            (passed - rate * 1.2 - burst).abs() <= 0.03 * rate + 1.5,
            "{passed} at {rate}, with slack and burst"
        );
        line.flood(500, 1, window);
        let (from, delays, seconds) = (line.now, line.delays, 20);
        line.flood(seconds * 1000, 1, window);
        let passed = line.passed_between(from, line.now) as f64;
        let allowed = rate * 1.05 * seconds as f64;
        assert!((passed - allowed).abs() <= 0.01 * allowed + 1.0, "{passed} of {allowed} at {rate}");
        assert!(line.delays - delays <= seconds * 51, "{} pauses: messages pass in runs", line.delays);
        assert_eq!(line.counted().overdue, 0);
        assert_eq!(line.counted().held, 1);
    }
}

#[test]
fn who_was_too_fast_and_is_no_more_gets_its_slack_back() {
    let mut line = Line::plain();
    line.publisher.set_rate(100.0);
    line.flood(5_000, 1, 100);
    line.waiting.clear();
    line.flood(1_100, 1, 0);
    let (from, delays) = (line.now, line.delays);
    (0..200).for_each(|_| {
        line.step(1, 1);
        (0..8).for_each(|_| line.step(0, 1));
    });
    assert_eq!(
        (line.passed_between(from, line.now + 1), line.delays),
        (200, delays),
        "a tenth over its rate"
    );
}

/// Sends as it is told, a little late or in small heaps, and hears of a new rate `lag` milliseconds later.
fn follow(line: &mut Line, changes: &[f64], lag: u64, seed: u64) {
    let mut random = Seeded::new(seed);
    let (mut told, mut due, mut pending) = (f64::INFINITY, 0.0, VecDeque::new());
    let mut heap: VecDeque<u64> = VecDeque::new();
    for rate in changes {
        line.publisher.set_rate(*rate);
        let hears = line.now + lag;
        let first = line.now as f64;
        for _ in 0..8_000 {
            if line.now == hears {
                told = *rate;
            }
            // Before it is told the first time it sends what it likes.
            let pace: f64 = if told.is_finite() { told } else { changes[0] * 3.0 };
            due = f64::max(due, first);
            while due <= line.now as f64 {
                // Late by up to 100 ms; the network keeps the order.
                let jitter = (random.uniform() * 100.0) as u64;
                pending.push_back(line.now + jitter);
                due += 1000.0 / pace;
            }
            heap.extend(pending.drain(..));
            heap.make_contiguous().sort_unstable();
            let ready = heap.iter().take_while(|at| **at <= line.now).count();
            heap.drain(..ready);
            line.step(ready, 1);
        }
    }
}

#[test]
fn a_publisher_that_follows_is_never_held() {
    for (seed, rate) in [0.5, 2.0, 20.0, 300.0, 2000.0].into_iter().enumerate() {
        let mut line = Line::plain();
        let changes = [1.0, 0.5, 0.55, 0.6, 2.0, 1.9, 0.3, 0.1].map(|factor| factor * rate);
        follow(&mut line, &changes, 700, seed as u64);
        assert_eq!((line.delays, line.counted()), (0, Snapshot::default()), "at {rate}");
        assert!(line.passed.len() as f64 > rate * 10.0);
    }
}

#[test]
fn no_pause_is_longer_than_half_the_keep_alive() {
    for keep_alive in 1..=60 {
        let mut line = Line::new(GateConfig::default(), keep_alive, 4);
        line.publisher.set_rate(0.001);
        line.flood(2_000, 1, 20);
        let from = line.now;
        line.flood(u64::from(keep_alive) * 3_000, 1, 20);
        let half = u64::from(keep_alive) * 500;
        let pause = line.longest_pause(from);
        assert!(pause <= half, "{pause} ms with {keep_alive} s");
        assert!(pause >= half - 1, "{pause} ms with {keep_alive} s: no sooner than needed");
        assert!(line.counted().overdue > 3);
    }
}

#[test]
fn without_a_keep_alive_nothing_has_to_pass() {
    let mut line = Line::new(GateConfig::default(), 0, 5);
    line.publisher.set_rate(0.0);
    line.flood(1_100, 2, 20);
    let before = line.passed.len();
    line.flood(100_000, 2, 20);
    assert_eq!(line.passed.len(), before);
}

#[test]
fn qos0_waits_for_a_quarter_of_the_keep_alive_at_most() {
    for keep_alive in [1, 2, 7, 30, 60, 0] {
        let mut line = Line::new(GateConfig::default(), keep_alive, 5);
        line.publisher.set_rate(0.001);
        line.flood(2_000, 0, 500);
        let from = line.now;
        line.flood(60_000, 0, 500);
        let bound = if keep_alive == 0 { 10_000 } else { (u64::from(keep_alive) * 250).min(10_000) };
        assert_eq!(line.longest_pause(from), bound, "with {keep_alive} s");
        assert_eq!(line.counted().dropped, 0);
    }
}

#[test]
fn qos0_is_dropped_if_so_configured() {
    let qos0_wait = Duration::from_secs(2);
    let config = GateConfig { qos0: Qos0::Drop, qos0_wait, ..GateConfig::default() };
    let mut line = Line::new(config, 60, 4);
    line.publisher.set_rate(10.0);
    line.flood(1_000, 0, 1);
    let from = line.now;
    // Ten in a millisecond is far over the rate.
    (0..20_000).for_each(|_| line.step(10, 0));
    let passed = line.passed_between(from, line.now) as f64;
    // The slack counts for a second, then the rate alone.
    assert!((passed - 10.5 * 20.0).abs() <= 13.0, "{passed}");
    assert_eq!(line.counted().dropped, line.dropped.len() as u64);
    assert!(line.dropped.len() > 170_000);
    assert!(line.dropped.iter().all(|(came, at)| at - came >= 2_000), "none before its time");
    assert!(line.passed.iter().chain(&line.dropped).all(|(came, at)| at - came <= 2_250), "none long after");
}

#[test]
fn qos1_is_never_dropped() {
    let config = GateConfig { qos0: Qos0::Drop, qos0_wait: Duration::ZERO, ..GateConfig::default() };
    let mut line = Line::new(config, 60, 4);
    line.publisher.set_rate(1.0);
    line.flood(10_000, 1, 50);
    assert_eq!(line.counted().dropped, 0);
    assert!(line.counted().delayed >= 8);
}

#[test]
fn a_higher_rate_is_seen_soon() {
    let mut line = Line::plain();
    line.publisher.set_rate(0.01);
    line.flood(5_000, 1, 100);
    let before = line.passed.len();
    line.publisher.set_rate(100.0);
    line.flood(1_251, 1, 100);
    let more = line.passed.len() - before;
    // A second and what it took to see it, and a burst that is larger by 7.
    assert!((119..=158).contains(&more), "{more}");
}

#[test]
fn what_passed_out_of_need_is_not_held_against_it_for_ever() {
    let mut line = Line::new(GateConfig::default(), 2, 4);
    line.publisher.set_rate(0.001);
    line.flood(600_000, 1, 5);
    assert!(line.counted().overdue > 500);
    line.publisher.set_rate(10.0);
    let from = line.now + 300;
    line.flood(2_300, 1, 5);
    assert!(line.passed_between(from, line.now) >= 19);
}

#[test]
fn what_the_gateway_lets_pass_all_the_same_is_booked() {
    let mut line = Line::new(GateConfig::default(), 10, 4);
    line.publisher.set_rate(10.0);
    line.flood(5_001, 0, 1000);
    // The gateway must hear what is behind: it asks before the pause is over, and does not obey.
    let owed = 40;
    for _ in 0..owed {
        let (came, qos) = line.waiting.pop_front().unwrap();
        assert!(matches!(line.ask("t", came, qos), Verdict::Delay(_)));
    }
    assert_eq!(line.counted().overdue, owed);
    let from = line.now;
    line.flood(2_000, 0, 1000);
    assert_eq!(line.passed_between(from, line.now), 0, "12 a second, and the bound of 2.5 s is not over");
    line.flood(8_000, 0, 1000);
    assert!(line.passed_between(from, line.now) as f64 >= 12.0 * 10.0 - 40.0 - 12.0);
}

#[test]
fn no_limit_lets_go_of_all_that_waits() {
    let mut line = Line::plain();
    line.publisher.set_rate(0.01);
    line.flood(5_000, 0, 100);
    assert_eq!(line.counted().held, 1);
    line.publisher.set_rate(f64::INFINITY);
    line.flood(251, 0, 0);
    assert!(line.waiting.is_empty());
    assert_eq!(line.counted().held, 0);
}

#[test]
fn a_client_that_leaves_is_no_longer_held() {
    let mut line = Line::plain();
    line.publisher.set_rate(0.01);
    line.flood(5_000, 0, 100);
    assert_eq!(line.counted().held, 1);
    line.hook.on_disconnect();
    assert_eq!(line.counted().held, 0);
}

#[test]
fn refusals_carry_the_wait_and_are_for_those_who_can_see_them() {
    let config = GateConfig { excess: Excess::Refuse, ..GateConfig::default() };
    for (level, qos, refuses) in [(5, 1, true), (5, 2, true), (5, 0, false), (4, 1, false), (4, 2, false)] {
        let mut line = Line::new(config, 60, level);
        line.publisher.set_rate(2.0);
        line.flood(1_001, qos, 1);
        line.flood(3_000, qos, 1);
        assert_eq!(!line.refused.is_empty(), refuses, "level {level}, QoS {qos}");
        assert_eq!(line.counted().refused, line.refused.len() as u64);
        // Who waits as told is let through.
        if let Some(wait) = line.refused.last().copied() {
            let before = line.passed.len();
            (0..wait.as_millis()).for_each(|_| line.step(0, qos));
            line.step(1, qos);
            assert_eq!(line.passed.len(), before + 1);
        }
    }
}

/// Twenty messages at once: each is told another time, and comes back to be let through.
#[test]
fn refused_messages_are_told_to_come_one_after_the_other() {
    let config = GateConfig { excess: Excess::Refuse, ..GateConfig::default() };
    let mut line = Line::new(config, 60, 5);
    line.publisher.set_rate(10.0);
    (0..2_000).for_each(|_| line.step(0, 1));
    line.step(1, 1);
    (0..2_000).for_each(|_| line.step(0, 1));
    line.step(40, 1);
    let mut waits: Vec<u64> = line.refused.iter().map(|wait| wait.as_millis() as u64).collect();
    assert!(waits.len() > 10 && waits.windows(2).all(|pair| pair[1] > pair[0] + 50), "{waits:?}");
    let (begun, passed, refused) = (line.now, line.passed.len(), line.refused.len());
    waits.reverse();
    while let Some(wait) = waits.last() {
        let due = begun + wait <= line.now;
        if due {
            waits.pop();
        }
        line.step(usize::from(due), 1);
    }
    assert_eq!(
        (line.passed.len() - passed, line.refused.len()),
        (refused, refused),
        "none was refused again"
    );
}

#[test]
fn who_sends_again_at_once_is_answered_late() {
    let config = GateConfig { excess: Excess::Refuse, ..GateConfig::default() };
    let mut line = Line::new(config, 60, 5);
    line.publisher.set_rate(10.0);
    line.flood(5_000, 1, 20);
    let before = line.refused.len();
    let (from, to) = (line.now, line.now + 10_000);
    line.flood(10_000, 1, 20);
    assert!(line.refused.len() - before <= 40, "{} refusals in ten seconds", line.refused.len() - before);
    assert!((95..=115).contains(&line.passed_between(from, to)), "{}", line.passed_between(from, to));
    assert!(line.refused.iter().all(|wait| *wait <= Duration::from_secs(30)));
}

#[test]
fn promises_end_when_the_rate_has_risen() {
    let config = GateConfig { excess: Excess::Refuse, ..GateConfig::default() };
    let mut line = Line::new(config, 60, 5);
    line.publisher.set_rate(0.1);
    line.step(1, 1);
    (0..3_000).for_each(|_| line.step(0, 1));
    line.step(40, 1);
    assert!(line.refused.last().is_some_and(|wait| *wait > Duration::from_secs(5)), "{:?}", line.refused);
    line.publisher.set_rate(100.0);
    line.step(1, 1);
    let before = line.refused.len();
    line.step(400, 1);
    let refused = &line.refused[before..];
    assert!(refused.len() > 20 && refused.iter().all(|wait| *wait < Duration::from_secs(5)), "{refused:?}");
}

#[test]
fn messages_that_pass_are_not_counted() {
    let mut line = Line::plain();
    line.publisher.set_rate(1.0);
    line.flood(5_000, 1, 2);
    line.publisher.set_passes(true);
    assert_eq!(line.ask("alarm", line.now, 1), Verdict::Continue);
    line.publisher.set_passes(false);
    assert!(matches!(line.ask("t", line.now, 1), Verdict::Delay(_)));
}

/// What becomes of messages over the rate is counted for the queue whose rate it is.
#[test]
fn the_queue_that_limits_hears_of_it() {
    let limited = |config: GateConfig| {
        let line = Line::new(GateConfig { grace: Duration::ZERO, ..config }, 60, 5);
        let queue = Arc::new(tidegate_plugin::Overrun::default());
        line.publisher.set_overrun(Some(Arc::clone(&queue)));
        line.publisher.set_rate(10.0);
        (line, queue)
    };
    let (mut line, queue) = limited(GateConfig::default());
    line.flood(1000, 1, 5);
    assert_eq!((queue.waiting(), queue.take()), (1, (0, 0)));
    line.publisher.set_rate(f64::INFINITY);
    line.flood(1000, 1, 5);
    assert_eq!(queue.waiting(), 0);
    let (mut line, queue) = limited(GateConfig { excess: Excess::Refuse, ..GateConfig::default() });
    line.flood(1000, 1, 5);
    assert_eq!(queue.take(), (line.refused.len() as u64, 0));
    assert!(!line.refused.is_empty());
    let dropping = GateConfig { qos0: Qos0::Drop, qos0_wait: Duration::ZERO, ..GateConfig::default() };
    let (mut line, queue) = limited(dropping);
    line.flood(1000, 0, 5);
    assert_eq!(queue.take(), (0, line.dropped.len() as u64));
    assert!(!line.dropped.is_empty());
}

#[test]
fn who_goes_on_is_closed_and_who_mends_its_ways_is_not() {
    let config = GateConfig { excess: Excess::Close, ..GateConfig::default() };
    let mut line = Line::new(config, 60, 5);
    line.publisher.set_rate(10.0);
    line.flood(30_000, 1, 10);
    let closed = line.closed.expect("it is closed");
    assert!((11_000..12_500).contains(&closed), "{closed}");
    assert_eq!(line.counted().closed, 1);

    let mut line = Line::new(config, 60, 5);
    line.publisher.set_rate(10.0);
    for _ in 0..5 {
        line.flood(8_000, 1, 2);
        (0..4_000).for_each(|milli| line.step(usize::from(milli % 200 == 199), 1));
    }
    assert_eq!(line.closed, None);
}

#[test]
fn control_topics_are_never_held() {
    let mut line = Line::plain();
    line.publisher.set_rate(0.0);
    line.flood(5_000, 1, 10);
    assert_eq!(line.counted().held, 1);
    assert_eq!(line.ask("$tide/v1/check/c", line.now, 1), Verdict::Continue);
    assert_eq!(line.counted().held, 1, "the message at the head still waits");
}

#[test]
fn bad_settings_are_refused() {
    let good = GateConfig::default();
    let bad = [
        GateConfig { slack: f64::NAN, ..good },
        GateConfig { slack: -0.1, ..good },
        GateConfig { burst: 0, ..good },
        GateConfig { burst_time: Duration::from_millis(19), ..good },
    ];
    assert!(bad.into_iter().all(|config| config.build().is_err()));
}

proptest! {
    /// Over any stretch of time no more passes than the rate and its slack make, a burst, and what had to.
    #[test]
    fn never_more_than_the_rate_allows(
        steps in proptest::collection::vec((0.0..300.0f64, 1u64..3000, 0usize..40, 0u8..3), 1..20),
        keep_alive in 0u16..5,
    ) {
        let config = GateConfig { grace: Duration::ZERO, ..GateConfig::default() };
        let mut line = Line::new(config, keep_alive, 5);
        for (rate, millis, window, qos) in steps {
            line.publisher.set_rate(rate);
            // A publisher that is held sees the new rate when its pause is over.
            line.flood(251, qos, window.max(1));
            let burst = f64::max(5.0, rate * 1.2 * 0.1);
            // The most that any stretch up to now has passed over what was allowed in it.
            let mut over: f64 = 0.0;
            for _ in 0..millis {
                let (before, overdue) = (line.passed.len(), line.counted().overdue);
                line.flood(1, qos, window);
                let forced = (line.counted().overdue - overdue) as f64;
                over = (over - rate * 1.2 / 1000.0).max(0.0) + (line.passed.len() - before) as f64 - forced;
                prop_assert!(over <= burst + 1e-3, "{} over, at a rate of {}", over, rate);
            }
        }
    }

    /// Any numbers are harmless: no panic, no pause of nothing.
    #[test]
    fn wild_numbers_are_harmless(asks in proptest::collection::vec((any::<u64>(), any::<f64>(), 0u8..3), 1..50)) {
        let mut line = Line::new(GateConfig { grace: Duration::ZERO, ..GateConfig::default() }, 60, 4);
        for (now, rate, qos) in asks {
            line.publisher.set_rate(rate);
            let (now, waited) = (Moment::from_nanos(now), Duration::from_nanos(now));
            let verdict = line.hook.on_publish(&Publish { topic: "t", payload: b"", qos, retain: false, now, waited });
            let fine = match verdict {
                Verdict::Delay(pause) => !pause.is_zero() && pause <= Duration::from_secs(30),
                verdict => verdict == Verdict::Continue,
            };
            prop_assert!(fine);
        }
    }
}
