//! The server of the crate rumqttd as a peer: it has no package of its own.

use std::io::Write;
use std::path::Path;

/// The version of the crate.
pub const VERSION: &str = "0.20.0";

/// Its configuration; it listens for one version of MQTT on a port.
pub(super) fn configuration(port: u16, v5: bool) -> String {
    let listener = if v5 { "v5" } else { "v4" };
    format!(
        "id = 0\n\n\
         # compiled in: at most 100 messages in flight to each consumer, whatever is configured\n\
         [router]\n\
         id = 0\n\
         max_connections = 100000\n\
         max_outgoing_packet_count = 200\n\
         # a gigabyte for what waits on a filter\n\
         max_segment_size = 104857600\n\
         max_segment_count = 10\n\n\
         [{listener}.bench]\n\
         name = \"bench\"\n\
         listen = \"127.0.0.1:{port}\"\n\
         next_connection_delay_ms = 0\n\n\
         [{listener}.bench.connections]\n\
         connection_timeout_ms = 60000\n\
         max_payload_size = 1048576\n\
         # packets read from a connection at a time, whatever its name says\n\
         max_inflight_count = 1000\n\
         dynamic_filters = true\n"
    )
}

/// Runs the server with a configuration file until it fails.
pub fn serve(file: &Path) -> anyhow::Result<()> {
    serve_with(&std::fs::read_to_string(file)?)
}

/// Runs the server for MQTT 3.1.1 on a loopback port until it fails, and says how it is configured.
pub fn serve_on(port: u16) -> anyhow::Result<()> {
    let text = configuration(port, false);
    std::io::stdout().write_all(text.as_bytes())?;
    serve_with(&text)
}

fn serve_with(text: &str) -> anyhow::Result<()> {
    let config: rumqttd::Config = toml::from_str(text)?;
    let mut broker = rumqttd::Broker::new(config);
    broker.start()?;
    Ok(())
}
