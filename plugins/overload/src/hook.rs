//! Sees the first topics that a publisher uses, where classes depend on them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_plugin::{Hook, Publish, Publisher, Standing, Verdict};

use crate::class::Classes;

/// So many messages of a publisher are looked at.
const LOOKED_AT: u32 = 64;

/// The classes whose topics publishers used, as bits. A publisher is known by where it is in memory, which its hook
/// keeps from being used again.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    used: Mutex<HashMap<usize, u64>>,
    changes: AtomicU64,
}

impl Topics {
    /// What this publisher used.
    pub(crate) fn of(&self, publisher: &Arc<Publisher>) -> u64 {
        self.used.lock().get(&key(publisher)).copied().unwrap_or(0)
    }

    /// A number that is another one after each change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

fn key(publisher: &Arc<Publisher>) -> usize {
    Arc::as_ptr(publisher) as usize
}

/// Looks at the topics of one publisher.
pub(crate) struct TopicHook {
    classes: Arc<Classes>,
    topics: Arc<Topics>,
    publisher: Arc<Publisher>,
    seen: u32,
    bits: u64,
}

impl TopicHook {
    pub(crate) fn new(classes: &Arc<Classes>, topics: &Arc<Topics>, publisher: &Arc<Publisher>) -> Self {
        Self {
            classes: Arc::clone(classes),
            topics: Arc::clone(topics),
            publisher: Arc::clone(publisher),
            seen: 0,
            bits: 0,
        }
    }
}

impl Hook for TopicHook {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        if self.seen < LOOKED_AT {
            self.seen += 1;
            let bits = self.bits | self.classes.with_topic(publish.topic);
            if bits != self.bits {
                self.bits = bits;
                self.topics.used.lock().insert(key(&self.publisher), bits);
                self.topics.changes.fetch_add(1, Ordering::Release);
                self.classes.settle(&self.publisher, bits);
            }
        }
        Verdict::Continue
    }

    fn standing(&mut self, topic: &str) -> Standing {
        let bits = self.bits | self.classes.with_topic(topic);
        if self.classes.exempts(&self.publisher, bits) { Standing::Exempt } else { Standing::Ordinary }
    }
}

impl Drop for TopicHook {
    fn drop(&mut self) {
        if self.bits != 0 {
            self.topics.used.lock().remove(&key(&self.publisher));
        }
    }
}
