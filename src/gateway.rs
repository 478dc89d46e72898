//! The gateway: settings and plugins in, a running broker out.

use std::sync::Arc;

use tidegate_plugin::{Plugin, Request, Response};

use crate::broker::refusals::Refusals;
use crate::broker::{Broker, Levels, SpineError, Stats};
use crate::chain::Chain;
use crate::config::{Mode, Settings};
use crate::listen::Stream;
use crate::proxy::{DialError, Proxy};

/// Why a gateway could not be built.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The broker did not start.
    #[error(transparent)]
    Spine(#[from] SpineError),
    /// The upstream broker cannot be spoken to with these settings.
    #[error(transparent)]
    Upstream(#[from] DialError),
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
    core: Core,
}

/// Who serves the clients.
#[derive(Clone)]
enum Core {
    Broker(Arc<Broker>),
    Proxy(Arc<Proxy>),
}

/// Says the same to whoever serves the clients.
macro_rules! on_core {
    ($gateway:expr, $core:ident => $call:expr) => {
        match &$gateway.core {
            Core::Broker($core) => $call,
            Core::Proxy($core) => $call,
        }
    };
}

impl Builder {
    /// Adds a plugin after those added before.
    #[must_use]
    pub fn plugin(mut self, plugin: Box<dyn Plugin>) -> Self {
        self.plugins.push(plugin.into());
        self
    }

    /// Starts the broker or the proxy. Must be called within a tokio runtime.
    pub fn build(self) -> Result<Gateway, GatewayError> {
        let chain = Chain::new(self.plugins);
        let core = match self.settings.mode {
            Mode::Broker => Core::Broker(Broker::start(self.settings, chain)?),
            Mode::Proxy => Core::Proxy(Proxy::start(self.settings, chain)?),
        };
        let gateway = Gateway { core };
        gateway.describe_metrics();
        Ok(gateway)
    }
}

impl Gateway {
    /// Starts with settings.
    pub fn builder(settings: Settings) -> Builder {
        Builder { settings, plugins: Vec::new() }
    }

    /// Serves one client until its connection ends.
    pub async fn serve(self, stream: Stream) {
        match self.core {
            Core::Broker(broker) => crate::broker::serve(broker, stream).await,
            Core::Proxy(proxy) => crate::proxy::serve(proxy, stream).await,
        }
    }

    /// Tells every client to leave; returns at once.
    pub fn drain(&self) {
        on_core!(self, core => core.drain());
    }

    /// Clients connected now.
    pub fn connected(&self) -> u64 {
        self.levels().connected
    }

    /// Asks the plugins an operator's question; none when it is nobody's.
    pub fn request(&self, request: &Request<'_>) -> Option<Response> {
        self.chain().request(request)
    }

    /// Lets the plugins read their files again; what went wrong, by plugin.
    pub fn reload(&self) -> Vec<(&'static str, String)> {
        self.chain().reload()
    }

    /// Copies the broker's counts into the metrics registry; called before each scrape.
    pub fn refresh_metrics(&self) {
        self.stats().each(|name, _, value| metrics::counter!(name).absolute(value));
        if let Core::Proxy(proxy) = &self.core {
            proxy.counts.each(|name, _, value| metrics::counter!(name).absolute(value));
            metrics::gauge!(UPSTREAMS.0).set(proxy.usable_upstreams() as f64);
            metrics::gauge!(NODES.0).set(proxy.other_nodes() as f64);
        }
        self.chain().refresh_metrics();
        self.refusals().each(|what, plugin, code, count| {
            let reason = format!("0x{code:02x}");
            metrics::counter!(REFUSALS.0, "what" => what, "plugin" => plugin, "reason" => reason)
                .absolute(count);
        });
        let levels = self.levels();
        let values = [
            levels.connected as f64,
            levels.sessions as f64,
            levels.subscriptions as f64,
            levels.retained as f64,
            levels.retained_bytes as f64,
            levels.waiting as f64,
        ];
        for ((name, _), value) in LEVELS.into_iter().zip(values) {
            metrics::gauge!(name).set(value);
        }
    }

    fn levels(&self) -> Levels {
        on_core!(self, core => core.levels())
    }

    fn chain(&self) -> &Chain {
        on_core!(self, core => &core.chain)
    }

    fn stats(&self) -> &Stats {
        on_core!(self, core => &core.stats)
    }

    fn refusals(&self) -> &Refusals {
        on_core!(self, core => &core.refusals)
    }

    /// Says what each metric means.
    fn describe_metrics(&self) {
        let describe = |name, meaning: &'static str, _| metrics::describe_counter!(name, meaning.trim());
        self.stats().each(describe);
        if let Core::Proxy(proxy) = &self.core {
            proxy.counts.each(describe);
            metrics::describe_gauge!(UPSTREAMS.0, UPSTREAMS.1);
            metrics::describe_gauge!(NODES.0, NODES.1);
        }
        metrics::describe_counter!(REFUSALS.0, REFUSALS.1);
        for (name, meaning) in LEVELS {
            metrics::describe_gauge!(name, meaning);
        }
    }
}

/// What was refused; the reason is MQTT 5's code.
const REFUSALS: (&str, &str) = (
    "tidegate_refusals_total",
    "Publishes and subscriptions that were refused, by plugin and reason code; gateway is the gateway itself.",
);

/// How many addresses of the upstream are in use or ready to be.
const UPSTREAMS: (&str, &str) =
    ("tidegate_upstreams_usable", "Addresses of the upstream broker that work, as far as is known.");

/// How many nodes there are beside this one.
const NODES: (&str, &str) = (
    "tidegate_nodes_heard",
    "Other nodes before the same broker that were heard of within their time to live.",
);

/// What there is now, in the order of [`Gateway::refresh_metrics`].
const LEVELS: [(&str, &str); 6] = [
    ("tidegate_clients_connected", "Clients whose CONNECT was accepted, now."),
    ("tidegate_sessions", "Sessions, those of absent clients included."),
    ("tidegate_subscriptions", "Subscriptions; a shared group counts once."),
    ("tidegate_retained_messages", "Retained messages."),
    ("tidegate_retained_bytes", "Bytes of retained messages."),
    ("tidegate_messages_waiting", "Messages in all queues now."),
];
