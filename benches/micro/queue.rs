//! What a message costs in a consumer's queue, in and out: `cargo bench -p tidegate-bench --bench queue`.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use tidegate::broker::internals::{Entry, HoldPolicy, Limits, Message, Parts, Queue};
use tidegate::config::Settings;
use tidegate::wire::QoS;
use tidegate_control::flow::Flow;
use tidegate_control::time::{Moment, Span};

const NOW: u64 = 1000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    queue(&mut criterion);
    ledger(&mut criterion);
    criterion.final_summary();
}

/// A batch goes in and comes out again, as between a dispatcher and a connection.
fn queue(criterion: &mut Criterion) {
    let limits = Limits::from(&Settings::default().queue);
    let mut group = criterion.benchmark_group("queue");
    for (name, qos) in [("QoS 0", QoS::AtMostOnce), ("QoS 1", QoS::AtLeastOnce)] {
        for batch in [1, 16, 256] {
            let queue = Queue::new(HoldPolicy::WhileProgress);
            queue.connect(NOW);
            let mut out = Vec::with_capacity(batch);
            group.throughput(Throughput::Elements(batch as u64));
            group.bench_function(BenchmarkId::new(name, format!("batches of {batch}")), |b| {
                b.iter_batched_ref(
                    || vec![entry(qos); batch],
                    |entries| {
                        black_box(queue.push(entries.drain(..), NOW, &limits));
                        queue.pop(&mut out, batch, usize::MAX, usize::MAX, NOW, &limits);
                        assert_eq!(out.len(), batch);
                        out.clear();
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
}

/// What the ledger's curves cost: an arrival, a departure, and a reading for each hundred of them.
fn ledger(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ledger curves");
    let mut flow = Flow::new(Moment::START);
    let mut nanos = 0;
    let mut tick = move || {
        nanos += 1_000;
        Moment::from_nanos(nanos)
    };
    group.throughput(Throughput::Elements(100));
    group.bench_function("100 arrivals and departures, 1 reading", |b| {
        b.iter(|| {
            for _ in 0..100 {
                flow.arrive(tick(), black_box(1));
                flow.depart(tick(), black_box(1));
            }
            let reading = flow.read(tick());
            assert!(reading.elapsed > Span::ZERO);
            black_box(reading);
        });
    });
}

fn entry(qos: QoS) -> Entry {
    let parts = Parts {
        topic: "plant/7/line/3/meter/1042/power",
        properties: b"",
        payload: &[b'7'; 64],
        qos,
        retain: false,
        urgent: false,
        ordinal: 1,
        expires: 0,
    };
    Entry { message: Arc::new(Message::new(1, &parts)), extra: None, since: NOW, qos, retain: false }
}
