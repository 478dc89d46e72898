//! Questions and answers over the admin endpoint.

use serde::{Deserialize, Serialize};
use tidegate_control::autoscale::{Coupling, desired};
use tidegate_control::overload::Phase;
use tidegate_plugin::{ControlState, Request, Response};

use crate::Autoscale;
use crate::book::{Book, Known, Said};

/// The most instances that anybody may speak of.
const MAX_INSTANCES: u32 = 100_000;
/// The longest name of a queue: the gateway cuts longer ones to a good 200 bytes.
const MAX_NAME: usize = 256;

/// What an auto-scaler says of itself. Fields that we don't know are its own business.
#[derive(Deserialize)]
struct News {
    queue: Option<String>,
    instances: u32,
    max: Option<u32>,
    saturated: Option<bool>,
}

/// What an auto-scaler should do, and why.
#[derive(Serialize)]
struct Scale<'a> {
    queue: &'a str,
    coupling: &'static str,
    phase: &'static str,
    /// Instances that there should be.
    desired: u32,
    /// Whether the auto-scaler should leave everything as it is.
    hold: bool,
    /// What publishers would send if nobody held them back, in messages a second.
    demand: f64,
    arrival_rate: f64,
    depth: u64,
    /// What one instance processes, in messages a second, once that is known.
    instance_rate: Option<f64>,
    instances: u32,
    max: Option<u32>,
    saturated: Option<bool>,
}

/// Answers what is ours.
pub fn answer(plugin: &Autoscale, request: &Request<'_>) -> Option<Response> {
    let mut book = plugin.book.lock();
    let answered = match (request.path, request.method) {
        ("scale", "GET") => scale(plugin, &book, request.parameter("queue")),
        ("autoscaler", "POST") => news(plugin, &mut book, request.body),
        ("scale", _) => Err(error(405, "ask with GET")),
        ("autoscaler", _) => Err(error(405, "tell with POST; GET /api/v1/scale answers what to do")),
        _ => return None,
    };
    Some(answered.unwrap_or_else(|response| response))
}

fn scale(plugin: &Autoscale, book: &Book, queue: Option<String>) -> Result<Response, Response> {
    let queue = queue.filter(|queue| !queue.is_empty()).map_or_else(|| only(book), Ok)?;
    let state = plugin.control.as_ref().and_then(|control| control.state(&queue));
    match (book.get(&queue), state) {
        (None, None) => Err(error(404, "no such queue; it is called `group:filter`")),
        (known, state) => told(plugin, book, &queue, known.unwrap_or(&Known::default()), state),
    }
}

fn told(
    plugin: &Autoscale,
    book: &Book,
    queue: &str,
    known: &Known,
    state: Option<ControlState>,
) -> Result<Response, Response> {
    let (config, now) = (&plugin.config, book.now());
    let said = known.said(now, config.ttl());
    let instances = known.instances(now, config.ttl());
    let phase = state.map_or(Phase::Idle, |state| state.phase);
    let demand =
        state.map(|state| state.demand).filter(|demand| demand.is_finite()).unwrap_or(known.arrival_rate);
    let hold =
        phase != Phase::Idle && matches!(config.coupling, Coupling::OverloadBased | Coupling::StateAware);
    let load = if config.coupling == Coupling::DemandAware { demand } else { known.arrival_rate };
    let instance_rate = known.instance_rate.rate();
    let needed = instance_rate.and_then(|rate| desired(load, rate * config.utilisation));
    let wanted = needed.filter(|_| !hold).unwrap_or(instances);
    let most = said.and_then(|said| said.max).unwrap_or(MAX_INSTANCES);
    let scale = Scale {
        queue,
        coupling: name(config.coupling),
        phase: phase.name(),
        desired: wanted.clamp(1, most),
        hold,
        demand,
        arrival_rate: known.arrival_rate,
        depth: known.depth,
        instance_rate,
        instances,
        max: said.and_then(|said| said.max),
        saturated: said.map(|said| said.saturated),
    };
    serde_json::to_string(&scale).map(Response::ok).map_err(|_| error(500, "the answer could not be written"))
}

fn news(plugin: &Autoscale, book: &mut Book, body: &[u8]) -> Result<Response, Response> {
    let news: News = serde_json::from_slice(body).map_err(|problem| {
        Response::bad_request(&format!(
            "must be JSON such as {{\"queue\":\"workers:sensors/#\",\"instances\":3,\"max\":5,\"saturated\":false}}: {problem}"
        ))
    })?;
    if news.instances > MAX_INSTANCES {
        return Err(Response::bad_request(&format!("instances must be at most {MAX_INSTANCES}")));
    }
    if news.max.is_some_and(|max| max == 0 || max > MAX_INSTANCES) {
        return Err(Response::bad_request(&format!("max must be from 1 to {MAX_INSTANCES}")));
    }
    let queue = news.queue.filter(|queue| !queue.is_empty()).map_or_else(|| only(book), Ok)?;
    if queue.len() > MAX_NAME || !queue.contains(':') {
        let text = format!("queue must be called `group:filter`, of at most {MAX_NAME} bytes");
        return Err(Response::bad_request(&text));
    }
    let saturated = news.saturated.unwrap_or_else(|| news.max.is_some_and(|max| news.instances >= max));
    if !book.on_said(&queue, Said { instances: news.instances, max: news.max, saturated }) {
        return Err(error(507, "too many queues are watched"));
    }
    plugin.tell_saturation(book);
    scale(plugin, book, Some(queue))
}

/// The queue that is meant when none is named.
fn only(book: &Book) -> Result<String, Response> {
    let mut names = book.names();
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name.to_string()),
        (None, _) => Err(error(404, "no queue of a shared group is in use; name one with `queue`")),
        _ => Err(Response::bad_request("there are several queues; name one with `queue`")),
    }
}

fn error(status: u16, what: &str) -> Response {
    Response { status, ..Response::bad_request(what) }
}

fn name(coupling: Coupling) -> &'static str {
    match coupling {
        Coupling::Apart => "off",
        Coupling::OverloadBased => "overload-based",
        Coupling::StateAware => "state-aware",
        Coupling::DemandAware => "demand-aware",
    }
}
