//! The admin endpoint: metrics and health over HTTP.

mod routes;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use tidegate_plugin::Delays;

pub use routes::{Ask, Refresh, routes};
pub use server::Admin;

/// Samples that wait for [`upkeep`] are kept in memory.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// A metric that was not written for this long is not shown any more: its queue is gone. Others are written before each
/// reading.
const FORGET: Duration = Duration::from_secs(300);

/// Why there is no admin endpoint.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// An address cannot be listened on.
    #[error(
        "cannot listen on {address} (`admin.listen`): {source}; choose another port, or `admin.listen = []` for none"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// Metrics of this process go elsewhere already.
    #[error("another metrics recorder is installed in this process")]
    Recorder,
}

/// Makes this process's metrics readable. Must be called before anything asks for a counter.
pub fn install_recorder() -> Result<PrometheusHandle, AdminError> {
    let recorder = builder().build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|_| AdminError::Recorder)?;
    Ok(handle)
}

/// Histograms end in `_seconds` and have the steps in which queues count delays.
fn builder() -> PrometheusBuilder {
    let steps: Vec<f64> =
        (0..Delays::STEPS as u32 - 1).map(|step| 0.001 * f64::from(1_u32 << step)).collect();
    let builder = PrometheusBuilder::new().idle_timeout(MetricKindMask::ALL, Some(FORGET));
    // fails only without steps
    let seconds = Matcher::Suffix("_seconds".into());
    builder.set_buckets_for_metric(seconds, &steps).unwrap_or_else(|_| PrometheusBuilder::new())
}

/// Keeps histograms from growing while nobody reads the metrics. Never ends.
pub async fn upkeep(metrics: PrometheusHandle) {
    let mut interval = tokio::time::interval(UPKEEP_INTERVAL);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

/// Whether clients should be sent here. Starts as no; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    /// Says whether clients should be sent here.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    /// Whether clients should be sent here.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
