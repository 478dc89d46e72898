//! What can be asked for.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;

use super::Ready;

/// Brings the metrics up to date; called before they are read.
pub type Refresh = Arc<dyn Fn() + Send + Sync>;

/// The version of Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `/metrics`, `/healthz` and `/readyz`.
pub fn routes(metrics: PrometheusHandle, refresh: Refresh, ready: Ready) -> Router {
    let render = move || async move {
        refresh();
        ([(header::CONTENT_TYPE, TEXT_FORMAT)], metrics.render())
    };
    Router::new()
        .route("/metrics", get(render))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness(&ready)))
}

fn readiness(ready: &Ready) -> impl IntoResponse + use<> {
    if ready.get() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or draining\n")
    }
}
