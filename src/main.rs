//! The `tidegate` command.

use tidegate::config::Settings;
use tidegate::gateway::Gateway;
use tidegate::listen::Listeners;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut settings = Settings::default();
    if let Some(port) = std::env::args().nth(1) {
        settings.listen.mqtt = vec![std::net::SocketAddr::from(([127, 0, 0, 1], port.parse()?))];
    }
    let gateway = Gateway::builder(settings.clone()).build()?;
    let listeners = Listeners::bind(&settings.listen, None, settings.session.max_packet_size)?;
    listeners.run(move |stream| gateway.clone().serve(stream), std::future::pending()).await;
    Ok(())
}
