#![allow(clippy::unwrap_used)]
use super::*;
use crate::balance::Capacity;
use proptest::prelude::*;

/// Subscribers, latency in ms without transmission, message size in bits, input rate: table 6 after the burst.
const TOPICS: [(u64, u32, u64, f64, f64); 15] = [
    (1, 8, 1500, 1600.0, 50.0),
    (2, 2, 1400, 6400.0, 200.0),
    (3, 1, 1300, 8000.0, 250.0),
    (4, 2, 1200, 3200.0, 400.0),
    (5, 3, 1100, 1600.0, 150.0),
    (6, 1, 1000, 3200.0, 100.0),
    (7, 5, 900, 2400.0, 100.0),
    (8, 7, 800, 3200.0, 200.0),
    (9, 2, 700, 4000.0, 250.0),
    (10, 4, 600, 1600.0, 400.0),
    (11, 5, 29_700, 4800.0, 50.0),
    (12, 2, 59_700, 3200.0, 300.0),
    (13, 6, 39_700, 1600.0, 50.0),
    (14, 3, 49_700, 2400.0, 200.0),
    (15, 5, 99_700, 1600.0, 200.0),
];

fn topic(id: u64) -> Topic {
    let (id, subscribers, allowed, message_bits, input_rate) =
        TOPICS.into_iter().find(|topic| topic.0 == id).unwrap();
    let topic = Topic {
        id,
        subscribers,
        origin: Origin::Local,
        message_bits,
        input_rate,
        output_rate: 0.0,
        depth: 0.0,
        allowed: Span::from_millis(allowed),
    };
    Topic { output_rate: topic.demand(), ..topic }
}

/// The brokers of table 7 four seconds after the burst.
fn brokers() -> Vec<Broker> {
    let place: [(f64, &[u64]); 4] =
        [(6.5e6, &[5, 6, 7, 11, 15]), (8e6, &[1, 3, 8, 14]), (5e6, &[10, 12]), (8e6, &[2, 4, 9, 13])];
    let mut brokers: Vec<Broker> = place
        .into_iter()
        .map(|(bandwidth, topics)| Broker {
            capacity: Capacity::new(bandwidth, 1e4, bandwidth).unwrap(),
            topics: topics.iter().copied().map(topic).collect(),
        })
        .collect();
    let deep = &mut brokers[1].topics[2];
    (deep.depth, deep.output_rate) = (700.0, 1225.0);
    brokers
}

#[test]
fn the_papers_experiment_moves_topic_1_to_broker_0() {
    let offload = OffloadConfig::default().build().unwrap();
    let brokers = brokers();
    assert!((brokers[1].utilization().uplink - 1.07).abs() < 1e-12);
    assert_eq!(offload.limits().overloaded(Role::Edge, &brokers[1]), Some(Metric::QueueDepth));
    assert_eq!(offload.plan(1, &brokers), [Move { topic: 1, subscribers: 8, to: 0 }]);
    for calm in [0, 2, 3, 99] {
        assert_eq!(offload.plan(calm, &brokers), []);
    }
}

#[test]
fn a_drain_target_takes_one_more_subscriber_along() {
    let config = OffloadConfig { drain: Some(Span::from_secs(5)), ..Default::default() };
    let moves = config.build().unwrap().plan(1, &brokers());
    let expected = [Move { topic: 1, subscribers: 8, to: 0 }, Move { topic: 14, subscribers: 1, to: 0 }];
    assert_eq!(moves, expected);
}

#[test]
fn a_drain_target_prefers_one_move_that_does_it_all() {
    let mut brokers = brokers();
    brokers[3].topics.clear();
    let config = OffloadConfig { drain: Some(Span::from_secs(5)), ..Default::default() };
    let moves = config.build().unwrap().plan(1, &brokers);
    assert_eq!(moves, [Move { topic: 14, subscribers: 3, to: 3 }]);
}

#[test]
fn nobody_who_is_busy_is_asked() {
    let mut brokers = brokers();
    brokers[0].topics.push(Topic { id: 99, ..topic(3) });
    assert_eq!(OffloadConfig::default().build().unwrap().plan(1, &brokers), []);
}

#[test]
fn groups_are_offered_in_the_order_of_table_4() {
    let origins = [
        (1, Origin::Nowhere),
        (2, Origin::Local),
        (3, Origin::Both),
        (4, Origin::Remote),
        (12, Origin::Local),
    ];
    let topics = origins.map(|(id, origin)| Topic { origin, ..topic(id) }).to_vec();
    let mut broker = Broker { topics, ..brokers()[0].clone() };
    let offload = OffloadConfig::default().build().unwrap();
    assert_eq!(offload.order(Metric::Uplink, &broker), [4, 3, 12, 2, 1]);
    assert_eq!(offload.order(Metric::Downlink, &broker), [4, 3, 12, 2, 1]);
    assert_eq!(offload.order(Metric::Matching, &broker), [1, 12, 2, 3, 4]);
    broker.topics[4].depth = 1e9;
    broker.topics[1].depth = 1.0;
    assert_eq!(offload.order(Metric::QueueDepth, &broker), [1, 3, 4, 2, 12]);
}

#[test]
fn settings_out_of_range_are_refused() {
    let good = OffloadConfig::default();
    assert_eq!(OffloadConfig { drain: Some(Span::ZERO), ..good }.build().unwrap_err().key, "drain");
    assert_eq!(OffloadConfig { most_moves: 0, ..good }.build().unwrap_err().key, "most_moves");
}

fn any_broker() -> impl Strategy<Value = Broker> {
    let topic = (0..20u64, 0..50u32, 1.0..1e4f64, 0.0..500.0f64, 0.0..5e3f64, 0..100_000u64);
    let topic = topic.prop_map(|(id, subscribers, message_bits, input_rate, depth, allowed)| Topic {
        id,
        subscribers,
        origin: Origin::Local,
        message_bits,
        input_rate,
        output_rate: input_rate * f64::from(subscribers) * 0.9,
        depth: if depth < 2e3 { 0.0 } else { depth },
        allowed: Span::from_millis(allowed),
    });
    (1e5..1e8f64, prop::collection::vec(topic, 0..6)).prop_map(|(bandwidth, mut topics)| {
        topics.sort_by_key(|topic| topic.id);
        topics.dedup_by_key(|topic| topic.id);
        Broker { capacity: Capacity::new(bandwidth, 1e4, bandwidth).unwrap(), topics }
    })
}

proptest! {
    #[test]
    fn no_target_is_overfilled_and_no_more_is_moved_than_there_is(
        brokers in prop::collection::vec(any_broker(), 1..6), source in 0..6usize, drain in any::<bool>(),
    ) {
        let drain = drain.then_some(Span::from_secs(5));
        let offload = OffloadConfig { drain, most_moves: 4, ..Default::default() }.build().unwrap();
        let moves = offload.plan(source, &brokers);
        prop_assert!(moves.len() <= 4);
        let mut after = brokers.clone();
        for next in &moves {
            prop_assert!(next.to != source && next.subscribers > 0);
            let moved = after[source].topics.iter_mut().find(|topic| topic.id == next.topic).unwrap();
            prop_assert!(moved.subscribers >= next.subscribers);
            moved.subscribers -= next.subscribers;
            let moved = Topic { subscribers: next.subscribers, ..*moved };
            match after[next.to].topics.iter_mut().find(|topic| topic.id == next.topic) {
                Some(served) => served.subscribers += next.subscribers,
                None => after[next.to].topics.push(moved),
            }
        }
        for target in moves.iter().map(|next| next.to) {
            let used = after[target].utilization();
            prop_assert!(used.uplink < 0.95 && used.matching < 0.95 && used.downlink < 0.95, "{used:?}");
        }
    }

    #[test]
    fn measures_that_are_no_numbers_do_no_harm(
        figures in prop::collection::vec((any::<f64>(), any::<f64>(), any::<f64>(), any::<f64>(), any::<u32>()), 1..8),
        drain in any::<bool>(),
    ) {
        let mut brokers = brokers();
        for (index, (bits, input, output, depth, subscribers)) in figures.into_iter().enumerate() {
            let hostile = Topic {
                id: index as u64,
                subscribers,
                message_bits: bits,
                input_rate: input,
                output_rate: output,
                depth,
                ..topic(1)
            };
            brokers[index % 4].topics.push(hostile);
        }
        let drain = drain.then_some(Span::from_secs(5));
        let offload = OffloadConfig { drain, ..Default::default() }.build().unwrap();
        for source in 0..4 {
            prop_assert!(offload.plan(source, &brokers).len() <= 16);
        }
    }
}
