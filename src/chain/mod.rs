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
            hooks.extend(hook);
        }
        Ok(Hooks(hooks.into()))
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
pub struct Hooks(Box<[Box<dyn Hook>]>);

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
        self.0.iter_mut().for_each(|hook| hook.on_unsubscribe(filter));
    }

    /// Tells of the end of the connection.
    pub fn on_disconnect(&mut self) {
        self.0.iter_mut().for_each(|hook| hook.on_disconnect());
    }

    fn first(&mut self, mut ask: impl FnMut(&mut Box<dyn Hook>) -> Verdict) -> Verdict {
        self.0
            .iter_mut()
            .map(&mut ask)
            .find(|verdict| *verdict != Verdict::Continue)
            .unwrap_or(Verdict::Continue)
    }
}
