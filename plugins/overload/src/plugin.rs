//! The plugin itself.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_plugin::{
    Client, ControlState, Hook, Host, Operated, Plugin, QueueControl, Refusal, Request, Response, Tick, Wants,
};

use crate::answer;
use crate::class::{Classes, Used};
use crate::config::{OverloadConfig, Wrong};
use crate::hook::{TopicHook, Topics};
use crate::measures;
use crate::state::State;

/// The `overload` plugin. Cheap to copy: all copies are the same one.
#[derive(Clone)]
pub struct Overload {
    classes: Arc<Classes>,
    topics: Arc<Topics>,
    state: Arc<Mutex<State>>,
}

impl Overload {
    /// Makes the plugin, or says which key is wrong and why.
    pub fn new(config: OverloadConfig) -> Result<Self, Wrong> {
        config.check()?;
        let classes = Arc::new(Classes::new(&config));
        let topics = Arc::new(Topics::default());
        let state = Arc::new(Mutex::new(State::new(&Arc::new(config), &classes, &topics)));
        Ok(Self { classes, topics, state })
    }

    /// How many queues are looked after now.
    #[cfg(test)]
    pub(crate) fn queue_count(&self) -> usize {
        self.state.lock().queues.len()
    }
}

impl QueueControl for Overload {
    fn state(&self, name: &str) -> Option<ControlState> {
        let state = self.state.lock();
        let queue = state.queues.values().find(|queue| *queue.name == *name)?;
        Some(ControlState {
            phase: queue.phase,
            demand: queue.latest.demand,
            processing_rate: queue.latest.processing_rate,
            consumers: queue.consumers,
        })
    }

    fn set_saturated(&self, is_saturated: &dyn Fn(&str) -> bool) {
        for queue in self.state.lock().queues.values_mut() {
            let saturated = is_saturated(&queue.name);
            queue.set_saturated(saturated);
        }
    }
}

impl Plugin for Overload {
    fn name(&self) -> &'static str {
        "overload"
    }

    fn connect(&self, client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        self.classes.settle(client.publisher, Used::default());
        if !self.classes.by_topic() {
            // all that it sends is of one class
            client.publisher.set_passes(client.publisher.is_exempt());
            return Ok(None);
        }
        Ok(Some(Box::new(TopicHook::new(&self.classes, &self.topics, client.publisher))))
    }

    fn start(&self, _host: &Weak<dyn Host>) {
        measures::describe();
    }

    fn wants(&self) -> Wants {
        Wants { ticks: true, ..Wants::default() }
    }

    fn on_tick(&self, tick: &Tick<'_>) {
        self.state.lock().turn(tick);
    }

    fn operated(&self) -> Option<&dyn Operated> {
        Some(self)
    }
}

impl Operated for Overload {
    fn on_request(&self, request: &Request<'_>) -> Option<Response> {
        match (request.method, request.path) {
            ("GET", "queues") => Some(answer::queues(&mut self.state.lock())),
            ("GET", "publishers") => Some(answer::publishers(&self.state.lock(), request)),
            _ => None,
        }
    }

    fn refresh_metrics(&self) {
        measures::refresh(&mut self.state.lock());
    }
}
