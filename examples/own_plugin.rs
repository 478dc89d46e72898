//! A gateway with a plugin of its own: what is published under `telemetry/` must be JSON.
//!
//! `cargo run --example own_plugin`, then, for a refusal:
//! `mosquitto_pub -V 5 -q 1 -t telemetry/pump -m "not JSON"`
#![allow(clippy::print_stdout)]

use anyhow::Result;
use tidegate::config::{Sources, load};
use tidegate::gateway::Gateway;
use tidegate::listen::{Listeners, Tls};
use tidegate_plugin::{Client, Hook, Plugin, Publish, Refusal, Verdict};

/// The plugin: made once, asked about every client that connects.
struct OnlyJson {
    prefix: &'static str,
}

impl Plugin for OnlyJson {
    fn name(&self) -> &'static str {
        "only-json"
    }

    fn connect(&self, _: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        Ok(Some(Box::new(Looking { prefix: self.prefix })))
    }
}

/// Its part in one connection: asked about every message.
struct Looking {
    prefix: &'static str,
}

impl Hook for Looking {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        let json = || serde_json::from_slice::<serde::de::IgnoredAny>(publish.payload).is_ok();
        if !publish.topic.starts_with(self.prefix) || json() {
            return Verdict::Continue;
        }
        // 0x99: Payload format invalid
        Verdict::Refuse(Refusal { code: 0x99, reason: "the payload is not JSON".into(), retry_after: None })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = std::env::args().skip(1).collect(); // such as listen.mqtt=127.0.0.1:1884
    let settings = load(&Sources::of_process(None, arguments))?.settings;
    let gateway =
        Gateway::builder(settings.clone()).plugin(Box::new(OnlyJson { prefix: "telemetry/" })).build()?;
    let listeners =
        Listeners::bind(&settings.listen, Tls::load(&settings.tls)?, settings.session.max_packet_size)?;
    for (transport, address) in listeners.local_addresses() {
        println!("{transport} on {address}; Ctrl-C stops");
    }
    let (connections, serving) = (listeners.connections(), gateway.clone());
    let interrupted = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    listeners.run(move |stream| serving.clone().serve(stream), interrupted).await;
    gateway.drain();
    connections.all_closed().await;
    Ok(())
}
