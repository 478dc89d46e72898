//! How many unacknowledged messages a client may have.
//!
//! A large window hides a queue in the client, where nobody can see it; a small one starves a fast client or one far
//! away. The right one holds what is on its way and at work, and one message more. By Little's law that is what is in
//! flight times the share that the delay without waiting has in the present one. That delay is what a client with little
//! to do shows. So where messages seem to wait in the client, the window is halved for a moment, and again as long as
//! less waits then.

use super::clock::Millis;

/// Acknowledgements within this time let the window grow, whatever waits in the client.
const PROMPT: Millis = 10;
/// Only acknowledgements later than this make it shrink.
const LATE: Millis = 25;
/// What a client gets before it has shown anything: as much as elsewhere, since there are clients that acknowledge late.
const FIRST: u32 = 20;
/// How often the window is halved for a moment, at most: after so much time, and after so many delays.
const PROBE: Millis = 20_000;
const PROBE_DELAYS: Millis = 100;
/// Acknowledgements that a mean is taken of, at least.
const SAMPLE: u32 = 12;

/// The in-flight window towards one client.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    size: u32,
    max: u32,
    round: Round,
    /// Whether the window was full in the last round.
    was_full: bool,
    phase: Phase,
    /// The shortest delay since the window was last halved.
    least: Millis,
    /// The mean delay of a client with little to do, as far as it was seen; 0 while it was not.
    base: Millis,
    /// It is not halved before this moment.
    probe_at: Millis,
    batch: Batch,
}

/// How many messages a client acknowledges at a time. With fewer than that in flight it might never acknowledge any.
#[derive(Debug, Clone, Copy, Default)]
struct Batch {
    /// When it last acknowledged something, and at how many moments in this round.
    at: Millis,
    moments: u32,
    /// The mean of a round, the highest one lately.
    size: u32,
}

impl Batch {
    fn acknowledged(&mut self, now: Millis) {
        self.moments += u32::from(now != self.at || self.moments == 0);
        self.at = now;
    }

    /// A round of so many acknowledgements is over; what was seen long ago counts less and less.
    fn end_round(&mut self, count: u32) {
        let mean = (count + self.moments / 2) / self.moments.max(1);
        self.size = mean.max(self.size - self.size.div_ceil(4));
        self.moments = 0;
    }

    /// The smallest window: twice what it acknowledges at a time, since one batch may come in two parts.
    fn least_window(&self) -> u32 {
        if self.size > 1 { 2 * self.size } else { 1 }
    }
}

/// As many acknowledgements as the window holds.
#[derive(Debug, Clone, Copy)]
struct Round {
    count: u32,
    left: u32,
    delays: Millis,
    least: Millis,
    /// The most that was in flight.
    peak: u32,
    /// Whether the window was full at one of them, and so held something back.
    full: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The window follows the delay.
    Follow,
    /// The window has changed; what was sent before comes back first.
    Settle,
    /// The window is halved; what was sent before comes back first.
    Drain(Probe),
    /// All that comes back was sent with the halved window.
    Measure(Probe),
}

/// What the window was before it was halved, and what was seen then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Probe {
    size: u32,
    peak: u32,
    mean: Millis,
}

impl Round {
    fn of(count: u32) -> Self {
        Self { count, left: count, delays: 0, least: Millis::MAX, peak: 0, full: false }
    }

    fn mean(&self) -> Millis {
        self.delays / Millis::from(self.count)
    }
}

impl Window {
    /// A window for a client that accepts `max` at a time.
    pub fn new(max: u16) -> Self {
        let max = u32::from(max.max(1));
        let size = FIRST.min(max);
        Self {
            size,
            max,
            round: Round::of(size.max(SAMPLE)),
            was_full: false,
            // the first of them come to a client with nothing to do
            phase: Phase::Settle,
            least: Millis::MAX,
            base: 0,
            probe_at: 0,
            batch: Batch::default(),
        }
    }

    /// Its size now.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// One message was acknowledged after `delay`; so many were on their way on this connection, with it.
    pub fn acknowledged(&mut self, delay: Millis, in_flight: usize, now: Millis) {
        self.least = self.least.min(delay);
        self.batch.acknowledged(now);
        let round = &mut self.round;
        round.delays = round.delays.saturating_add(delay);
        round.least = round.least.min(delay);
        round.peak = round.peak.max(in_flight as u32);
        round.full |= in_flight >= self.size as usize;
        round.left = round.left.saturating_sub(1);
        let probing = matches!(self.phase, Phase::Drain(_) | Phase::Measure(_));
        if delay <= PROMPT && !probing && (self.round.full || self.was_full) {
            self.size = (self.size + 1).min(self.max);
        }
        if self.round.left == 0 {
            self.end_round(now);
        }
    }

    fn end_round(&mut self, now: Millis) {
        let (round, size, mean) = (self.round, self.size, self.round.mean());
        self.batch.end_round(round.count);
        self.phase = match self.phase {
            Phase::Follow if mean > LATE && self.seems_to_wait(&round) && self.may_probe(&round, now) => {
                self.base = mean;
                self.size = (round.peak.min(size) / 2).max(1);
                Phase::Drain(Probe { size, peak: round.peak, mean })
            }
            Phase::Follow => self.follow(&round),
            Phase::Settle => Phase::Follow,
            Phase::Drain(probe) => Phase::Measure(probe),
            Phase::Measure(probe) => self.measured(probe, &round, now),
        };
        self.size = self.size.max(self.batch.least_window().min(size));
        self.was_full = round.full;
        // no more than that was on its way, and it comes back first
        self.round = Round::of(round.peak.max(SAMPLE));
    }

    /// Whether the window may be halved: now, and for a client that acknowledges less at a time than would be left.
    fn may_probe(&self, round: &Round, now: Millis) -> bool {
        now >= self.probe_at && round.peak.min(self.size) / 2 >= self.batch.least_window()
    }

    /// Whether the client has several messages, and they take clearly longer than one has.
    fn seems_to_wait(&self, round: &Round) -> bool {
        round.peak > 1 && round.mean() > self.least + self.least / 4
    }

    /// Less waited with half the window: perhaps still less will with a quarter. Else that is what it takes.
    fn measured(&mut self, probe: Probe, round: &Round, now: Millis) -> Phase {
        let mean = round.mean().max(1);
        let waited = mean * 4 < self.base * 3;
        self.base = self.base.min(mean);
        if waited && self.size > 1 {
            self.size /= 2;
            return Phase::Drain(probe);
        }
        self.size = self.target(probe.peak, probe.mean).min(probe.size);
        self.least = round.least;
        self.probe_at = now + PROBE.max(PROBE_DELAYS * self.base);
        Phase::Settle
    }

    /// Goes towards what is on its way and at work, and one more.
    fn follow(&mut self, round: &Round) -> Phase {
        let mean = round.mean();
        if mean <= PROMPT {
            return Phase::Follow;
        }
        if !self.seems_to_wait(round) {
            self.base = mean.max(1);
            if round.full {
                // fast as long as nothing ever waited
                let more = if self.probe_at == 0 { self.size } else { self.size.div_ceil(8) };
                self.size = (self.size + more).min(self.max);
            }
            return Phase::Follow;
        }
        let target = self.target(round.peak, mean);
        if target > self.size && round.full {
            self.size = (self.size + self.size.div_ceil(8)).min(target).min(self.max);
        } else if target < self.size && mean > LATE {
            self.size = target;
            return Phase::Settle;
        }
        Phase::Follow
    }

    fn target(&self, in_flight: u32, mean: Millis) -> u32 {
        // half as much again, since both delays are means of few, and work is uneven; and what waits for less than
        // that is harmless, while a client that waits for us is not
        let base = (self.base.saturating_mul(3) / 2).max(LATE);
        let at_work = u64::from(in_flight).saturating_mul(base) / mean.max(1);
        u32::try_from(at_work + 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};

    use super::*;

    /// A client so far away, with so many hands that each take so long for a message.
    struct Client {
        trip: Millis,
        hands: usize,
        service: Millis,
        /// Whether some messages take longer than others.
        uneven: bool,
    }

    /// What it processed, and the largest window in the last tenth of the time.
    struct Seen {
        processed: u64,
        window: usize,
    }

    impl Client {
        /// Messages always wait for it.
        fn work(&self, window: &mut Window, time: Millis) -> Seen {
            let mut seen = Seen { processed: 0, window: 0 };
            // when each hand is free, when each message on its way was sent, and when its acknowledgement comes
            let mut free: BinaryHeap<Reverse<Millis>> = (0..self.hands).map(|_| Reverse(0)).collect();
            let mut acks: BinaryHeap<Reverse<(Millis, Millis)>> = BinaryHeap::new();
            let (mut now, mut chance) = (1, 88_172_645_463_325_252_u64);
            while now < time {
                while acks.len() < window.size() {
                    let Reverse(hand) = free.pop().expect("a hand");
                    chance ^= chance << 13;
                    chance ^= chance >> 7;
                    chance ^= chance << 17;
                    let service = if self.uneven { chance % (2 * self.service + 1) } else { self.service };
                    let done = hand.max(now + self.trip / 2) + service;
                    free.push(Reverse(done));
                    acks.push(Reverse((done + self.trip / 2, now)));
                }
                let in_flight = acks.len();
                let Reverse((at, sent)) = acks.pop().expect("something on its way");
                now = at;
                seen.processed += 1;
                window.acknowledged(now - sent, in_flight, now);
                if now > time / 10 * 9 {
                    seen.window = seen.window.max(window.size());
                }
            }
            seen
        }

        fn check(trip: Millis, hands: usize, service: Millis, largest: usize) {
            for uneven in [false, true] {
                Self { trip, hands, service, uneven }.keeps_busy(largest);
            }
        }

        fn keeps_busy(&self, largest: usize) {
            const TIME: Millis = 300_000;
            let seen = self.work(&mut Window::new(4096), TIME);
            let most = TIME / self.service * self.hands as u64;
            assert!(seen.processed * 100 > most * 80, "{} of {most}", seen.processed);
            assert!(seen.window <= largest, "{} at the end, not {largest}", seen.window);
        }
    }

    #[test]
    fn a_slow_client_has_one_message_at_work_and_one_waiting() {
        Client::check(0, 1, 36, 5);
        Client::check(2, 1, 100, 5);
    }

    #[test]
    fn a_client_that_works_quickly_never_waits_for_us() {
        let mut window = Window::new(4096);
        let client = Client { trip: 0, hands: 1, service: 1, uneven: false };
        for _ in 0..100 {
            client.work(&mut window, 1_000);
            assert!((10..=40).contains(&window.size()), "{}", window.size());
        }
    }

    #[test]
    fn a_client_with_many_hands_keeps_them_busy() {
        Client::check(0, 8, 100, 25);
        Client::check(0, 8, 20, 40);
        Client::check(10, 64, 40, 170);
    }

    #[test]
    fn a_client_far_away_has_what_is_on_its_way() {
        Client::check(600, 1, 10, 110);
        Client::check(600, 1, 300, 7);
    }

    /// One at a time, acknowledged so many at a time, however long that takes.
    fn work_in_batches(window: &mut Window, batch: usize, service: Millis, time: Millis) -> u64 {
        let (mut now, mut free, mut processed) = (1, 1, 0);
        let (mut waiting, mut done) = (VecDeque::new(), VecDeque::new());
        while now < time {
            while waiting.len() + done.len() < window.size() {
                waiting.push_back(now);
            }
            let Some(sent) = waiting.pop_front() else { break };
            free = now.max(free) + service;
            now = free;
            done.push_back(sent);
            if done.len() == batch {
                for sent in std::mem::take(&mut done) {
                    let in_flight = waiting.len() + batch;
                    window.acknowledged(now - sent, in_flight, now);
                    processed += 1;
                }
            }
        }
        processed
    }

    #[test]
    fn a_client_that_acknowledges_many_at_a_time_is_never_waited_for() {
        for (batch, service) in [(1, 20), (2, 20), (5, 20), (10, 20), (10, 100), (20, 20), (16, 1)] {
            let (time, work) = (600_000, batch as Millis * service);
            let mut window = Window::new(4096);
            let processed = work_in_batches(&mut window, batch, service, time);
            assert!(service == 1 || window.size() <= (3 * batch).max(20), "{} for {batch}", window.size());
            assert!(
                processed + 2 * work >= time / service,
                "{processed} in batches of {batch}, {service} ms each"
            );
        }
    }

    /// Acknowledgements that came together while all went well do not keep the window large when it does not.
    #[test]
    fn a_client_that_becomes_slow_keeps_little() {
        let mut window = Window::new(4096);
        for turn in 1..200 {
            (0..20).for_each(|_| window.acknowledged(1, 20, turn));
        }
        window.probe_at = 0;
        Client { trip: 0, hands: 1, service: 100, uneven: false }.work(&mut window, 300_000);
        assert!(window.size() <= 5, "{}", window.size());
    }

    #[test]
    fn a_fast_client_gets_all_that_it_accepts() {
        let mut window = Window::new(1000);
        Client { trip: 0, hands: 1000, service: 1, uneven: false }.work(&mut window, 5_000);
        assert_eq!(window.size(), 1000);
    }

    #[test]
    fn a_client_that_moves_far_away_recovers() {
        let mut window = Window::new(4096);
        Client { trip: 0, hands: 1, service: 36, uneven: false }.work(&mut window, 60_000);
        assert!(window.size() <= 3);
        // its moments begin anew
        window.probe_at = window.probe_at.saturating_sub(60_000);
        let seen = Client { trip: 400, hands: 1, service: 36, uneven: false }.work(&mut window, 120_000);
        assert!(seen.processed > 120_000 / 36 * 65 / 100, "{}", seen.processed);
    }

    #[test]
    fn a_client_with_little_to_do_keeps_its_window() {
        let mut window = Window::new(4096);
        for second in 1..10_000 {
            window.acknowledged(36, 1, second * 1000);
        }
        assert_eq!(window.size(), FIRST as usize);
    }

    #[test]
    fn it_respects_the_clients_maximum() {
        let mut window = Window::new(2);
        assert_eq!(window.size(), 2);
        let mut sent = VecDeque::from([0; 2]);
        for now in 1..1000 {
            let delay = now - sent.pop_front().expect("two");
            window.acknowledged(delay, window.size(), now);
            sent.push_back(now);
            assert!((1..=2).contains(&window.size()));
        }
    }
}
