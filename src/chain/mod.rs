//! Runs the plugins, in the order of the configuration. The first answer other than "go on" wins.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_plugin::{Client, Hook, Plugin, Publish, Refusal, Subscribe, Verdict};

/// All plugins.
#[derive(Clone, Default)]
pub struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
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
    /// Protocol level.
    pub level: u8,
}

impl Chain {
    /// A chain of these plugins.
    pub fn new(plugins: Vec<Arc<dyn Plugin>>) -> Self {
        Self { plugins }
    }

    /// Asks every plugin about a client that wants to connect.
    pub async fn connect(&self, candidate: Arc<Candidate>) -> Result<Hooks, Refusal> {
        let mut hooks = Vec::new();
        for plugin in &self.plugins {
            let hook = if plugin.blocks_on_connect() {
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

    /// Lets every plugin read its files again; what went wrong, by plugin.
    pub fn reload(&self) -> Vec<(&'static str, String)> {
        self.plugins.iter().filter_map(|plugin| Some((plugin.name(), plugin.reload().err()?))).collect()
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
            level: self.level,
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

    /// Asks about a subscription.
    pub fn on_subscribe(&mut self, subscribe: &Subscribe<'_>) -> Verdict {
        self.first(|hook| hook.on_subscribe(subscribe))
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
