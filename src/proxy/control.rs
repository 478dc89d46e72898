//! The gateway's own topics: they are kept and delivered here, and never reach the upstream broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::inbox::{Inbox, Note};
use crate::broker::topic;
use crate::broker::tree::Tree;

/// Retained messages of the gateway itself.
const MOST_RETAINED: usize = 1_000_000;

/// Messages and subscriptions under the control topics.
#[derive(Default)]
pub(super) struct Control {
    /// What control topics start with beside `$tide/`, a slash at the end.
    prefix: String,
    /// One lock for both: who subscribes sees a retained message either here or live.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    retained: BTreeMap<Arc<str>, Bytes>,
    listeners: Tree<Inbox>,
}

impl State {
    fn retain(&mut self, name: &Arc<str>, payload: &Bytes) {
        if payload.is_empty() {
            self.retained.remove(name);
        } else if self.retained.len() < MOST_RETAINED || self.retained.contains_key(name) {
            self.retained.insert(Arc::clone(name), payload.clone());
        }
    }
}

impl Control {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{}/", prefix.trim_end_matches('/')), state: Mutex::default() }
    }

    /// Whether a topic, or all that a filter matches, is the gateway's own.
    pub(super) fn owns(&self, topic: &str) -> bool {
        topic.starts_with("$tide/") || topic == "$tide" || topic.starts_with(&self.prefix)
    }

    /// The client whose checks come under this topic.
    pub(super) fn asker<'a>(&self, topic: &'a str) -> Option<&'a str> {
        topic.strip_prefix(&self.prefix)?.strip_prefix("check/")
    }

    /// Publishes; how many messages had to go because a client does not take them.
    pub(super) fn publish(&self, name: &str, payload: &[u8], retain: bool) -> u64 {
        let (name, payload): (Arc<str>, _) = (name.into(), Bytes::copy_from_slice(payload));
        let mut state = self.state.lock();
        if retain {
            state.retain(&name, &payload);
        }
        let mut gone = 0;
        state.listeners.each_match(&name, |inbox| {
            gone += inbox.push(note(&name, &payload, false));
        });
        gone
    }

    /// Retains a message for those who subscribe later.
    pub(super) fn retain(&self, name: &str, payload: &[u8]) {
        self.state.lock().retain(&name.into(), &Bytes::copy_from_slice(payload));
    }

    /// Publishes an answer with these properties, as [`Control::publish`] does; none when nobody it is for has room.
    pub(super) fn respond(&self, name: &str, payload: &[u8], properties: Vec<u8>) -> Option<u64> {
        let (topic, payload): (Arc<str>, _) = (name.into(), Bytes::copy_from_slice(payload));
        let note = Note { properties: properties.into(), ..note(&topic, &payload, false) };
        let state = self.state.lock();
        let (mut asked, mut room) = (false, false);
        state.listeners.each_match(name, |inbox| {
            asked = true;
            room |= inbox.has_room();
        });
        if asked && !room {
            return None;
        }
        let mut gone = 0;
        state.listeners.each_match(name, |inbox| gone += inbox.push(note.clone()));
        Some(gone)
    }

    /// How many clients would get a message now.
    pub(super) fn subscribers(&self, name: &str) -> usize {
        let mut count = 0;
        self.state.lock().listeners.each_match(name, |_| count += 1);
        count
    }

    /// Subscribes a connection; with `retained` it gets what is retained.
    pub(super) fn subscribe(&self, filter: &str, inbox: &Arc<Inbox>, retained: bool) {
        let mut state = self.state.lock();
        state.listeners.insert(filter, Arc::clone(inbox));
        if !retained {
            return;
        }
        let prefix = topic::literal_prefix(filter);
        let below =
            state.retained.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        for (name, payload) in below.take_while(|(name, _)| name.starts_with(prefix)) {
            if topic::matches(filter, name) {
                inbox.push(note(name, payload, true));
            }
        }
    }

    /// Ends a subscription.
    pub(super) fn unsubscribe(&self, filter: &str, inbox: &Arc<Inbox>) {
        self.state.lock().listeners.remove(filter, inbox);
    }

    /// Retained messages and their bytes.
    pub(super) fn levels(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.retained.len(), state.retained.values().map(Bytes::len).sum())
    }
}

fn note(topic: &Arc<str>, payload: &Bytes, retain: bool) -> Note {
    Note { topic: Arc::clone(topic), payload: payload.clone(), properties: Bytes::new(), retain }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn who_subscribes_late_gets_what_is_retained_and_then_what_is_new() {
        let control = Control::new("$tide/v1");
        control.publish("$tide/v1/rate", b"1", true);
        control.publish("$tide/v1/rate/class/a", b"2", true);
        control.publish("$tide/v1/ratex", b"3", true);
        let inbox = Arc::new(Inbox::new(1));
        control.subscribe("$tide/v1/rate/#", &inbox, true);
        control.publish("$tide/v1/rate", b"4", true);
        // what is only retained is for those who come later
        control.retain("$tide/v1/rate", b"5");
        let late = Arc::new(Inbox::new(2));
        control.subscribe("$tide/v1/rate", &late, true);
        assert_eq!(late.take(Waker::noop(), true)[0].payload[0], b'5');
        control.unsubscribe("$tide/v1/rate", &late);
        let seen: Vec<_> =
            inbox.take(Waker::noop(), true).into_iter().map(|note| (note.payload[0], note.retain)).collect();
        assert_eq!(seen, [(b'1', true), (b'2', true), (b'4', false)]);
        control.unsubscribe("$tide/v1/rate/#", &inbox);
        control.publish("$tide/v1/rate", b"", true);
        assert!(inbox.take(Waker::noop(), true).is_empty());
        assert_eq!((control.levels().0, control.subscribers("$tide/v1/rate")), (2, 0));
    }

    #[test]
    fn an_answer_stays_whatever_its_size() {
        let (control, inbox) = (Control::new("$tide/v1"), Arc::new(Inbox::new(1)));
        control.subscribe("$tide/v1/update/c", &inbox, true);
        assert_eq!(control.respond("$tide/v1/update/c", b"small", vec![9]), Some(0));
        assert_eq!(
            control.respond("$tide/v1/update/c", &[0; 1_000_000], vec![7]),
            Some(1),
            "the older one goes"
        );
        let seen: Vec<_> = inbox.take(Waker::noop(), true).into_iter().map(|note| note.properties).collect();
        assert_eq!(seen, [Bytes::from_static(&[7])]);
    }

    #[test]
    fn only_control_topics_are_its_own() {
        let control = Control::new("fleet/tide");
        for (topic, own) in
            [("$tide/v1/rate", true), ("fleet/tide/rate", true), ("fleet/tidex", false), ("a", false)]
        {
            assert_eq!(control.owns(topic), own, "{topic}");
        }
        assert_eq!(control.asker("fleet/tide/check/a"), Some("a"));
        assert_eq!(control.asker("$tide/v1/check/a"), None);
    }

    #[test]
    fn an_answer_waits_for_room() {
        let control = Control::new("$tide/v1");
        assert_eq!(control.respond("$tide/v1/update/a", b"x", vec![]), Some(0), "nobody is there");
        let inbox = Arc::new(Inbox::new(1));
        control.subscribe("$tide/v1/update/a", &inbox, false);
        let payload = vec![b'x'; 100_000];
        assert_eq!(control.respond("$tide/v1/update/a", &payload, vec![9, 0, 1, 7]), Some(0));
        assert_eq!(control.respond("$tide/v1/update/a", &payload, vec![]), Some(0));
        assert_eq!(control.respond("$tide/v1/update/a", &payload, vec![]), None);
        let seen = inbox.take(Waker::noop(), true);
        assert_eq!((seen.len(), &*seen[0].properties), (2, &[9, 0, 1, 7][..]));
        assert_eq!(control.respond("$tide/v1/update/a", &payload, vec![]), Some(0));
    }
}
