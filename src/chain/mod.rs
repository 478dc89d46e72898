//! Runs the plugins, in the order of the configuration. The first answer other than "go on" wins.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tidegate_plugin::{
    CheckRequest, Client, Hook, Host, Operated, Plugin, Publish, Publisher, Refusal, Request, Response,
    Standing, Subscribe, Tick, Verdict,
};

/// All plugins.
#[derive(Clone, Default)]
pub struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
    /// Those among them that want to hear of accepted messages.
    accepting: Vec<Arc<dyn Plugin>>,
}

/// A client that wants to connect, owned so that a plugin can look at it on another thread.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Client identifier.
    pub id: Arc<str>,
    /// User name.
    pub user: Option<String>,
    /// Password.
    pub password: Option<Bytes>,
    /// Where it connects from.
    pub peer: SocketAddr,
    /// The name in its verified certificate.
    pub certificate: Option<String>,
    /// What it is as a publisher.
    pub publisher: Arc<Publisher>,
}

impl Chain {
    /// A chain of these plugins.
    pub fn new(plugins: Vec<Arc<dyn Plugin>>) -> Self {
        let accepting = plugins.iter().filter(|plugin| plugin.wants().accepted).cloned().collect();
        Self { plugins, accepting }
    }

    /// Asks every plugin about a client that wants to connect.
    pub async fn connect(&self, candidate: Arc<Candidate>) -> Result<Hooks, Refusal> {
        let mut hooks = Vec::new();
        for plugin in &self.plugins {
            let hook = if plugin.wants().blocking_connect {
                let (plugin, candidate) = (Arc::clone(plugin), Arc::clone(&candidate));
                let asked = tokio::task::spawn_blocking(move || plugin.connect(&candidate.as_client()));
                asked.await.unwrap_or_else(|_| Err(unavailable()))?
            } else {
                plugin.connect(&candidate.as_client())?
            };
            hooks.extend(hook.map(|hook| (plugin.name(), hook)));
        }
        Ok(Hooks { hooks: hooks.into(), decided_by: "" })
    }

    /// Hands every plugin the gateway, before anybody is served.
    pub fn start(&self, host: &Weak<dyn Host>) {
        self.plugins.iter().for_each(|plugin| plugin.start(host));
    }

    /// Whether a plugin wants to hear of queues.
    pub fn ticks(&self) -> bool {
        self.plugins.iter().any(|plugin| plugin.wants().ticks)
    }

    /// One turn of the control loop. A plugin that panics misses this turn.
    pub fn tick(&self, tick: &Tick<'_>) {
        for plugin in self.plugins.iter().filter(|plugin| plugin.wants().ticks) {
            if catch_unwind(AssertUnwindSafe(|| plugin.on_tick(tick))).is_err() {
                tracing::error!(plugin = plugin.name(), "a panic ended its turn of the control loop");
            }
        }
    }

    /// Tells the plugins that want it of an accepted message; `add` takes the user properties that they give it.
    pub fn on_accept(&self, publish: &Publish<'_>, add: &mut dyn FnMut(&str, &str)) {
        for plugin in &self.accepting {
            plugin.on_accept(publish, add);
        }
    }

    /// The first plugin's answer to an operator's question.
    pub fn request(&self, request: &Request<'_>) -> Option<Response> {
        self.operated().find_map(|(_, plugin)| plugin.on_request(request))
    }

    /// Brings the metrics of plugins up to date.
    pub fn refresh_metrics(&self) {
        self.operated().for_each(|(_, plugin)| plugin.refresh_metrics());
    }

    /// Lets every plugin read its files again; what went wrong, by plugin.
    pub fn reload(&self) -> Vec<(&'static str, String)> {
        self.operated().filter_map(|(name, plugin)| Some((name, plugin.reload().err()?))).collect()
    }

    fn operated(&self) -> impl Iterator<Item = (&'static str, &dyn Operated)> {
        self.plugins.iter().filter_map(|plugin| Some((plugin.name(), plugin.operated()?)))
    }
}

impl Candidate {
    fn as_client(&self) -> Client<'_> {
        Client {
            id: &self.id,
            user: self.user.as_deref(),
            password: self.password.as_deref(),
            peer: self.peer,
            certificate: self.certificate.as_deref(),
            publisher: &self.publisher,
        }
    }
}

/// A plugin panicked or the gateway is stopping.
fn unavailable() -> Refusal {
    Refusal { code: 0x88, reason: "a plugin failed".into(), retry_after: None }
}

/// What the plugins keep for one connection.
pub struct Hooks {
    /// In order, with the plugin's name.
    hooks: Box<[(&'static str, Box<dyn Hook>)]>,
    decided_by: &'static str,
}

impl Hooks {
    /// Asks about a message.
    pub fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        self.first(|hook| hook.on_publish(publish))
    }

    /// Asks about the client's will.
    pub fn on_will(&mut self, will: &Publish<'_>) -> Verdict {
        self.first(|hook| hook.on_will(will))
    }

    /// Asks what the client is for a topic: the highest of the answers.
    pub fn standing(&mut self, topic: &str) -> Standing {
        self.hooks.iter_mut().map(|(_, hook)| hook.standing(topic)).max().unwrap_or_default()
    }

    /// Asks about a subscription.
    pub fn on_subscribe(&mut self, subscribe: &Subscribe<'_>) -> Verdict {
        self.first(|hook| hook.on_subscribe(subscribe))
    }

    /// Tells of a subscription that is in force.
    pub fn on_subscribed(&mut self, subscribe: &Subscribe<'_>) {
        self.hooks.iter_mut().for_each(|(_, hook)| hook.on_subscribed(subscribe));
    }

    /// Hands over a check; whether a plugin took it.
    pub fn on_check(&mut self, check: &CheckRequest<'_>) -> bool {
        self.hooks.iter_mut().any(|(_, hook)| hook.on_check(check))
    }

    /// Tells of the end of a subscription.
    pub fn on_unsubscribe(&mut self, filter: &str) {
        self.hooks.iter_mut().for_each(|(_, hook)| hook.on_unsubscribe(filter));
    }

    /// Tells of the end of the connection.
    pub fn on_disconnect(&mut self) {
        self.hooks.iter_mut().for_each(|(_, hook)| hook.on_disconnect());
    }

    /// The plugin whose answer was the last one other than "go on".
    pub fn decided_by(&self) -> &'static str {
        self.decided_by
    }

    fn first(&mut self, mut ask: impl FnMut(&mut dyn Hook) -> Verdict) -> Verdict {
        for (plugin, hook) in &mut self.hooks {
            let verdict = ask(&mut **hook);
            if verdict != Verdict::Continue {
                self.decided_by = plugin;
                return verdict;
            }
        }
        Verdict::Continue
    }
}
