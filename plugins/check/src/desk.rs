//! Who waits for an answer, and who is told to come back.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use tidegate_control::pacing::Bucket;
use tidegate_control::time::{Moment, Span};

use crate::config::CheckConfig;
use crate::message::{Check, Question};
use crate::share::Share;

/// Nobody is sent away for longer.
const LONGEST: Span = Span::from_secs(60);

/// What became of a check that came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It waits for its turn.
    Waiting,
    /// It will be answered with another one that asks the same.
    Merged,
    /// It can't be answered soon: it may come back after this time.
    Later(Span),
    /// There is no room for it to wait: it may come back after this time.
    NoRoom(Span),
}

/// Checks to be answered with one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// What they ask.
    pub question: Question,
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
    /// The bytes that all of this takes.
    bytes: usize,
    served: Served,
}

/// The waiting room. It knows no clock: time comes in as a value.
#[derive(Debug)]
pub struct Desk {
    rate: f64,
    max_wait: Span,
    max_waiting: usize,
    max_waiting_bytes: usize,
    waiting: VecDeque<Waiting>,
    /// How many wait, those that were merged too, and their bytes.
    askers: usize,
    bytes: usize,
    /// Books a place for each that waits.
    limiter: Bucket,
    /// Books the topics that are looked at.
    looks: Bucket,
    /// Up to when those who were sent away fill the time.
    promised: Moment,
    share: Share,
}

impl Desk {
    /// A desk with the limits of a configuration; none when those are no rates.
    pub fn new(config: &CheckConfig, now: Moment) -> Option<Self> {
        // A tenth of a second's worth at once: the limits are about load, not about single checks.
        let bucket = |rate: f64| Bucket::new(now, rate, (rate / 10.0).max(1.0)).ok();
        Some(Self {
            rate: config.max_rate,
            max_wait: Span::from_secs_f64(config.max_wait.as_secs_f64()),
            max_waiting: config.max_waiting,
            max_waiting_bytes: config.max_waiting_bytes,
            waiting: VecDeque::new(),
            askers: 0,
            bytes: 0,
            limiter: bucket(config.max_rate)?,
            looks: bucket(config.max_looks as f64)?,
            promised: now,
            share: Share::new(config.max_rate),
        })
    }

    /// A check of a client comes in; `looks` is how many topics must be looked at to answer it. Nothing is kept of one
    /// that may come back later.
    pub fn submit(
        &mut self,
        client: &str,
        reply: &Reply,
        check: Check,
        looks: u64,
        now: Moment,
    ) -> Submitted {
        self.share.asks(now, hash(&client));
        let Check { id, question } = check;
        let key = hash(&question);
        let same = |other: &Waiting| other.key == key && other.served.question == question;
        let same = self.waiting.iter().position(same);
        // Whoever asks the same as another costs no look, but an answer of its own.
        let answer = self.limiter.wait(now, 1);
        let wait = if same.is_some() { answer } else { answer.max(self.looks.wait(now, looks)) };
        if wait > self.max_wait {
            return Submitted::Later(self.promise(now));
        }
        let asker = Asker { client: client.to_owned(), id, came: now, reply: reply.clone() };
        let bytes = asker.size() + if same.is_some() { 0 } else { question.size() };
        if self.askers >= self.max_waiting || self.bytes + bytes > self.max_waiting_bytes {
            return Submitted::NoRoom(self.promise(now));
        }
        self.limiter.charge(now, 1);
        self.askers += 1;
        self.bytes += bytes;
        if let Some(other) = same.and_then(|place| self.waiting.get_mut(place)) {
            other.served.askers.push(asker);
            other.bytes += bytes;
            return Submitted::Merged;
        }
        self.looks.charge(now, looks);
        let served = Served { question, askers: vec![asker] };
        self.waiting.push_back(Waiting { key, due: now + wait, bytes, served });
        Submitted::Waiting
    }

    /// The next to be answered; or else how long until there is one.
    pub fn serve(&mut self, now: Moment) -> Result<Served, Option<Span>> {
        let Some(first) = self.waiting.front() else { return Err(None) };
        if now < first.due {
            return Err(Some(first.due.since(now)));
        }
        let Waiting { bytes, served, .. } = self.waiting.pop_front().ok_or(None)?;
        self.askers -= served.askers.len();
        self.bytes -= bytes;
        Ok(served)
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

impl Asker {
    /// The bytes that it takes to keep it, about.
    fn size(&self) -> usize {
        size_of::<Self>() + self.client.len() + self.reply.size()
    }
}

impl Reply {
    /// The bytes that it takes beside itself.
    pub(crate) fn size(&self) -> usize {
        self.topic.as_ref().map_or(0, String::len) + self.correlation.as_ref().map_or(0, |data| data.len())
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
    use crate::message::Asked;

    fn config() -> CheckConfig {
        CheckConfig { max_rate: 100.0, max_wait: Duration::from_millis(50), ..CheckConfig::default() }
    }

    fn desk() -> Desk {
        Desk::new(&config(), at(0.0)).unwrap()
    }

    fn at(seconds: f64) -> Moment {
        Moment::from_secs_f64(seconds)
    }

    fn check(id: u64, filter: &str) -> Check {
        let asked = vec![Asked { filter: filter.into(), since: None }];
        Check { id, question: Question { asked, max: 10, from: None, to: None, only_named: false } }
    }

    fn submit(desk: &mut Desk, client: &str, check: Check, now: Moment) -> Submitted {
        desk.submit(client, &Reply::default(), check, 1, now)
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
                other => panic!("{other:?}: nobody asks the same, and there is room"),
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

    /// Each is sent its own answer, so that the limit is for all of them.
    #[test]
    fn those_who_ask_the_same_count_too() {
        let mut desk = desk();
        let mut merged = 0;
        for n in 0..1_000 {
            match submit(&mut desk, &format!("c{n}"), check(1, "t/#"), at(0.0)) {
                Submitted::Merged => merged += 1,
                Submitted::Later(retry) => assert!(retry <= LONGEST),
                Submitted::Waiting => assert_eq!(n, 0),
                Submitted::NoRoom(_) => panic!("there is room"),
            }
        }
        assert!((10..20).contains(&merged), "{merged}");
        assert_eq!(desk.serve(at(0.0)).unwrap().askers.len(), 1 + merged);
    }

    #[test]
    fn the_waiting_room_has_a_size() {
        let slow = CheckConfig { max_wait: Duration::from_secs(3_600), max_waiting: 30, ..config() };
        let mut desk = Desk::new(&slow, at(0.0)).unwrap();
        let mut ask = |n: u64| submit(&mut desk, "c", check(n, &format!("t/{}", n % 20)), at(0.0));
        assert!((0..30).all(|n| matches!(ask(n), Submitted::Waiting | Submitted::Merged)));
        assert!((0..30).all(|n| matches!(ask(n), Submitted::NoRoom(retry) if retry > Span::ZERO)));
        while desk.serve(at(100.0)).is_ok() {}
        assert_eq!((desk.askers, desk.bytes), (0, 0));
        assert_eq!(submit(&mut desk, "c", check(1, "t"), at(100.0)), Submitted::Waiting);
        let small = CheckConfig { max_waiting_bytes: 10_000, ..slow };
        let mut desk = Desk::new(&small, at(0.0)).unwrap();
        let long = check(1, &"x".repeat(9_000));
        assert_eq!(submit(&mut desk, "c", long.clone(), at(0.0)), Submitted::Waiting);
        assert_eq!(submit(&mut desk, "d", long, at(0.0)), Submitted::Merged);
        let other = submit(&mut desk, "e", check(1, &"y".repeat(9_000)), at(0.0));
        assert!(matches!(other, Submitted::NoRoom(_)), "{other:?}");
    }

    /// Whoever looks at many topics takes the place of many.
    #[test]
    fn work_is_limited_too() {
        let mut desk = Desk::new(&CheckConfig { max_looks: 1_000_000, ..config() }, at(0.0)).unwrap();
        let mut ask = |n: u64, looks, seconds| {
            desk.submit("c", &Reply::default(), check(n, &format!("t/{n}")), looks, at(seconds))
        };
        assert_eq!(ask(1, 1_000_000, 0.0), Submitted::Waiting, "even the largest, when nothing else is done");
        assert!(matches!(ask(2, 1_000, 0.0), Submitted::Later(_)));
        assert!(matches!(ask(3, 1_000, 0.8), Submitted::Later(_)));
        assert_eq!(ask(1, 1_000_000, 0.8), Submitted::Merged, "there is nothing more to look at");
        assert_eq!(ask(4, 1_000, 1.0), Submitted::Waiting);
    }
}
