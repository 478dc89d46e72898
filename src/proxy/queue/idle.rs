//! Whether consumers had nothing to do, which tells what was lost upstream.

use super::State;
use crate::broker::clock::Millis;

/// How long consumers must have had nothing to do before what does not come counts as lost, in milliseconds.
const IDLE: Millis = 250;
/// How long they must have had nothing to do again and again, each time within `IDLE`, for the same.
const OFTEN: Millis = 2_000;
/// How long a message may at least be on its way through a broker with nothing else to do. It is shorter than what may wait: else
/// as many lost messages as may wait would never be missed, and consumers have less to do for ever.
const ON_ITS_WAY: Millis = 50;

/// Since when consumers have had nothing to do.
#[derive(Debug)]
pub(super) struct Idle {
    /// Without a break, and messages that came since then.
    since: Millis,
    arrived: u64,
    /// When they last had nothing to do, and since when that was so again and again.
    last: Millis,
    often: Millis,
    /// The fewest messages that should have come to them whenever they had nothing to do.
    least: u64,
    /// Messages that just came may be on their way: those of this piece of time and of the one before.
    piece: Millis,
    fresh: (u64, u64),
    /// The shortest time that a message took to a consumer. Where lost ones are thought to wait, all seem to take longer: that
    /// of earlier ones counts.
    way: Option<Millis>,
}

impl Idle {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            since: now,
            arrived: 0,
            last: now,
            often: now,
            least: u64::MAX,
            piece: now,
            fresh: (0, 0),
            way: None,
        }
    }

    /// Messages came.
    pub(super) fn arrived(&mut self, now: Millis, count: u64) {
        self.turn_over(now);
        self.arrived += count;
        self.fresh.1 += count;
    }

    /// A message came to a consumer so many milliseconds after it was published.
    pub(super) fn took(&mut self, millis: Millis) {
        self.way = Some(self.way.map_or(millis, |way| way.min(millis)));
    }

    /// Consumers have something to do.
    fn at_work(&mut self, now: Millis) {
        (self.since, self.arrived) = (now, 0);
        if now > self.last + IDLE {
            (self.often, self.least) = (now, u64::MAX);
        }
    }

    /// Consumers have nothing to do, though so many messages wait; how many of these are lost, as far as can be said. News
    /// of other nodes take their time.
    fn nothing_to_do(&mut self, now: Millis, waiting: u64, news: Millis) -> u64 {
        self.turn_over(now);
        if now > self.last + IDLE + news {
            (self.often, self.least) = (now, u64::MAX);
        }
        self.last = now;
        self.least = self.least.min(waiting.saturating_sub(self.fresh.0 + self.fresh.1));
        if now >= self.since + IDLE + news {
            let lost = waiting.saturating_sub(self.arrived);
            (self.since, self.arrived) = (now, 0);
            (self.often, self.least) = (now, u64::MAX);
            return lost;
        }
        if now < self.often + OFTEN + news {
            return 0;
        }
        self.often = now;
        std::mem::replace(&mut self.least, u64::MAX)
    }

    fn turn_over(&mut self, now: Millis) {
        let on_its_way = self.way.map_or(IDLE, |way| way.saturating_mul(2).clamp(ON_ITS_WAY, IDLE));
        if now >= self.piece + on_its_way {
            let before = if now < self.piece + 2 * on_its_way { self.fresh.1 } else { 0 };
            (self.piece, self.fresh) = (now, (before, 0));
        }
    }
}

impl State {
    /// Consumers have something to do, or just had.
    pub(super) fn at_work(&mut self, now: Millis) {
        self.idle.at_work(now);
        self.settle(now);
    }

    /// A consumer that has nothing to do would get what waits: what came before and does not come any more is lost. How
    /// many messages a broker sends at a time is not asked, since that changes from moment to moment.
    pub(super) fn settle(&mut self, now: Millis) {
        // where there is no consumer that is not seen soon enough
        if !self.is_told(now) && self.all_in_flight() == 0 && self.blocked == 0 && self.consumers > 0 {
            let (waiting, news) = (self.upstream.depth(), 2 * self.news_takes());
            let lost = self.idle.nothing_to_do(now, waiting, news);
            self.lose(now, lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_idle_again_and_again_has_got_all() {
        let (mut idle, mut waiting) = (Idle::new(0), 20);
        // one message every 100 ms is done at once; 20 more are said to wait
        for turn in 1..=100 {
            let now = turn * 100;
            idle.arrived(now, 1);
            idle.at_work(now);
            let lost = idle.nothing_to_do(now + 10, waiting, 0);
            assert!(lost == 0 || turn >= 20, "not yet: {turn}");
            waiting -= lost;
        }
        assert!((1..=6).contains(&waiting), "{waiting}: those that just came may be on their way");
    }

    #[test]
    fn who_is_busy_proves_nothing() {
        let mut idle = Idle::new(0);
        for turn in 1..=40 {
            idle.at_work(turn * 300 - 10);
            assert_eq!(idle.nothing_to_do(turn * 300, 7, 0), 0);
        }
    }
}
