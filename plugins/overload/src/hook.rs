//! Sees the topics that a publisher uses, where classes depend on them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_plugin::{Hook, Publish, Publisher, Standing, Verdict};

use crate::class::{Classes, Used};

/// The classes whose topics publishers used. A publisher is known by where it is in memory, which its hook
/// keeps from being used again.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    used: Mutex<HashMap<usize, Used>>,
    changes: AtomicU64,
}

impl Topics {
    /// What this publisher used.
    pub(crate) fn of(&self, publisher: &Arc<Publisher>) -> Used {
        self.used.lock().get(&key(publisher)).copied().unwrap_or_default()
    }

    /// A number that is another one after each change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

fn key(publisher: &Arc<Publisher>) -> usize {
    Arc::as_ptr(publisher) as usize
}

/// A longer topic is looked at anew for each message, rather than kept for each connection.
const LONGEST_KEPT: usize = 256;

/// Looks at the topics of one publisher.
pub(crate) struct TopicHook {
    classes: Arc<Classes>,
    topics: Arc<Topics>,
    publisher: Arc<Publisher>,
    used: Used,
    /// The last topic, the classes that want it, and whether it is exempt: most publishers use one topic for long.
    last: String,
    wanted_by: u64,
    exempt: bool,
}

impl TopicHook {
    pub(crate) fn new(classes: &Arc<Classes>, topics: &Arc<Topics>, publisher: &Arc<Publisher>) -> Self {
        Self {
            classes: Arc::clone(classes),
            topics: Arc::clone(topics),
            publisher: Arc::clone(publisher),
            used: Used::default(),
            last: String::new(),
            wanted_by: 0,
            exempt: false,
        }
    }

    fn look_at(&mut self, topic: &str) {
        if self.last != topic {
            self.last.clear();
            if topic.len() <= LONGEST_KEPT {
                self.last.push_str(topic);
            }
            self.wanted_by = self.classes.with_topic(topic);
            self.exempt = self.classes.exempts(&self.publisher, self.wanted_by);
        }
    }

    /// Says whether a message on this topic passes. That depends on nothing that changes while the client is there: all of
    /// its messages on one topic overtake others in queues, or none.
    fn pass(&mut self, topic: &str) {
        self.look_at(topic);
        self.publisher.set_passes(self.exempt);
    }
}

impl Hook for TopicHook {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        self.pass(publish.topic);
        // what a client may send there is an answer to us
        if publish.topic.starts_with('$') {
            return Verdict::Continue;
        }
        let used = Used {
            classes: self.used.classes | self.wanted_by,
            ordinary: self.used.ordinary || !self.exempt,
        };
        if used != self.used {
            self.used = used;
            self.topics.used.lock().insert(key(&self.publisher), used);
            self.topics.changes.fetch_add(1, Ordering::Release);
            self.classes.settle(&self.publisher, used);
        }
        Verdict::Continue
    }

    /// A will says nothing about what else its client sends.
    fn on_will(&mut self, will: &Publish<'_>) -> Verdict {
        self.pass(will.topic);
        Verdict::Continue
    }

    fn standing(&mut self, topic: &str) -> Standing {
        self.look_at(topic);
        if self.exempt { Standing::Exempt } else { Standing::Ordinary }
    }
}

impl Drop for TopicHook {
    fn drop(&mut self) {
        if self.used != Used::default() {
            self.topics.used.lock().remove(&key(&self.publisher));
        }
    }
}
