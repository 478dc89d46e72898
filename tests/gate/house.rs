//! A gateway in this process that listens on a real socket, and whose publishers have the rates that a test says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tidegate::config::Settings;
use tidegate::gateway::Gateway;
use tidegate::listen::Listeners;
use tidegate_gate::{Counts, GateConfig};
use tidegate_plugin::{Client, Hook, Plugin, Publisher, Refusal};
use tokio::runtime::{Builder, Runtime};

use crate::common::client::Client as Raw;
use crate::common::packet::Connect;

/// The gateway.
pub struct House {
    pub address: SocketAddr,
    pub counts: Arc<Counts>,
    rates: Arc<Rates>,
    _runtime: Runtime,
}

/// A plugin that does what tests say.
#[derive(Default)]
struct Rates {
    rates: Mutex<HashMap<String, f64>>,
    publishers: Mutex<HashMap<String, Arc<Publisher>>>,
}

struct RatesPlugin(Arc<Rates>);

impl Plugin for RatesPlugin {
    fn name(&self) -> &'static str {
        "rates"
    }

    fn connect(&self, client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        if let Some(rate) = self.0.rates.lock().unwrap().get(client.id) {
            client.publisher.set_rate(*rate);
        }
        self.0.publishers.lock().unwrap().insert(client.id.into(), Arc::clone(client.publisher));
        Ok(None)
    }
}

impl House {
    pub fn start(config: GateConfig, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        settings.listen.mqtt = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        change(&mut settings);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let _inside = runtime.enter();
        let gate = config.build().expect("a gate");
        let (counts, rates) = (gate.counts(), Arc::<Rates>::default());
        let gateway = Gateway::builder(settings.clone())
            .plugin(Box::new(RatesPlugin(Arc::clone(&rates))))
            .plugin(Box::new(gate))
            .build()
            .expect("a gateway");
        let listeners =
            Listeners::bind(&settings.listen, None, settings.session.max_packet_size).expect("a port");
        let address = listeners.local_addresses()[0].1;
        runtime.spawn(listeners.run(move |stream| gateway.clone().serve(stream), std::future::pending()));
        Self { address, counts, rates, _runtime: runtime }
    }

    /// The rate of a client from now on, connected or not.
    pub fn set_rate(&self, client: &str, rate: f64) {
        self.rates.rates.lock().unwrap().insert(client.into(), rate);
        if let Some(publisher) = self.rates.publishers.lock().unwrap().get(client) {
            publisher.set_rate(rate);
        }
    }

    pub fn connect(&self, connect: &Connect) -> Raw {
        Raw::connect(self.address, connect)
    }
}

/// How many messages may have passed by now.
pub struct Pace {
    start: Instant,
    rate: f64,
    burst: f64,
}

impl Pace {
    /// Starts before the first message.
    pub fn start(rate: f64, config: &GateConfig) -> Self {
        assert!(config.grace.is_zero(), "a grace has no bound");
        let rate = rate * (1.0 + config.slack);
        let burst = f64::from(config.burst) + rate * config.burst_time.as_secs_f64();
        Self { start: Instant::now(), rate, burst }
    }

    /// So many have passed.
    pub fn check(&self, passed: usize) {
        let most = self.burst + self.rate * self.start.elapsed().as_secs_f64() + 1.0;
        assert!(passed as f64 <= most, "{passed} passed where {most:.1} might have");
    }
}
