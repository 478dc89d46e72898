//! Topic aliases, in both directions. They live as long as the connection.

use std::collections::BTreeMap;

/// Aliases that the client set up.
#[derive(Debug, Default)]
pub(crate) struct InboundAliases(BTreeMap<u16, Box<str>>);

impl InboundAliases {
    /// Sets an alias.
    pub(crate) fn set(&mut self, alias: u16, topic: &str) {
        self.0.insert(alias, topic.into());
    }

    /// The topic of an alias.
    pub(crate) fn get(&self, alias: u16) -> Option<&str> {
        Some(self.0.get(&alias)?)
    }
}

/// Aliases that we set up, first come first served.
#[derive(Debug)]
pub(crate) struct OutboundAliases {
    max: u16,
    topics: BTreeMap<Box<[u8]>, u16>,
}

/// How a topic is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By its name alone.
    Name,
    /// By its name, and the alias stands for it from now on.
    Introduce(u16),
    /// By its alias.
    Alias(u16),
}

impl OutboundAliases {
    /// At most `max`; 0 for none.
    pub(crate) fn new(max: u16) -> Self {
        Self { max, topics: BTreeMap::new() }
    }

    /// How to send this topic.
    pub(crate) fn naming(&mut self, topic: &[u8]) -> Naming {
        if self.max == 0 {
            return Naming::Name;
        }
        if let Some(alias) = self.topics.get(topic) {
            return Naming::Alias(*alias);
        }
        if self.topics.len() >= usize::from(self.max) {
            return Naming::Name;
        }
        let alias = self.topics.len() as u16 + 1;
        self.topics.insert(topic.into(), alias);
        Naming::Introduce(alias)
    }

    /// The packet that introduced this topic was not sent after all.
    pub(crate) fn forget(&mut self, topic: &[u8]) {
        self.topics.remove(topic);
    }
}
