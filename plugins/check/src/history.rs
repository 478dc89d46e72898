//! Numbers for every topic, and the last messages of each.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::CheckConfig;
use crate::filter;
use crate::message::Asked;
use crate::shelf::{Bounds, Line, Shelf};

/// Parts of the history that can be written to at the same time; each has an equal part of its memory.
pub const SHELVES: usize = 16;
/// Topics that one answer names.
const MOST_HEADS: usize = 10_000;

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
    /// How many messages came since the numbers that the check names.
    pub missed: u64,
    /// Those of them that are kept, in the order of each topic.
    pub updates: Vec<Kept>,
    /// There is more than fits.
    pub truncated: bool,
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
        if topic.starts_with('$') || !self.track.iter().any(|filter| filter::matches(filter, topic)) {
            return None;
        }
        Some(self.shelf(topic).lock().write(topic, payload))
    }

    /// Looks up what a check asks for, at most `max` updates.
    pub fn look_up(&self, asked: &[Asked], max: usize) -> Found {
        let mut found = Found::default();
        let room = max.min(self.max_answer);
        let mut bytes = self.max_answer_bytes;
        for asked in asked {
            if filter::is_name(&asked.filter) {
                let shelf = self.shelf(&asked.filter).lock();
                if let Some(line) = shelf.line(&asked.filter) {
                    collect(&asked.filter.as_str().into(), line, asked, room, &mut bytes, &mut found);
                }
                continue;
            }
            for shelf in &self.shelves {
                let shelf = shelf.lock();
                let matching = shelf.lines().filter(|(topic, _)| filter::matches(&asked.filter, topic));
                for (topic, line) in matching {
                    collect(topic, line, asked, room, &mut bytes, &mut found);
                }
            }
        }
        found
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

/// Adds what is new of one topic.
fn collect(topic: &Arc<str>, line: &Line, asked: &Asked, room: usize, bytes: &mut usize, found: &mut Found) {
    let known = asked.since.as_ref().and_then(|since| since.get(&**topic).copied());
    // Nothing new, or another filter of the same check brought it.
    if known == Some(line.head) || found.heads.contains_key(topic) {
        return;
    }
    if found.heads.len() >= MOST_HEADS {
        found.truncated = true;
        return;
    }
    found.heads.insert(topic.clone(), line.head);
    let Some(since) = &asked.since else { return };
    // A number ahead of ours is from before the gateway started again: then everything is new.
    let last = since.get(&**topic).copied().filter(|last| *last <= line.head).unwrap_or(line.start);
    found.missed += line.head - last;
    let first = line.kept.partition_point(|(seq, _)| *seq <= last);
    for (seq, payload) in line.kept.range(first..) {
        if found.updates.len() >= room || payload.len() > *bytes {
            found.truncated = true;
            return;
        }
        *bytes -= payload.len();
        found.updates.push(Kept { topic: topic.clone(), seq: *seq, payload: payload.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn asked(filter: &str, since: Option<&[(&str, u64)]>) -> Vec<Asked> {
        let since = since.map(|since| since.iter().map(|(topic, seq)| ((*topic).to_owned(), *seq)).collect());
        vec![Asked { filter: filter.into(), since }]
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
        let found = history.look_up(&asked("a/b", Some(&[("a/b", 1)])), 100);
        assert_eq!((seqs(&found), found.missed, found.truncated), (vec![3, 4, 5], 4, false));
        let found = history.look_up(&asked("a/+", Some(&[("a/b", 4)])), 100);
        assert_eq!((found.updates.len(), found.missed, found.heads.len()), (2, 2, 2));
        let found = history.look_up(&asked("a/#", None), 100);
        assert_eq!(
            (found.heads.len(), found.updates.len(), found.missed),
            (2, 0, 0),
            "only where things stand"
        );
        assert_eq!(history.look_up(&asked("z", Some(&[])), 100), Found::default());
    }

    #[test]
    fn a_cut_answer_says_so_and_can_be_continued() {
        let history = History::new(&CheckConfig { max_updates: 10, ..config() });
        for _ in 0..6 {
            history.record("t", b"x");
        }
        let found = history.look_up(&asked("t", Some(&[("t", 0)])), 4);
        assert_eq!((seqs(&found), found.truncated), (vec![1, 2, 3, 4], true));
        let found = history.look_up(&asked("t", Some(&[("t", 4)])), 4);
        assert_eq!((seqs(&found), found.truncated), (vec![5, 6], false));
    }

    #[test]
    fn an_answer_has_a_size() {
        let history = History::new(&CheckConfig { max_updates: 10, max_answer_bytes: 250, ..config() });
        for _ in 0..6 {
            history.record("t", &[0; 100]);
        }
        let found = history.look_up(&asked("t", Some(&[])), 100);
        assert_eq!((seqs(&found), found.truncated), (vec![1, 2], true));
    }

    #[test]
    fn large_payloads_are_numbered_only() {
        let history = History::new(&config());
        history.record("t", b"a");
        assert_eq!(history.record("t", &[0; 101]), Some(2));
        history.record("t", b"c");
        let found = history.look_up(&asked("t", Some(&[])), 100);
        assert_eq!((seqs(&found), found.missed), (vec![1, 3], 3));
    }

    #[test]
    fn numbers_from_before_a_restart_are_known_for_what_they_are() {
        let history = History::new(&config());
        history.record("t", b"a");
        let found = history.look_up(&asked("t", Some(&[("t", 1000)])), 100);
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
            let found = history.look_up(&asked("#", Some(&[])), usize::MAX);
            let total: usize = found.updates.iter().map(|kept| kept.payload.len()).sum();
            prop_assert_eq!(total, history.bytes());
            for pair in found.updates.windows(2).filter(|pair| pair[0].topic == pair[1].topic) {
                prop_assert!(pair[0].seq < pair[1].seq);
            }
        }
    }
}
