//! Who waits for an answer, and who is told to come back.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use tidegate_control::pacing::Bucket;
use tidegate_control::time::{Moment, Span};

use crate::config::CheckConfig;
use crate::message::{Asked, Check};
use crate::share::Share;

/// Nobody is sent away for longer.
const LONGEST: Span = Span::from_secs(60);
/// Checks that are answered with one look.
const MOST_MERGED: usize = 10_000;

/// What became of a check that came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It waits for its turn.
    Waiting,
    /// It will be answered with another one that asks the same.
    Merged,
    /// It can't be answered soon: it may come back after this time.
    Later(Span),
}

/// Checks to be answered with one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// What they ask.
    pub asked: Vec<Asked>,
    /// The updates that each answer may bring.
    pub max: usize,
    /// Who asked.
    pub askers: Vec<Asker>,
}

/// Somebody who waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The client.
    pub client: String,
    /// Its number for the check.
    pub id: u64,
    /// When the check came.
    pub came: Moment,
    /// What it says about the answer.
    pub reply: Reply,
}

/// What an MQTT 5 client may say about the answer that it wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// The topic; none for the usual one.
    pub topic: Option<String>,
    /// What it is to carry.
    pub correlation: Option<Box<[u8]>>,
}

/// Checks that wait for their moment.
#[derive(Debug)]
struct Waiting {
    key: u64,
    due: Moment,
    served: Served,
}

/// The waiting room. It knows no clock: time comes in as a value.
#[derive(Debug)]
pub struct Desk {
    rate: f64,
    max_wait: Span,
    waiting: VecDeque<Waiting>,
    /// Books a place for each that waits.
    limiter: Bucket,
    /// Up to when those who were sent away fill the time.
    promised: Moment,
    share: Share,
}

impl Desk {
    /// A desk with the limit of a configuration; none when that is no rate.
    pub fn new(config: &CheckConfig, now: Moment) -> Option<Self> {
        // A tenth of a second's worth at once: the limit is about load, not about single checks.
        let limiter = Bucket::new(now, config.max_rate, (config.max_rate / 10.0).max(1.0)).ok()?;
        let max_wait = Span::from_secs_f64(config.max_wait.as_secs_f64());
        let share = Share::new(config.max_rate);
        Some(Self {
            rate: config.max_rate,
            max_wait,
            waiting: VecDeque::new(),
            limiter,
            promised: now,
            share,
        })
    }

    /// A check of a client comes in. Nothing is kept of one that may come back later.
    pub fn submit(&mut self, client: &str, reply: &Reply, check: Check, now: Moment) -> Submitted {
        self.share.asks(now, hash(&client));
        let Check { id, asked, max } = check;
        let asker = || Asker { client: client.to_owned(), id, came: now, reply: reply.clone() };
        let key = hash(&(&asked, max));
        let mut same =
            self.waiting.iter_mut().filter(|other| other.key == key).map(|other| &mut other.served);
        if let Some(served) = same.find(|served| served.asked == asked && served.max == max)
            && served.askers.len() < MOST_MERGED
        {
            served.askers.push(asker());
            return Submitted::Merged;
        }
        let wait = self.limiter.wait(now, 1);
        if wait > self.max_wait {
            return Submitted::Later(self.promise(now));
        }
        self.limiter.charge(now, 1);
        let served = Served { asked, max, askers: vec![asker()] };
        self.waiting.push_back(Waiting { key, due: now + wait, served });
        Submitted::Waiting
    }

    /// The next to be answered; or else how long until there is one.
    pub fn serve(&mut self, now: Moment) -> Result<Served, Option<Span>> {
        let Some(first) = self.waiting.front() else { return Err(None) };
        if now < first.due {
            return Err(Some(first.due.since(now)));
        }
        self.waiting.pop_front().map(|waiting| waiting.served).ok_or(None)
    }

    /// The checks a second that each client should make at most now; none while there is room for all.
    pub fn share(&mut self, now: Moment) -> Option<f64> {
        self.share.each(now)
    }

    /// The next free time: everybody gets another one.
    fn promise(&mut self, now: Moment) -> Span {
        let next = self.promised.max(now + self.max_wait) + Span::from_rate(self.rate);
        let wait = next.since(now);
        if wait > LONGEST {
            return LONGEST;
        }
        self.promised = next;
        wait
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::time::Duration;

    use super::*;

    fn desk() -> Desk {
        let config =
            CheckConfig { max_rate: 100.0, max_wait: Duration::from_millis(50), ..CheckConfig::default() };
        Desk::new(&config, at(0.0)).unwrap()
    }

    fn at(seconds: f64) -> Moment {
        Moment::from_secs_f64(seconds)
    }

    fn check(id: u64, filter: &str) -> Check {
        Check { id, asked: vec![Asked { filter: filter.into(), since: None }], max: 10 }
    }

    fn submit(desk: &mut Desk, client: &str, check: Check, now: Moment) -> Submitted {
        desk.submit(client, &Reply::default(), check, now)
    }

    #[test]
    fn those_who_ask_the_same_are_answered_together() {
        let mut desk = desk();
        assert_eq!(submit(&mut desk, "a", check(1, "x"), at(0.0)), Submitted::Waiting);
        assert_eq!(submit(&mut desk, "b", check(7, "x"), at(0.0)), Submitted::Merged);
        assert_eq!(submit(&mut desk, "c", check(1, "y"), at(0.0)), Submitted::Waiting);
        let served = desk.serve(at(0.0)).unwrap();
        let who: Vec<(&str, u64)> = served.askers.iter().map(|asker| (&*asker.client, asker.id)).collect();
        assert_eq!(who, [("a", 1), ("b", 7)]);
        assert_eq!(submit(&mut desk, "d", check(1, "x"), at(0.0)), Submitted::Waiting, "the other is gone");
        assert_eq!(desk.serve(at(0.0)).unwrap().askers[0].client, "c");
        assert_eq!(desk.serve(at(0.0)).unwrap().askers[0].client, "d");
        assert_eq!(desk.serve(at(0.0)), Err(None));
    }

    #[test]
    fn nobody_waits_long_and_all_are_told_another_time() {
        let mut desk = desk();
        let mut retries = Vec::new();
        for n in 0..1_000 {
            match submit(&mut desk, &format!("c{n}"), check(1, &format!("t/{n}")), at(0.0)) {
                Submitted::Later(retry) => retries.push(retry.as_secs_f64()),
                Submitted::Waiting => assert!(retries.is_empty()),
                Submitted::Merged => panic!("nobody asks the same"),
            }
        }
        assert!((980..=990).contains(&retries.len()), "{}", retries.len());
        // Ten at once and five within the wait; the others in the seconds after, 100 in each.
        for second in 1..9 {
            let second = f64::from(second);
            let count = retries.iter().filter(|retry| (second..second + 1.0).contains(*retry)).count();
            assert!((99..=101).contains(&count), "{count}");
        }
        assert!(desk.share(at(0.0)).is_some_and(|share| (share - 0.09).abs() < 1e-9));
        let mut answered = 0;
        for step in 0..60 {
            while desk.serve(at(f64::from(step) / 1000.0)).is_ok() {
                answered += 1;
            }
        }
        assert_eq!(answered, 1_000 - retries.len(), "all who wait are answered within 60 ms");
    }

    #[test]
    fn nobody_is_sent_away_for_ever() {
        let mut desk = desk();
        for n in 0..20_000 {
            if let Submitted::Later(retry) = submit(&mut desk, "c", check(n, &format!("t/{n}")), at(0.0)) {
                assert!(retry <= LONGEST);
            }
        }
        assert!(desk.waiting.len() <= 20);
    }
}
