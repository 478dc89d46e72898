//! Numbers for every topic, and the last messages of each.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::topic;

use crate::config::CheckConfig;
use crate::message::Question;
use crate::shelf::{Bounds, Line, Shelf};

/// Parts of the history that can be written to at the same time; each has an equal part of its memory.
pub const SHELVES: usize = 16;
/// Bytes that stand around a topic and its number in an answer, and around an update.
const AROUND_HEAD: usize = 24;
const AROUND_UPDATE: usize = 64;

/// A message that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its number.
    pub seq: u64,
    /// Its payload.
    pub payload: Arc<[u8]>,
}

/// What a check finds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The newest number of each topic that the filters match, of those with anything new.
    pub heads: BTreeMap<Arc<str>, u64>,
    /// Of those topics that are not numbered from 1 the number before their first, if the check names none that is higher.
    pub starts: BTreeMap<Arc<str>, u64>,
    /// How many messages came since the numbers that the check names; where there is more than fits, of the topics above.
    pub missed: u64,
    /// Those of them that are kept, in the order of each topic.
    pub updates: Vec<Kept>,
    /// There is more than fits: of this topic, and of those after it in the order of their bytes.
    pub next: Option<Arc<str>>,
}

/// What is remembered of accepted messages. Many threads may write and read.
#[derive(Debug)]
pub struct History {
    track: Vec<String>,
    shelves: Vec<Mutex<Shelf>>,
    /// Anybody may choose topics: nobody shall choose which shelf they crowd.
    hasher: RandomState,
    max_answer: usize,
    max_answer_bytes: usize,
}

impl History {
    /// An empty history with the bounds of a configuration.
    pub fn new(config: &CheckConfig) -> Self {
        let bounds = Bounds {
            topics: config.max_topics.div_ceil(SHELVES),
            updates_each: config.max_updates,
            bytes: config.max_bytes / SHELVES,
            payload: config.max_payload,
        };
        Self {
            track: config.track.clone(),
            shelves: (0..SHELVES).map(|_| Mutex::new(Shelf::new(bounds))).collect(),
            hasher: RandomState::new(),
            max_answer: config.max_answer,
            max_answer_bytes: config.max_answer_bytes,
        }
    }

    /// Numbers an accepted message and keeps it; none when its topic is not tracked.
    pub fn record(&self, topic: &str, payload: &[u8]) -> Option<u64> {
        if topic.starts_with('$') || !self.track.iter().any(|filter| topic::matches(filter, topic)) {
            return None;
        }
        Some(self.shelf(topic).lock().write(topic, payload))
    }

    /// How many times a topic must be compared with a filter to answer this.
    pub fn looks(&self, question: &Question) -> u64 {
        let wild = question.asked.iter().filter(|asked| !topic::is_name(&asked.filter)).count();
        let topics = if wild > 0 { self.topics() } else { 0 };
        (wild as u64).saturating_mul(topics as u64).saturating_add(question.asked.len() as u64)
    }

    /// Looks up what a check asks for.
    pub fn look_up(&self, question: &Question) -> Found {
        let since = question.asked.iter().flat_map(|asked| asked.since.iter().flatten());
        let mut search = Search {
            room: question.max.min(self.max_answer),
            bytes: self.max_answer_bytes,
            known: since.map(|(topic, seq)| (topic.as_str(), *seq)).collect(),
            found: Found::default(),
        };
        for (topic, wanted) in self.matching(question, &search.known) {
            let shelf = self.shelf(&topic).lock();
            // Gone, perhaps, since then.
            let Some(line) = shelf.line(&topic) else { continue };
            if !search.collect(&topic, line, wanted) {
                search.found.next = Some(topic);
                break;
            }
        }
        search.found
    }

    /// The topics that a question asks for, in the order of their bytes so that whoever asks can go on where an answer was
    /// cut, and whether it asks for their updates.
    fn matching(&self, question: &Question, known: &HashMap<&str, u64>) -> BTreeMap<Arc<str>, bool> {
        let (named, wild): (Vec<_>, Vec<_>) =
            question.asked.iter().partition(|asked| topic::is_name(&asked.filter));
        let named = named.into_iter().filter(|asked| question.spans(&asked.filter));
        let mut all: BTreeMap<Arc<str>, bool> = BTreeMap::new();
        for asked in named {
            all.entry(asked.filter.as_str().into()).or_insert(asked.since.is_some());
        }
        for shelf in self.shelves.iter().filter(|_| !wild.is_empty()) {
            // Compared without the lock: publishers wait for it.
            let names = shelf.lock().names();
            let wanted = |topic: &Arc<str>| {
                question.spans(topic) && (!question.only_named || known.contains_key(&**topic))
            };
            for topic in names.into_iter().filter(wanted) {
                if let Some(asked) = wild.iter().find(|asked| topic::matches(&asked.filter, &topic)) {
                    all.entry(topic).or_insert(asked.since.is_some());
                }
            }
        }
        all
    }

    /// Topics that are numbered.
    pub fn topics(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.lock().topics()).sum()
    }

    /// Bytes of payloads that are kept.
    pub fn bytes(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.lock().bytes()).sum()
    }

    fn shelf(&self, topic: &str) -> &Mutex<Shelf> {
        // In range: there are SHELVES of them.
        &self.shelves[self.hasher.hash_one(topic) as usize % SHELVES]
    }
}

/// An answer in the making.
struct Search<'a> {
    /// Updates that it may bring, and bytes that are left.
    room: usize,
    bytes: usize,
    /// The last number that the client knows of each topic, whichever filter names it.
    known: HashMap<&'a str, u64>,
    found: Found,
}

impl Search<'_> {
    /// Adds what is new of one topic; updates only if they are `wanted`. False when there is no room for all of it.
    fn collect(&mut self, topic: &Arc<str>, line: &Line, wanted: bool) -> bool {
        let known = self.known.get(&**topic).copied();
        if known == Some(line.head) {
            return true;
        }
        let name = written(topic);
        // One topic and one update always fit, or nobody would get on.
        if !self.take(name + AROUND_HEAD) && !self.found.heads.is_empty() {
            return false;
        }
        self.found.heads.insert(topic.clone(), line.head);
        if !wanted {
            return true;
        }
        // A number ahead of ours is from before the gateway started again: then everything is new.
        let known = known.filter(|last| *last <= line.head).unwrap_or(0);
        if known < line.start {
            self.take(name + AROUND_HEAD);
            self.found.starts.insert(topic.clone(), line.start);
        }
        self.bring(topic, line, known.max(line.start))
    }

    fn bring(&mut self, topic: &Arc<str>, line: &Line, last: u64) -> bool {
        self.found.missed += line.head - last;
        let first = line.kept.partition_point(|(seq, _)| *seq <= last);
        for (seq, payload) in line.kept.range(first..) {
            let length = written(topic) + AROUND_UPDATE + payload.len().div_ceil(3) * 4;
            let fits =
                self.found.updates.len() < self.room && (self.take(length) || self.found.updates.is_empty());
            if !fits {
                return false;
            }
            self.found.updates.push(Kept { topic: topic.clone(), seq: *seq, payload: payload.clone() });
        }
        true
    }

    /// Takes so many of the bytes that are left; false when there are fewer.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.bytes;
        self.bytes = self.bytes.saturating_sub(bytes);
        fits
    }
}

/// The bytes that a text takes in an answer.
fn written(text: &str) -> usize {
    let one = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(one).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use std::time::Duration;

    use crate::message::{Answer, Asked};
    use proptest::prelude::*;

    fn config() -> CheckConfig {
        CheckConfig {
            max_topics: 64,
            max_updates: 3,
            max_bytes: 16_000,
            max_payload: 100,
            ..CheckConfig::default()
        }
    }

    fn asked(filter: &str, since: Option<&[(&str, u64)]>, max: usize) -> Question {
        let since = since.map(|since| since.iter().map(|(topic, seq)| ((*topic).to_owned(), *seq)).collect());
        let asked = vec![Asked { filter: filter.into(), since }];
        Question { asked, max, from: None, to: None, only_named: false }
    }

    fn seqs(found: &Found) -> Vec<u64> {
        found.updates.iter().map(|kept| kept.seq).collect()
    }

    #[test]
    fn numbers_count_up_by_topic_and_the_last_are_kept() {
        let history = History::new(&config());
        for n in 1..=5 {
            assert_eq!(history.record("a/b", b"x"), Some(n));
        }
        assert_eq!(history.record("a/c", b"x"), Some(1));
        assert_eq!(history.record("$SYS/x", b"x"), None);
        let found = history.look_up(&asked("a/b", Some(&[("a/b", 1)]), 100));
        assert_eq!((seqs(&found), found.missed, found.next), (vec![3, 4, 5], 4, None));
        let found = history.look_up(&asked("a/+", Some(&[("a/b", 4)]), 100));
        assert_eq!((found.updates.len(), found.missed, found.heads.len()), (2, 2, 2));
        let found = history.look_up(&asked("a/#", None, 100));
        assert_eq!(
            (found.heads.len(), found.updates.len(), found.missed),
            (2, 0, 0),
            "only where things stand"
        );
        assert_eq!(history.look_up(&asked("z", Some(&[]), 100)), Found::default());
    }

    #[test]
    fn a_cut_answer_says_so_and_can_be_continued() {
        let history = History::new(&CheckConfig { max_updates: 10, ..config() });
        for _ in 0..6 {
            history.record("t", b"x");
        }
        let found = history.look_up(&asked("t", Some(&[("t", 0)]), 4));
        assert_eq!((seqs(&found), found.next.as_deref()), (vec![1, 2, 3, 4], Some("t")));
        let found = history.look_up(&asked("t", Some(&[("t", 4)]), 4));
        assert_eq!((seqs(&found), found.next), (vec![5, 6], None));
    }

    #[test]
    fn an_answer_has_a_size() {
        let history = History::new(&CheckConfig { max_updates: 10, max_answer_bytes: 450, ..config() });
        for _ in 0..6 {
            history.record("t", &[0; 100]);
        }
        let found = history.look_up(&asked("t", Some(&[]), 100));
        assert_eq!((seqs(&found), found.next.as_deref()), (vec![1, 2], Some("t")));
        // However little there is room for, it leads on.
        let history = History::new(&CheckConfig { max_updates: 10, max_answer_bytes: 1, ..config() });
        (0..2).for_each(|_| assert!(history.record("t", &[0; 100]).is_some()));
        let found = history.look_up(&asked("t", Some(&[]), 100));
        assert_eq!((seqs(&found), found.next.as_deref()), (vec![1], Some("t")));
    }

    /// Names take room too: a client takes no packet of any size. What does not fit can be asked for.
    #[test]
    fn many_long_names_are_told_in_several_answers() {
        let large =
            CheckConfig { max_topics: 160_000, max_bytes: 10_000_000, max_answer_bytes: 100_000, ..config() };
        let history = History::new(&large);
        for n in 0..3_000 {
            history.record(&format!("{}\"/{n}", "x".repeat(120)), b"payload");
        }
        for since in [None, Some(&[][..])] {
            let (mut told, mut answers) = (0, 0);
            let mut question = asked("#", since, 100_000);
            loop {
                let found = history.look_up(&question);
                let answer = Answer { id: 1, epoch: 1, rate: None }.found(&found, Duration::ZERO);
                assert!(answer.len() < 110_000, "{}", answer.len());
                (told, answers) = (told + found.heads.len(), answers + 1);
                let Some(next) = found.next else { break };
                // A topic whose updates did not fit is told once more.
                told -= usize::from(found.heads.contains_key(&next));
                question.from = Some(next.to_string());
            }
            assert!(told == 3_000 && answers > 4, "{told} topics in {answers} answers");
        }
    }

    #[test]
    fn large_payloads_are_numbered_only() {
        let history = History::new(&config());
        history.record("t", b"a");
        assert_eq!(history.record("t", &[0; 101]), Some(2));
        history.record("t", b"c");
        let found = history.look_up(&asked("t", Some(&[]), 100));
        assert_eq!((seqs(&found), found.missed), (vec![1, 3], 3));
    }

    #[test]
    fn numbers_from_before_a_restart_are_known_for_what_they_are() {
        let history = History::new(&config());
        history.record("t", b"a");
        let found = history.look_up(&asked("t", Some(&[("t", 1000)]), 100));
        assert_eq!((seqs(&found), found.heads.get("t")), (vec![1], Some(&1)));
    }

    /// Topics that come and go: what is busy stays, and no number is given twice.
    #[test]
    fn a_topic_that_was_forgotten_does_not_count_down() {
        let history = History::new(&CheckConfig { max_topics: SHELVES, ..config() });
        let mut last = 0;
        for round in 0..20 {
            for n in 0..200 {
                history.record(&format!("passing/{round}/{n}"), b"x");
            }
            let seq = history.record("comes/back", b"x");
            assert!(seq > Some(last), "{seq:?} after {last}");
            last = seq.unwrap_or(0);
        }
        assert!(history.topics() <= SHELVES);
        let history = History::new(&CheckConfig { max_topics: 2 * SHELVES, ..config() });
        for n in 1..200 {
            assert_eq!(history.record("busy", b"x"), Some(n), "it is never forgotten");
            history.record(&format!("passing/{n}"), b"x");
        }
    }

    /// A topic may be numbered from far above 1: what was never given is not missed.
    #[test]
    fn numbers_that_were_never_given_are_not_missed() {
        let history = History::new(&CheckConfig { max_topics: SHELVES, ..config() });
        for n in 0..400 {
            history.record(&format!("passing/{}", n / 2), b"x");
        }
        let head = history.record("comes/late", b"x");
        let head = head.filter(|head| *head > 1).expect("the shelf has forgotten others");
        for since in [&[][..], &[("comes/late", 0)]] {
            for filter in ["comes/late", "comes/+"] {
                let found = history.look_up(&asked(filter, Some(since), 100));
                assert_eq!((found.missed, found.starts.get("comes/late")), (1, Some(&(head - 1))));
            }
        }
        let found = history.look_up(&asked("comes/late", Some(&[("comes/late", head - 1)]), 100));
        assert_eq!((found.missed, found.starts.len()), (1, 0), "the client knows");
    }

    #[test]
    fn a_part_of_the_topics_can_be_asked_for() {
        let history = History::new(&config());
        for topic in ["a", "b", "c", "d"] {
            history.record(topic, b"x");
        }
        let part = |filter, from: &str, to: &str| {
            let (from, to) = (Some(from.to_owned()), Some(to.to_owned()));
            let found = history.look_up(&Question { from, to, ..asked(filter, Some(&[]), 100) });
            found.heads.keys().map(|topic| topic.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(part("#", "b", "d"), ["b", "c"]);
        assert_eq!((part("c", "b", "d"), part("d", "b", "d")), (vec!["c".to_owned()], vec![]));
    }

    /// Whoever can keep track of no more topics asks for those that it knows.
    #[test]
    fn others_than_those_that_are_named_can_be_left_out() {
        let history = History::new(&config());
        for topic in ["a", "b", "c"] {
            (0..2).for_each(|_| assert!(history.record(topic, b"x").is_some()));
        }
        let found = history.look_up(&Question { only_named: true, ..asked("#", Some(&[("b", 1)]), 100) });
        assert_eq!((found.heads.len(), found.heads.get("b"), found.updates.len()), (1, Some(&2), 1));
    }

    /// A topic that two filters match is named under one of them.
    #[test]
    fn what_is_known_under_one_filter_is_known_under_all() {
        let history = History::new(&config());
        history.record("a/b", b"x");
        let mut both = asked("a/+", Some(&[("a/b", 1)]), 100);
        both.asked.extend(asked("#", Some(&[]), 100).asked);
        assert_eq!(history.look_up(&both), Found::default());
        both.asked.reverse();
        assert_eq!(history.look_up(&both), Found::default());
        assert_eq!((history.looks(&both), history.looks(&asked("a/b", None, 1))), (4, 1));
    }

    #[test]
    fn only_what_is_tracked() {
        let history = History::new(&CheckConfig { track: vec!["room/+/temp".into()], ..config() });
        assert_eq!(history.record("room/1/temp", b"x"), Some(1));
        assert_eq!(history.record("room/1/light", b"x"), None);
    }

    proptest! {
        /// Memory stays within its bounds whatever is published, and what is kept is the newest of each topic, in order.
        #[test]
        fn bounded_and_in_order(writes in prop::collection::vec((0..200u16, 0..120usize), 1..800)) {
            let history = History::new(&CheckConfig { max_bytes: 4_000, ..config() });
            for (topic, size) in &writes {
                history.record(&format!("t/{topic}"), &vec![7; *size]);
                prop_assert!(history.bytes() <= 4_000);
            }
            prop_assert!(history.topics() <= 64);
            let found = history.look_up(&asked("#", Some(&[]), usize::MAX));
            let total: usize = found.updates.iter().map(|kept| kept.payload.len()).sum();
            prop_assert_eq!(total, history.bytes());
            for pair in found.updates.windows(2).filter(|pair| pair[0].topic == pair[1].topic) {
                prop_assert!(pair[0].seq < pair[1].seq);
            }
        }
    }
}
