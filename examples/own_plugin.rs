//! A gateway with a plugin of its own: what is published under `telemetry/` must be JSON.
//!
//! `cargo run --example own_plugin`, then, for a refusal:
//! `mosquitto_pub -V 5 -q 1 -t telemetry/pump -m "not JSON"`

use anyhow::Result;
use tidegate::config::{Sources, load};
use tidegate::plugin::{Client, Hook, Plugin, Publish, Refusal, Verdict};
use tidegate::serve_with;

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

fn main() -> Result<()> {
    let arguments = std::env::args().skip(1).collect(); // such as listen.mqtt=127.0.0.1:1884
    let loaded = load(&Sources::of_process(None, arguments))?;
    Ok(serve_with(&loaded, vec![Box::new(OnlyJson { prefix: "telemetry/" })])?)
}
