//! A plugin whose answer is the first level of the topic.

use std::time::Duration;

use tidegate_plugin::{Client, Hook, Plugin, Publish, Refusal, Subscribe, Verdict};

pub struct ByTopic;

impl Plugin for ByTopic {
    fn name(&self) -> &'static str {
        "by-topic"
    }

    fn connect(&self, _: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        Ok(Some(Box::new(Asked { delays: 0 })))
    }
}

struct Asked {
    delays: usize,
}

impl Hook for Asked {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        self.answer(publish.topic)
    }

    fn on_subscribe(&mut self, subscribe: &Subscribe<'_>) -> Verdict {
        self.answer(subscribe.filter)
    }
}

impl Asked {
    fn answer(&mut self, topic: &str) -> Verdict {
        match topic.split('/').next() {
            Some("delay") => {
                self.delays += 1;
                if self.delays % 3 == 0 { Verdict::Continue } else { Verdict::Delay(Duration::from_millis(2)) }
            }
            Some("drop") => Verdict::Drop,
            Some("refuse") => Verdict::Refuse(Refusal::quota_exceeded("too much", Duration::from_secs(1))),
            Some("close") => Verdict::Close(Refusal::not_authorized("not here")),
            _ => Verdict::Continue,
        }
    }
}
