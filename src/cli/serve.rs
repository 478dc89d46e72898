//! `tidegate serve`.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tidegate_plugin::{Request, Response};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::signals::{Signal, Signals};
use super::{CliError, banner, logging, wiring};
use crate::admin::{self, Admin, Ready};
use crate::config::{Loaded, Settings};
use crate::listen::{Connections, Listeners, Stream, Tls, raise_file_limit};

/// How long clients may take to leave after they were told to.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// What the commands need of a gateway.
pub(super) trait Gateway: Clone + Send + Sync + 'static {
    /// Serves one client until its connection ends.
    fn serve(self, stream: Stream) -> impl Future<Output = ()> + Send + 'static;
    /// Tells every client to leave.
    fn drain(&self);
    /// Reads users and rules again; what went wrong.
    fn reload(&self) -> Vec<String>;
    /// Copies counts into the metrics registry.
    fn refresh_metrics(&self);
    /// Asks the plugins an operator's question.
    fn request(&self, request: &Request<'_>) -> Option<Response>;
}

/// Serves until a signal ends it.
pub(super) fn serve(loaded: &Loaded) -> Result<(), CliError> {
    logging::start(&loaded.settings.log)?;
    look_at_file_limit(&loaded.settings);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::System("cannot start threads", error))?;
    runtime.block_on(async {
        let signals = Signals::new().map_err(|error| CliError::System("cannot handle signals", error))?;
        let metrics = admin::install_recorder()?;
        let gateway = wiring::gateway(&loaded.settings)?;
        let mut running = Running::start(loaded, gateway, metrics)?;
        warn(&loaded.settings);
        // A closed standard output is no reason not to serve.
        let _ = std::io::stdout().write_all(running.banner.as_bytes());
        running.until_shutdown(signals).await;
        Ok(())
    })
}

/// A gateway that serves.
pub(super) struct Running<G> {
    gateway: G,
    tls: Option<Tls>,
    connections: Connections,
    ready: Ready,
    pub(super) banner: String,
    accepting: (watch::Sender<()>, JoinHandle<()>),
    admin: (watch::Sender<()>, JoinHandle<()>),
    upkeep: JoinHandle<()>,
}

impl<G: Gateway> Running<G> {
    /// Binds everything, or nothing, and begins to serve.
    pub(super) fn start(loaded: &Loaded, gateway: G, metrics: PrometheusHandle) -> Result<Self, CliError> {
        let settings = &loaded.settings;
        let tls = Tls::load(&settings.tls)?;
        let listeners = Listeners::bind(&settings.listen, tls.clone(), settings.session.max_packet_size)?;
        let (connections, ready) = (listeners.connections(), Ready::default());
        let refresh = refresh(gateway.clone(), connections.clone());
        let asked = gateway.clone();
        let ask: admin::Ask = Arc::new(move |request: &Request<'_>| asked.request(request));
        let endpoint =
            Admin::bind(&settings.admin, admin::routes(metrics.clone(), refresh, ask, ready.clone()))?;
        let banner = banner::banner(loaded, &listeners.local_addresses(), &endpoint.local_addresses());
        let handler = {
            let gateway = gateway.clone();
            move |stream| gateway.clone().serve(stream)
        };
        let accepting = until_stopped(|stopped| listeners.run(handler, stopped));
        let admin = until_stopped(|stopped| endpoint.run(stopped));
        ready.set(true);
        let upkeep = tokio::spawn(admin::upkeep(metrics));
        Ok(Self { gateway, tls, connections, ready, banner, accepting, admin, upkeep })
    }

    /// Serves until a signal says stop; then drains until all have left, time is up, or the signal comes again.
    pub(super) async fn until_shutdown(&mut self, mut signals: Signals) {
        while signals.next().await == Signal::Reload {
            self.reload();
        }
        tokio::select! {
            () = self.drain() => {}
            () = async { while signals.next().await == Signal::Reload {} } => {
                tracing::warn!("stopping at once: the signal came twice");
            }
        }
    }

    /// Reads users, rules and certificates again; what cannot be read stays as it was.
    pub(super) fn reload(&self) {
        let mut problems = self.gateway.reload();
        if let Some(Err(error)) = self.tls.as_ref().map(Tls::reload) {
            problems.push(error.to_string());
        }
        for problem in &problems {
            tracing::error!(%problem, "not read again, what was read before stays");
        }
        if problems.is_empty() {
            tracing::info!("users, rules and certificates were read again");
        }
    }

    /// Stops accepting, tells everybody to leave, and waits for that.
    pub(super) async fn drain(&mut self) {
        tracing::info!(connections = self.connections.open(), "draining");
        self.ready.set(false);
        stop(&mut self.accepting).await;
        self.gateway.drain();
        if tokio::time::timeout(DRAIN_TIME, self.connections.all_closed()).await.is_err() {
            tracing::warn!(connections = self.connections.open(), "stopping: these clients did not leave");
        }
        self.upkeep.abort();
        stop(&mut self.admin).await;
        tracing::info!("stopped");
    }
}

fn until_stopped<F>(
    start: impl FnOnce(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) -> F,
) -> (watch::Sender<()>, JoinHandle<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, mut receiver) = watch::channel(());
    let stopped = Box::pin(async move {
        // An error means that the sender is gone, which stops as well.
        let _ = receiver.changed().await;
    });
    (sender, tokio::spawn(start(stopped)))
}

async fn stop((sender, task): &mut (watch::Sender<()>, JoinHandle<()>)) {
    let _ = sender.send(());
    // A panic in there has been reported by then.
    let _ = task.await;
}

fn refresh(gateway: impl Gateway, connections: Connections) -> admin::Refresh {
    metrics::describe_gauge!("tidegate_connections_open", "Connections now, over all listeners.");
    metrics::describe_counter!("tidegate_connections_accepted_total", "Connections that were let in.");
    metrics::describe_counter!(
        "tidegate_connections_refused_total",
        "Connections that were closed: over listen.max_connections, over listen.max_accept_rate, or because the TLS \
         or WebSocket handshake failed."
    );
    metrics::describe_counter!(
        "tidegate_accept_errors_total",
        "Failures to accept, such as too few file descriptors."
    );
    Arc::new(move || {
        gateway.refresh_metrics();
        let counts = connections.counts();
        metrics::gauge!("tidegate_connections_open").set(connections.open() as f64);
        metrics::counter!("tidegate_connections_accepted_total").absolute(counts.accepted);
        let refused = |reason: &'static str, count| {
            metrics::counter!("tidegate_connections_refused_total", "reason" => reason).absolute(count);
        };
        refused("limit", counts.over_limit);
        refused("rate", counts.over_rate);
        refused("handshake", counts.handshake_failed);
        metrics::counter!("tidegate_accept_errors_total").absolute(counts.accept_errors);
    })
}

fn warn(settings: &Settings) {
    for warning in banner::warnings(settings) {
        if tracing::enabled!(tracing::Level::WARN) {
            tracing::warn!("{warning}");
        } else {
            // Whoever hides warnings must still be told this.
            let _ = writeln!(std::io::stderr(), "WARNING: {warning}");
        }
    }
}

/// Connections need a descriptor each; a few more are for files and for ourselves.
fn look_at_file_limit(settings: &Settings) {
    const OURS: u64 = 64;
    match raise_file_limit() {
        Ok(Some(limit)) if limit < settings.listen.max_connections as u64 + OURS => tracing::info!(
            limit,
            "open files are limited, so fewer clients than listen.max_connections can connect; `ulimit -n` raises it"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
}
