//! What it costs to find the subscriptions of a topic that was not seen before:
//! `cargo bench -p tidegate-bench --bench topics`.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput};
use tidegate::broker::internals::{HoldPolicy, Session, Subscription, Target, Tree};
use tidegate::wire::QoS;

/// Topics looked up in turn, so that no lookup finds the last one's way in the cache.
const TOPICS: usize = 1024;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("topic match");
    for filters in [10, 1_000, 100_000] {
        let tree = tree(filters);
        let topics: Vec<String> = (0..TOPICS).map(|k| topic(k * filters / TOPICS)).collect();
        let found: usize = topics.iter().map(|topic| matches(&tree, topic)).sum();
        assert!(found >= TOPICS, "each topic has a subscription of its own");
        let mut turn = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::from_parameter(format!("{filters} filters")), |b| {
            b.iter(|| {
                turn = (turn + 1) % TOPICS;
                black_box(matches(&tree, black_box(&topics[turn])))
            });
        });
    }
    group.finish();
    criterion.final_summary();
}

fn matches(tree: &Tree, topic: &str) -> usize {
    let mut count = 0;
    tree.each_match(topic, |subscription| {
        black_box(subscription);
        count += 1;
    });
    count
}

/// The topic of one device; 100 devices share a line.
fn topic(device: usize) -> String {
    format!("plant/{}/line/{}/meter/{device}/power", device / 10_000, device / 100)
}

/// Nine filters in ten name one device; the tenth has wildcards: `+` at the end or in the middle, or `#`.
fn tree(filters: usize) -> Tree {
    let mut tree = Tree::default();
    for k in 0..filters {
        let line = k / 100;
        let filter = match k % 40 {
            9 => format!("plant/{}/line/{line}/meter/{k}/+", k / 10_000),
            19 => format!("plant/+/line/{line}/meter/{k}/power"),
            29 => format!("plant/{}/line/{line}/#", k / 10_000),
            39 => format!("+/+/+/+/meter/{k}/power"),
            _ => topic(k),
        };
        tree.insert(&filter, subscription(k as u64));
    }
    tree
}

fn subscription(number: u64) -> Arc<Subscription> {
    let session = Session::new(number, format!("consumer-{number}").into());
    Arc::new(Subscription {
        filter: "".into(),
        target: Target::Session(Arc::new(session)),
        qos: QoS::AtLeastOnce,
        no_local: false,
        retain_as_published: false,
        since: 0,
        extra: None,
        policy: HoldPolicy::WhileProgress,
    })
}
