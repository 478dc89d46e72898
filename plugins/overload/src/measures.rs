//! Metrics of protected queues. Labels are bounded: queues beyond those that need to be seen are counted together.

use std::sync::Arc;

use metrics::{counter, gauge, histogram};
use tidegate_control::overload::Phase;
use tidegate_plugin::Delays;

use crate::answer::by_need;
use crate::queue::{Queue, Tally};
use crate::state::State;

/// Queues with a label of their own.
const MOST: usize = 200;
/// The label of all other queues.
const OTHER: &str = "other";

/// Says what the metrics mean.
pub(crate) fn describe() {
    for (name, text) in MEANING {
        if name.ends_with("_total") {
            metrics::describe_counter!(name, text);
        } else if name.ends_with("_seconds") {
            metrics::describe_histogram!(name, metrics::Unit::Seconds, text);
        } else {
            metrics::describe_gauge!(name, text);
        }
    }
}

/// Every metric that the plugin writes.
pub const METRICS: [&str; MEANING.len()] = {
    let mut names = [""; MEANING.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = MEANING[at].0;
        at += 1;
    }
    names
};

const MEANING: [(&str, &str); 21] = [
    ("tidegate_queue_depth", "Messages that wait in a protected queue."),
    ("tidegate_queue_in_flight", "Messages that its consumers have and have not acknowledged."),
    ("tidegate_queue_delay_seconds", "How long messages waited in a protected queue."),
    ("tidegate_queue_arrival_rate", "Messages a second that arrive."),
    ("tidegate_queue_processing_rate", "Messages a second that its consumers process when they are busy."),
    (
        "tidegate_queue_announced_rate",
        "Messages a second that its publishers may send together; +Inf is no limit.",
    ),
    ("tidegate_queue_demand_rate", "Messages a second that its publishers would send."),
    ("tidegate_queue_phase", "0 idle, 1 protect, 2 recover."),
    ("tidegate_queue_publishers", "Publishers that feed it."),
    ("tidegate_queue_held", "Publishers that the queue itself holds."),
    ("tidegate_queue_arrived_total", "Messages that entered a protected queue."),
    ("tidegate_queue_departed_total", "Messages that consumers took."),
    ("tidegate_queue_dropped_total", "Messages thrown away on purpose."),
    ("tidegate_queue_lost_total", "Messages that went missing."),
    ("tidegate_queue_gate_held", "Publishers whose message waits at the gate because of the queue's rate."),
    ("tidegate_queue_refused_total", "Messages that the gate refused because of the queue's rate."),
    (
        "tidegate_queue_gate_dropped_total",
        "QoS 0 messages that the gate threw away because of the queue's rate.",
    ),
    ("tidegate_overload_queues", "Protected queues, by phase."),
    (
        "tidegate_overload_announcements_total",
        "Announcements that were sent, or put off because they would cost too much.",
    ),
    ("tidegate_overload_deliveries_total", "Deliveries that announcements came to."),
    (
        "tidegate_overload_left_out_total",
        "Clients without a topic of their own, and queues and publishers beyond the bounds.",
    ),
];

/// What queues that are gone were counted for, and who had a label last time.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    tally: Tally,
    labels: Vec<Arc<str>>,
}

impl Gone {
    pub(crate) fn add(&mut self, tally: &Tally) {
        self.tally.add(tally);
    }
}

/// What is shown under one label.
#[derive(Debug, Clone, Copy, Default)]
struct Shown {
    depth: f64,
    in_flight: f64,
    arrival_rate: f64,
    processing_rate: f64,
    announced_rate: f64,
    demand: f64,
    phase: f64,
    publishers: f64,
    held: f64,
    gate_held: f64,
    tally: Tally,
}

/// Brings the metrics up to date.
pub(crate) fn refresh(state: &mut State) {
    let mut queues: Vec<&mut Queue> = state.queues.values_mut().collect();
    queues.sort_by(|a, b| by_need(a, b).then(a.id.cmp(&b.id)));
    let mut rest = if queues.len() > MOST { Shown::default() } else { Shown::nothing() };
    rest.tally = std::mem::take(&mut state.gone.tally);
    let mut labels = Vec::new();
    for (place, queue) in queues.into_iter().enumerate() {
        queue.note_overrun();
        let mut shown = Shown::of(queue);
        shown.tally = std::mem::take(&mut queue.tally);
        if place < MOST {
            shown.write(&queue.name);
            labels.push(Arc::clone(&queue.name));
        } else {
            rest.add(&shown);
        }
    }
    rest.write(OTHER);
    // Those who have a label no longer are not to look as they were.
    let last = std::mem::replace(&mut state.gone.labels, labels);
    for name in last.iter().filter(|name| !state.gone.labels.contains(name)) {
        Shown::nothing().write(name);
    }
    write_totals(state);
}

fn write_totals(state: &State) {
    for phase in [Phase::Idle, Phase::Protect, Phase::Recover] {
        let count = state.queues.values().filter(|queue| queue.phase == phase).count();
        gauge!("tidegate_overload_queues", "phase" => phase.name()).set(count as f64);
    }
    let counts = &state.announcer.counts;
    counter!("tidegate_overload_announcements_total", "result" => "sent").absolute(counts.announced);
    counter!("tidegate_overload_announcements_total", "result" => "put off").absolute(counts.put_off);
    counter!("tidegate_overload_deliveries_total").absolute(counts.deliveries);
    let left_out = [
        ("client topic", counts.left_out),
        ("queue or publisher", state.untracked + state.sources.untracked),
    ];
    for (what, count) in left_out {
        counter!("tidegate_overload_left_out_total", "what" => what).absolute(count);
    }
}

impl Shown {
    /// A queue that nothing happens to, and that holds nobody back.
    fn nothing() -> Self {
        Self { announced_rate: f64::INFINITY, ..Self::default() }
    }

    fn of(queue: &Queue) -> Self {
        let phase = match queue.phase {
            Phase::Idle => 0.0,
            Phase::Protect => 1.0,
            Phase::Recover => 2.0,
        };
        Self {
            depth: queue.latest.depth as f64,
            in_flight: queue.latest.in_flight as f64,
            arrival_rate: queue.latest.arrival_rate,
            processing_rate: queue.latest.processing_rate.unwrap_or(0.0),
            announced_rate: if queue.phase == Phase::Idle { f64::INFINITY } else { queue.total },
            demand: queue.latest.demand,
            phase,
            publishers: queue.publishers() as f64,
            held: f64::from(queue.latest.held),
            gate_held: f64::from(queue.overrun.waiting()),
            tally: Tally::default(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.depth += other.depth;
        self.in_flight += other.in_flight;
        self.arrival_rate += other.arrival_rate;
        self.processing_rate += other.processing_rate;
        self.announced_rate += other.announced_rate;
        self.demand += other.demand;
        self.phase = self.phase.max(other.phase);
        self.publishers += other.publishers;
        self.held += other.held;
        self.gate_held += other.gate_held;
        self.tally.add(&other.tally);
    }

    fn write(&self, queue: &str) {
        let label = || queue.to_owned();
        gauge!("tidegate_queue_depth", "queue" => label()).set(self.depth);
        gauge!("tidegate_queue_in_flight", "queue" => label()).set(self.in_flight);
        gauge!("tidegate_queue_arrival_rate", "queue" => label()).set(self.arrival_rate);
        gauge!("tidegate_queue_processing_rate", "queue" => label()).set(self.processing_rate);
        gauge!("tidegate_queue_announced_rate", "queue" => label()).set(self.announced_rate);
        gauge!("tidegate_queue_demand_rate", "queue" => label()).set(self.demand);
        gauge!("tidegate_queue_phase", "queue" => label()).set(self.phase);
        gauge!("tidegate_queue_publishers", "queue" => label()).set(self.publishers);
        gauge!("tidegate_queue_held", "queue" => label()).set(self.held);
        gauge!("tidegate_queue_gate_held", "queue" => label()).set(self.gate_held);
        counter!("tidegate_queue_arrived_total", "queue" => label()).increment(self.tally.arrived);
        counter!("tidegate_queue_departed_total", "queue" => label()).increment(self.tally.departed);
        counter!("tidegate_queue_dropped_total", "queue" => label()).increment(self.tally.dropped);
        counter!("tidegate_queue_lost_total", "queue" => label()).increment(self.tally.lost);
        counter!("tidegate_queue_refused_total", "queue" => label()).increment(self.tally.refused);
        counter!("tidegate_queue_gate_dropped_total", "queue" => label()).increment(self.tally.gate_dropped);
        let delays = histogram!("tidegate_queue_delay_seconds", "queue" => label());
        for (step, count) in self.tally.delays.iter().enumerate().filter(|(_, count)| **count > 0) {
            delays.record_many(Delays::seconds(step), *count as usize);
        }
    }
}
