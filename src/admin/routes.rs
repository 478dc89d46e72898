//! What can be asked for.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tidegate_plugin as plugin;

use super::Ready;

/// Brings the metrics up to date; called before they are read.
pub type Refresh = Arc<dyn Fn() + Send + Sync>;
/// Asks the plugins a question.
pub type Ask = Arc<dyn Fn(&plugin::Request<'_>) -> Option<plugin::Response> + Send + Sync>;

/// The version of Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Where the plugins answer.
const API: &str = "/api/v1/";
/// The largest question, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// `/metrics`, `/healthz`, `/readyz`, and `/api/v1/...`, which the plugins answer.
pub fn routes(metrics: PrometheusHandle, refresh: Refresh, ask: Ask, ready: Ready) -> Router {
    let render = move || async move {
        refresh();
        ([(header::CONTENT_TYPE, TEXT_FORMAT)], metrics.render())
    };
    let question =
        move |method: Method, uri: Uri, body: Bytes| async move { answer(&ask, &method, &uri, &body) };
    Router::new()
        .route("/metrics", get(render))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness(&ready)))
        .route("/api/v1/{*path}", get(question.clone()).post(question))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

fn readiness(ready: &Ready) -> impl IntoResponse + use<> {
    if ready.get() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or draining\n")
    }
}

fn answer(ask: &Ask, method: &Method, uri: &Uri, body: &[u8]) -> Response {
    let request = plugin::Request {
        method: method.as_str(),
        path: uri.path().strip_prefix(API).unwrap_or_default(),
        query: uri.query().unwrap_or_default(),
        body,
    };
    let answer = ask(&request).unwrap_or_else(|| plugin::Response {
        status: 404,
        json: r#"{"error":"no plugin answers this; see `plugins` in the configuration"}"#.into(),
    });
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], answer.json).into_response()
}
