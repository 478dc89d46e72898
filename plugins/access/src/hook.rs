//! What one connection may do.

use std::sync::Arc;

use tidegate_plugin::{Hook, Publish, Refusal, Standing, Subscribe, Verdict};

use crate::access::CurrentRules;
use crate::rules::{Action, Grants};

/// Longer topics are not remembered: idle connections must stay small.
const MAX_REMEMBERED: usize = 128;

/// Asks the rules about one connection.
pub(crate) struct AccessHook {
    rules: Arc<CurrentRules>,
    generation: u64,
    grants: Grants,
    client: Box<str>,
    user: Option<Box<str>>,
    /// The topic that was allowed last: most devices publish to the same one again and again.
    last_topic: String,
}

impl AccessHook {
    pub(crate) fn new(rules: Arc<CurrentRules>, client: &str, user: Option<&str>) -> Self {
        let (now, generation) = rules.get();
        Self {
            rules,
            generation,
            grants: Grants::new(&now, client, user),
            client: client.into(),
            user: user.map(Box::from),
            last_topic: String::new(),
        }
    }

    /// Takes over the rules of a reload.
    fn refresh(&mut self) {
        if self.generation == self.rules.generation() {
            return;
        }
        let (now, generation) = self.rules.get();
        self.grants = Grants::new(&now, &self.client, self.user.as_deref());
        self.generation = generation;
        self.last_topic.clear();
    }
}

impl Hook for AccessHook {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        self.refresh();
        // No topic is empty, so an empty memory never matches.
        if self.last_topic == publish.topic && !publish.topic.is_empty() {
            return Verdict::Continue;
        }
        if !self.grants.may(Action::Publish, publish.topic) {
            return Verdict::Refuse(Refusal::not_authorized("no rule allows to publish to this topic"));
        }
        if publish.topic.len() <= MAX_REMEMBERED {
            self.last_topic.clear();
            self.last_topic.push_str(publish.topic);
        }
        Verdict::Continue
    }

    fn standing(&mut self, topic: &str) -> Standing {
        self.refresh();
        if self.grants.may(Action::Publish, topic) { Standing::Ordinary } else { Standing::Refused }
    }

    fn on_subscribe(&mut self, subscribe: &Subscribe<'_>) -> Verdict {
        self.refresh();
        if self.grants.may(Action::Subscribe, subscribe.filter) {
            return Verdict::Continue;
        }
        // not 0x87: SUBACK says the same in both versions, and nothing about what the rules guard
        Verdict::Refuse(Refusal::unspecified("no rule allows to subscribe to all of this filter"))
    }
}
