//! Retained messages: the last one of each topic, in topic order, so that a subscriber to any number of them can
//! be served piece by piece.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::clock::Millis;
use super::message::Message;
use super::topic;

/// The store.
#[derive(Debug, Default)]
pub struct Retained {
    messages: BTreeMap<Box<str>, Arc<Message>>,
    bytes: usize,
}

/// Where a subscriber is in the store.
#[derive(Debug)]
pub struct Cursor {
    /// The filter.
    pub filter: Arc<str>,
    /// Only messages accepted before this moment: later ones came by themselves.
    pub before: u64,
    after: Option<Box<str>>,
}

impl Cursor {
    /// The start.
    pub fn new(filter: Arc<str>, before: u64) -> Self {
        Self { filter, before, after: None }
    }
}

/// The store is full; the message was not retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store of retained messages is full")]
pub struct Full;

impl Retained {
    /// Keeps a message for its topic, or forgets the topic's when the payload is empty.
    pub fn store(&mut self, message: Arc<Message>, max_count: usize, max_bytes: usize) -> Result<(), Full> {
        let known = self.messages.remove(message.topic_str());
        if let Some(known) = &known {
            self.bytes -= known.weight();
        }
        if message.payload().is_empty() {
            return Ok(());
        }
        let full = max_count != 0 && self.messages.len() >= max_count
            || max_bytes != 0 && self.bytes + message.weight() > max_bytes;
        // what is retained already stays when its successor does not fit: an old value beats none
        let (kept, result) = match (full, known) {
            (false, _) => (message, Ok(())),
            (true, Some(known)) => (known, Err(Full)),
            (true, None) => return Err(Full),
        };
        self.bytes += kept.weight();
        self.messages.insert(kept.topic_str().into(), kept);
        result
    }

    /// The next messages for a cursor: looks at no more than `looks` topics and takes no more than `most`, of
    /// about `bytes`. `true` when the cursor is at its end.
    pub fn read(
        &self,
        cursor: &mut Cursor,
        looks: usize,
        most: usize,
        bytes: usize,
        now: Millis,
        out: &mut Vec<Arc<Message>>,
    ) -> bool {
        let filter = Arc::clone(&cursor.filter);
        let wanted = |message: &Arc<Message>| message.ordinal < cursor.before && !message.expired(now);
        let prefix = topic::literal_prefix(&filter);
        if prefix.len() == filter.len() {
            out.extend(self.messages.get(&*filter).filter(|message| wanted(message)).cloned());
            return true;
        }
        let from = match &cursor.after {
            Some(after) => Bound::Excluded(&**after),
            None => Bound::Included(prefix),
        };
        let mut last = None;
        let mut weight = 0;
        for (looked, (name, message)) in self.messages.range::<str, _>((from, Bound::Unbounded)).enumerate() {
            if !name.starts_with(prefix) {
                return true;
            }
            if looked >= looks || out.len() >= most || weight >= bytes {
                cursor.after = last.map(Box::from).or(cursor.after.take());
                return false;
            }
            if topic::matches(&filter, name) && wanted(message) {
                weight += message.weight();
                out.push(Arc::clone(message));
            }
            last = Some(&**name);
        }
        true
    }

    /// Forgets what has expired among the next `looks` topics, from this one on; where to go on, `None` at the end.
    pub fn sweep(&mut self, from: Option<Box<str>>, looks: usize, now: Millis) -> Option<Box<str>> {
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let mut rest = self.messages.range::<str, _>((from, Bound::Unbounded));
        let slice = rest.by_ref().take(looks);
        let expired: Vec<Box<str>> =
            slice.filter(|(_, message)| message.expired(now)).map(|(topic, _)| topic.clone()).collect();
        let next = rest.next().map(|(topic, _)| topic.clone());
        for topic in expired {
            self.bytes -= self.messages.remove(&topic).map_or(0, |message| message.weight());
        }
        next
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// What they weigh.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::message::Parts;
    use super::*;
    use crate::wire::QoS;

    fn message(topic: &str, payload: &[u8], ordinal: u64) -> Arc<Message> {
        let parts = Parts {
            topic,
            properties: b"",
            payload,
            qos: QoS::AtMostOnce,
            retain: true,
            urgent: false,
            ordinal,
            expires: 0,
        };
        Arc::new(Message::new(1, &parts))
    }

    fn topics(store: &Retained, filter: &str, looks: usize, most: usize, bytes: usize) -> Vec<String> {
        let mut cursor = Cursor::new(filter.into(), 100);
        let mut all = Vec::new();
        loop {
            let mut out = Vec::new();
            let done = store.read(&mut cursor, looks, most, bytes, 1, &mut out);
            all.extend(out.iter().map(|message| message.topic_str().to_owned()));
            if done {
                return all;
            }
        }
    }

    #[test]
    fn any_chunking_reads_the_same() {
        let mut store = Retained::default();
        for topic in ["a", "a/b", "a/b/c", "a0", "b/b", "$SYS/x", "a/c/c"] {
            store.store(message(topic, b"x", 1), 0, 0).unwrap();
        }
        for (filter, expected) in [
            ("#", vec!["a", "a/b", "a/b/c", "a/c/c", "a0", "b/b"]),
            ("a/#", vec!["a", "a/b", "a/b/c", "a/c/c"]),
            ("a/+", vec!["a/b"]),
            ("+/b", vec!["a/b", "b/b"]),
            ("a/+/c", vec!["a/b/c", "a/c/c"]),
            ("$SYS/#", vec!["$SYS/x"]),
            ("a/b", vec!["a/b"]),
            ("zzz", vec![]),
        ] {
            for (looks, most, bytes) in
                [(1, 1, 999), (2, 5, 999), (100, 1, 1), (100, 100, 1), (100, 100, 999)]
            {
                let found = topics(&store, filter, looks, most, bytes);
                assert_eq!(found, expected, "{filter} {looks} {most} {bytes}");
            }
        }
    }

    #[test]
    fn an_empty_payload_deletes_and_a_full_store_keeps_the_old_value() {
        let mut store = Retained::default();
        store.store(message("a", b"1", 1), 1, 0).unwrap();
        assert_eq!(store.store(message("b", b"1", 2), 1, 0), Err(Full));
        store.store(message("a", b"2", 3), 1, 0).unwrap();
        let weight = store.bytes();
        assert_eq!(store.store(message("a", b"too much", 4), 1, weight), Err(Full));
        assert_eq!(topics(&store, "a", 9, 9, 9).len(), 1);
        store.store(message("a", b"", 5), 1, 0).unwrap();
        assert_eq!((store.len(), store.bytes()), (0, 0));
    }

    #[test]
    fn what_was_accepted_after_the_subscription_is_left_out() {
        let mut store = Retained::default();
        store.store(message("a", b"1", 7), 0, 0).unwrap();
        let mut out = Vec::new();
        assert!(store.read(&mut Cursor::new("#".into(), 7), 9, 9, 9, 1, &mut out));
        assert!(out.is_empty());
    }

    #[test]
    fn any_slices_forget_what_has_expired() {
        for looks in [1, 2, 3, 100] {
            let mut store = Retained::default();
            for number in 0..20_u64 {
                let topic = format!("t/{number}");
                let parts = Parts {
                    topic: &topic,
                    properties: b"",
                    payload: b"x",
                    qos: QoS::AtMostOnce,
                    retain: true,
                    urgent: false,
                    ordinal: 1,
                    // every third one never
                    expires: number % 3 * 10,
                };
                store.store(Arc::new(Message::new(1, &parts)), 0, 0).unwrap();
            }
            let (count, bytes) = (store.len(), store.bytes());
            let (mut at, mut slices) = (None, 0);
            loop {
                at = store.sweep(at, looks, 15);
                slices += 1;
                if at.is_none() {
                    break;
                }
            }
            assert_eq!((store.len(), slices), (13, count.div_ceil(looks)), "{looks} at a time");
            assert!(store.bytes() < bytes);
            store.sweep(None, 100, 25);
            assert_eq!(topics(&store, "#", 99, 99, 9999).len(), 7);
        }
    }
}
