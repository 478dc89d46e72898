//! The gateway: settings and plugins in, a running broker out.

use std::sync::Arc;

use tidegate_plugin::{Plugin, Request, Response};

use crate::broker::{Broker, SpineError};
use crate::chain::Chain;
use crate::config::Settings;
use crate::listen::Stream;

/// Why a gateway could not be built.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The broker did not start.
    #[error(transparent)]
    Spine(#[from] SpineError),
}

/// Collects what a gateway is made of.
///
/// People who build their own binary add plugins here; they run in the order in which they are added.
#[derive(Default)]
pub struct Builder {
    settings: Settings,
    plugins: Vec<Arc<dyn Plugin>>,
}

/// A gateway. Cheap to copy: all copies are the same one.
#[derive(Clone)]
pub struct Gateway {
    broker: Arc<Broker>,
}

impl Builder {
    /// Adds a plugin after those added before.
    #[must_use]
    pub fn plugin(mut self, plugin: Box<dyn Plugin>) -> Self {
        self.plugins.push(plugin.into());
        self
    }

    /// Starts the broker. Must be called within a tokio runtime.
    pub fn build(self) -> Result<Gateway, GatewayError> {
        Ok(Gateway { broker: Broker::start(self.settings, Chain::new(self.plugins))? })
    }
}

impl Gateway {
    /// Starts with settings.
    pub fn builder(settings: Settings) -> Builder {
        Builder { settings, plugins: Vec::new() }
    }

    /// Serves one client until its connection ends.
    pub async fn serve(self, stream: Stream) {
        crate::broker::serve(self.broker, stream).await;
    }

    /// Tells every client to leave; returns at once.
    pub fn drain(&self) {
        self.broker.drain();
    }

    /// Clients connected now.
    pub fn connected(&self) -> u64 {
        self.broker.levels().connected
    }

    /// Asks the plugins an operator's question; none when it is nobody's.
    pub fn request(&self, request: &Request<'_>) -> Option<Response> {
        self.broker.chain.request(request)
    }

    /// Lets the plugins read their files again; what went wrong, by plugin.
    pub fn reload(&self) -> Vec<(&'static str, String)> {
        self.broker.chain.reload()
    }

    /// Copies the broker's counts into the metrics registry; called before each scrape.
    pub fn refresh_metrics(&self) {
        self.broker.stats.each(|name, _, value| metrics::counter!(name).absolute(value));
        self.broker.chain.refresh_metrics();
        let levels = self.broker.levels();
        metrics::gauge!("tidegate_clients_connected").set(levels.connected as f64);
        metrics::gauge!("tidegate_sessions").set(levels.sessions as f64);
        metrics::gauge!("tidegate_subscriptions").set(levels.subscriptions as f64);
        metrics::gauge!("tidegate_retained_messages").set(levels.retained as f64);
        metrics::gauge!("tidegate_retained_bytes").set(levels.retained_bytes as f64);
        metrics::gauge!("tidegate_messages_waiting").set(levels.waiting as f64);
    }
}
