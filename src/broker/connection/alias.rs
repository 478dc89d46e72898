//! Topic aliases, in both directions. They live as long as the connection.

use std::collections::HashMap;

/// Aliases that the client set up.
#[derive(Debug, Default)]
pub(super) struct InboundAliases(Option<Box<HashMap<u16, Box<str>>>>);

impl InboundAliases {
    /// Sets an alias.
    pub(super) fn set(&mut self, alias: u16, topic: &str) {
        self.0.get_or_insert_default().insert(alias, topic.into());
    }

    /// The topic of an alias.
    pub(super) fn get(&self, alias: u16) -> Option<&str> {
        Some(self.0.as_ref()?.get(&alias)?)
    }
}

/// Aliases that we set up, first come first served.
#[derive(Debug)]
pub(super) struct OutboundAliases {
    max: u16,
    topics: Option<Box<HashMap<Box<[u8]>, u16>>>,
}

/// How a topic is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// By its name alone.
    Name,
    /// By its name, and the alias stands for it from now on.
    Introduce(u16),
    /// By its alias.
    Alias(u16),
}

impl OutboundAliases {
    /// At most `max`; 0 for none.
    pub(super) fn new(max: u16) -> Self {
        Self { max, topics: None }
    }

    /// How to send this topic.
    pub(super) fn naming(&mut self, topic: &[u8]) -> Naming {
        if self.max == 0 {
            return Naming::Name;
        }
        let topics = self.topics.get_or_insert_default();
        if let Some(alias) = topics.get(topic) {
            return Naming::Alias(*alias);
        }
        if topics.len() >= usize::from(self.max) {
            return Naming::Name;
        }
        let alias = topics.len() as u16 + 1;
        topics.insert(topic.into(), alias);
        Naming::Introduce(alias)
    }

    /// The packet that introduced this topic was not sent after all.
    pub(super) fn forget(&mut self, topic: &[u8]) {
        if let Some(topics) = &mut self.topics {
            topics.remove(topic);
        }
    }
}
