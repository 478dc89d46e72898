//! Answers to operators: queues and publishers as JSON.

use std::cmp::Ordering;

use serde::Serialize;
use tidegate_control::overload::Phase;
use tidegate_control::time::Span;
use tidegate_plugin::{Request, Response};

use crate::queue::Queue;
use crate::state::State;

/// Entries of one answer.
const MOST: usize = 1_000;
/// Delays are compared in such steps, or the order of queues without trouble would be another one each time.
const LATE: Span = Span::from_millis(50);

#[derive(Serialize)]
struct QueueAnswer<'a> {
    queue: &'a str,
    /// When that was so, in milliseconds since 1970.
    at_ms: u64,
    group: Option<&'a str>,
    filter: &'a str,
    qos: u8,
    phase: &'static str,
    consumers: u32,
    /// Publishers that feed it here, and at other gateways before the same broker.
    publishers: usize,
    publishers_elsewhere: u64,
    depth: u64,
    in_flight: u64,
    delay_ms: f64,
    arrival_rate: f64,
    processing_rate: Option<f64>,
    demand: f64,
    /// What all publishers together may send; none is no limit.
    announced_rate: Option<f64>,
    /// What a publisher of each class may send, while it is held back.
    rates: Vec<ClassRate<'a>>,
    /// Publishers that the queue itself holds.
    held: u32,
    dropped: u64,
    lost: u64,
    /// Publishers whose message waits at the gate because of the queue's rate; messages that were refused, and that were
    /// thrown away, because of it.
    gate_held: u32,
    refused: u64,
    gate_dropped: u64,
}

#[derive(Serialize)]
struct ClassRate<'a> {
    class: &'a str,
    rate: Option<f64>,
}

#[derive(Serialize)]
struct PublisherAnswer<'a> {
    client: &'a str,
    class: &'a str,
    /// What it sent to the queue lately.
    sending: f64,
    /// What it may send; none is no limit.
    rate: Option<f64>,
    /// The queue that says so.
    by: Option<&'a str>,
    /// Whether it would send more.
    pressed: bool,
}

/// `GET /api/v1/queues`: a list of protected queues, those in trouble first, and no more than so many.
pub(crate) fn queues(state: &mut State) -> Response {
    state.queues.values_mut().for_each(Queue::note_overrun);
    let state = &*state;
    let mut queues: Vec<&Queue> = state.queues.values().collect();
    queues.sort_by(|a, b| by_need(a, b).then_with(|| a.name.cmp(&b.name)));
    queues.truncate(MOST);
    let list: Vec<_> = queues.into_iter().map(|queue| queue_answer(queue, state)).collect();
    Response::ok(serde_json::json!(list).to_string())
}

/// `GET /api/v1/publishers?queue=NAME`: who feeds a queue, those who send most first.
pub(crate) fn publishers(state: &State, request: &Request<'_>) -> Response {
    let Some(name) = request.parameter("queue") else {
        return Response::bad_request(
            "say which queue: publishers?queue=NAME, with a name of /api/v1/queues",
        );
    };
    let Some(queue) = state.queues.values().find(|queue| *queue.name == *name) else {
        let json = serde_json::json!({ "error": "there is no protected queue of this name", "queue": name });
        return Response { status: 404, json: json.to_string() };
    };
    let mut feeders: Vec<(u64, f64)> = queue.feeders(state.now).collect();
    feeders.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let total = feeders.len();
    feeders.truncate(MOST);
    let list: Vec<_> = feeders
        .into_iter()
        .filter_map(|(number, sending)| publisher_answer(number, sending, state))
        .collect();
    let answer = serde_json::json!({
        "queue": name,
        "total": total,
        "truncated": total > MOST,
        "publishers": list,
    });
    Response::ok(answer.to_string())
}

/// Who is shown when not all can be: queues that hold publishers back, then late ones, then those with more messages.
pub(crate) fn by_need(a: &Queue, b: &Queue) -> Ordering {
    let phase = |queue: &Queue| match queue.phase {
        Phase::Protect => 0,
        Phase::Recover => 1,
        Phase::Idle => 2,
    };
    let late = |queue: &Queue| queue.latest.delay.as_nanos() / LATE.as_nanos();
    let by_traffic = || b.latest.arrival_rate.total_cmp(&a.latest.arrival_rate);
    phase(a).cmp(&phase(b)).then_with(|| late(b).cmp(&late(a))).then_with(by_traffic)
}

fn queue_answer<'a>(queue: &'a Queue, state: &'a State) -> QueueAnswer<'a> {
    let held = queue.phase != Phase::Idle;
    let rate = |(index, rate): (usize, &f64)| ClassRate {
        class: &state.classes.get(index).name,
        rate: rate.is_finite().then(|| rounded(*rate)),
    };
    QueueAnswer {
        queue: &queue.name,
        at_ms: state.wall_ms,
        group: queue.group.as_deref(),
        filter: &queue.filter,
        qos: queue.qos,
        phase: queue.phase.name(),
        consumers: queue.consumers,
        publishers: queue.publishers(),
        publishers_elsewhere: queue.publishers_elsewhere(),
        depth: queue.latest.depth,
        in_flight: queue.latest.in_flight,
        delay_ms: rounded(queue.latest.delay.as_secs_f64() * 1e3),
        arrival_rate: rounded(queue.latest.arrival_rate),
        processing_rate: queue.latest.processing_rate.map(rounded),
        demand: rounded(queue.latest.demand),
        announced_rate: held.then(|| rounded(queue.total)),
        rates: if held { queue.rates.iter().enumerate().map(rate).collect() } else { Vec::new() },
        held: queue.latest.held,
        dropped: queue.dropped,
        lost: queue.lost,
        gate_held: queue.overrun.waiting(),
        refused: queue.refused,
        gate_dropped: queue.gate_dropped,
    }
}

fn publisher_answer(number: u64, sending: f64, state: &State) -> Option<PublisherAnswer<'_>> {
    let source = state.sources.get(number)?;
    let by = source.by.and_then(|id| state.queues.get(&id));
    Some(PublisherAnswer {
        client: &source.client,
        class: &state.classes.get(source.class).name,
        sending: rounded(sending),
        rate: source.rate.is_finite().then(|| rounded(source.rate)),
        by: by.map(|queue| &*queue.name),
        pressed: source.pressure.is_pressed(),
    })
}

/// A number that people can read.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
