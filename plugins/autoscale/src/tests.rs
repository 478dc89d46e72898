//! The plugin in virtual time, with a made-up overload control beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate_control::flow::Reading;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{
    ControlState, Delays, Host, Operated, Phase, Plugin, Publisher, QueueControl, QueueReport, Request, Tick,
};

use crate::{Autoscale, AutoscaleConfig, Coupling};

const QUEUE: &str = "workers:sensors/#";

#[derive(Default)]
struct Control {
    state: Mutex<Option<ControlState>>,
    saturated: Mutex<HashMap<String, bool>>,
    /// Queues that are under control, beside the one of that name.
    others: Mutex<Vec<String>>,
    /// How often it was spoken to.
    calls: Mutex<usize>,
}

impl QueueControl for Control {
    fn state(&self, queue: &str) -> Option<ControlState> {
        self.state.lock().filter(|_| queue == QUEUE)
    }

    fn set_saturated(&self, is_saturated: &dyn Fn(&str) -> bool) {
        *self.calls.lock() += 1;
        let named = self.state.lock().iter().map(|_| QUEUE.to_owned()).collect::<Vec<_>>();
        for queue in named.into_iter().chain(self.others.lock().clone()) {
            let saturated = is_saturated(&queue);
            self.saturated.lock().insert(queue, saturated);
        }
    }
}

struct NoHost;

impl Host for NoHost {
    fn publish(&self, _: &str, _: &[u8], _: bool) {}

    fn subscribers(&self, _: &str) -> usize {
        0
    }

    fn publisher(&self, _: u64) -> Option<Arc<Publisher>> {
        None
    }
}

/// A gateway's turns and an operator's questions.
struct Stage {
    plugin: Autoscale,
    control: Arc<Control>,
    now: Moment,
}

impl Stage {
    fn new(coupling: Coupling) -> Self {
        let control = Arc::new(Control::default());
        let config = AutoscaleConfig { coupling, ..AutoscaleConfig::default() };
        let plugin = config.build(Some(Arc::clone(&control) as _)).unwrap();
        Self { plugin, control, now: Moment::START }
    }

    fn phase(&self, phase: Phase, demand: f64) {
        let state = ControlState { phase, demand, processing_rate: None, consumers: 2 };
        *self.control.state.lock() = Some(state);
    }

    /// Turns of a second with these queues.
    fn turns(&mut self, seconds: u64, reports: &[QueueReport]) {
        for _ in 0..seconds {
            self.now += Span::from_secs(1);
            self.plugin.on_tick(&Tick { now: self.now, wall_ms: 0, queues: reports, host: &NoHost });
        }
    }

    fn ask(&self, method: &str, path: &str, query: &str, body: &str) -> (u16, Value) {
        let request = Request { method, path, query, body: body.as_bytes() };
        let response = self.plugin.on_request(&request).expect("ours");
        (response.status, serde_json::from_str(&response.json).expect("JSON"))
    }

    fn scale(&self) -> Value {
        let (status, answer) = self.ask("GET", "scale", "", "");
        assert_eq!(status, 200, "{answer}");
        answer
    }

    fn post(&self, body: Value) -> (u16, Value) {
        self.ask("POST", "autoscaler", "", &body.to_string())
    }
}

/// A second of a queue whose consumers are busy.
fn report(name: &str, consumers: u32, arrived: u64, departed: u64) -> QueueReport {
    let second = Span::from_secs(1);
    let (group, filter) = name.split_once(':').unwrap();
    let reading = Reading {
        elapsed: second,
        depth: 7,
        arrived,
        departed,
        busy_time: second,
        busy_departed: departed,
        ..Reading::default()
    };
    QueueReport {
        id: 1,
        name: name.into(),
        group: Some(group.into()),
        filter: filter.into(),
        filters: std::sync::Arc::new([filter.into()]),
        qos: 1,
        consumers,
        reading,
        waiting: 7,
        age: Span::ZERO,
        soonest: None,
        dropped: 0,
        lost: 0,
        in_flight: 0,
        delays: Delays::default(),
        feeders: Vec::new(),
        held: 0,
        never_holds: false,
        elsewhere: None,
    }
}

#[test]
fn demand_aware_the_demand_counts_and_not_the_queue() {
    let mut stage = Stage::new(Coupling::DemandAware);
    stage.phase(Phase::Protect, 40.0);
    stage.turns(30, &[report(QUEUE, 2, 11, 11)]);
    let scale = stage.scale();
    // 40 messages a second, 5.5 for each instance, 0.9 of it used: 8.1.
    assert_eq!(
        (&scale["desired"], &scale["hold"], &scale["phase"]),
        (&json!(9), &json!(false), &json!("protect"))
    );
    assert_eq!((&scale["queue"], &scale["coupling"]), (&json!(QUEUE), &json!("demand-aware")));
    assert!((scale["instance_rate"].as_f64().unwrap() - 5.5).abs() < 1e-9);
    assert!((scale["arrival_rate"].as_f64().unwrap() - 11.0).abs() < 0.1);
    let (_, told) = stage.post(json!({"instances": 2, "max": 5}));
    assert_eq!((&told["desired"], &told["max"], &told["saturated"]), (&json!(5), &json!(5), &json!(false)));
}

#[test]
fn coupled_by_overload_it_holds_still_while_publishers_are_held_back() {
    for coupling in [Coupling::OverloadBased, Coupling::StateAware] {
        let mut stage = Stage::new(coupling);
        for phase in [Phase::Protect, Phase::Recover] {
            stage.phase(phase, 400.0);
            stage.turns(30, &[report(QUEUE, 2, 30, 11)]);
            let scale = stage.scale();
            assert_eq!((&scale["hold"], &scale["desired"]), (&json!(true), &json!(2)));
        }
        stage.phase(Phase::Idle, 400.0);
        let scale = stage.scale();
        assert_eq!((&scale["hold"], &scale["desired"]), (&json!(false), &json!(7)), "30 / (5.5 * 0.9)");
    }
}

#[test]
fn apart_it_follows_what_arrives() {
    let mut stage = Stage::new(Coupling::Apart);
    stage.phase(Phase::Protect, 400.0);
    stage.turns(30, &[report(QUEUE, 4, 5, 20)]);
    let scale = stage.scale();
    assert_eq!((&scale["hold"], &scale["desired"]), (&json!(false), &json!(2)));
    assert!(stage.control.saturated.lock().is_empty(), "nobody is told");
}

#[test]
fn without_overload_control_the_demand_is_what_arrives() {
    let config = AutoscaleConfig { coupling: Coupling::DemandAware, ..AutoscaleConfig::default() };
    let mut stage = Stage { plugin: config.build(None).unwrap(), ..Stage::new(Coupling::Apart) };
    stage.turns(60, &[report(QUEUE, 1, 20, 5)]);
    let scale = stage.scale();
    assert_eq!((&scale["desired"], &scale["phase"]), (&json!(5), &json!("idle")));
    assert!((scale["demand"].as_f64().unwrap() - 20.0).abs() < 0.1);
}

#[test]
fn state_aware_controllers_hear_of_saturation_and_of_its_end() {
    let mut stage = Stage::new(Coupling::StateAware);
    stage.phase(Phase::Idle, 1.0);
    let saturated = |stage: &Stage| stage.control.saturated.lock().get(QUEUE).copied();
    stage.turns(1, &[report(QUEUE, 2, 5, 5)]);
    assert_eq!(saturated(&stage), Some(true), "without an auto-scaler, publishers are held back");
    stage.post(json!({"queue": QUEUE, "instances": 3, "max": 5, "saturated": false}));
    assert_eq!(saturated(&stage), Some(false));
    stage.turns(59, &[]);
    assert_eq!(saturated(&stage), Some(false));
    stage.post(json!({"instances": 5, "max": 5}));
    assert_eq!(saturated(&stage), Some(true), "at its maximum it is saturated");
    stage.post(json!({"instances": 5, "max": 5, "saturated": false}));
    assert_eq!(saturated(&stage), Some(false), "unless it says otherwise");
    stage.turns(60, &[]);
    assert_eq!(saturated(&stage), Some(true), "what it said counts for a minute");
    assert_eq!(stage.scale()["max"], Value::Null);
}

/// However many queues there are: one that asks for each of them would take a second where there are ten thousand.
#[test]
fn all_queues_are_told_at_once() {
    let mut stage = Stage::new(Coupling::StateAware);
    *stage.control.others.lock() = (0..100).map(|n| format!("g{n}:t")).collect();
    stage.turns(1, &[]);
    stage.post(json!({"queue": "g7:t", "instances": 1, "max": 5}));
    assert_eq!(*stage.control.calls.lock(), 2, "one in the turn, one for the news");
    let saturated = stage.control.saturated.lock();
    assert_eq!((saturated.len(), saturated["g7:t"], saturated["g8:t"]), (100, false, true));
}

#[test]
fn instances_that_start_are_not_taken_for_slow_ones() {
    let mut stage = Stage::new(Coupling::DemandAware);
    stage.turns(1, &[report(QUEUE, 2, 10, 10)]);
    stage.post(json!({"instances": 6}));
    stage.turns(50, &[report(QUEUE, 2, 10, 10)]);
    assert!((stage.scale()["instance_rate"].as_f64().unwrap() - 5.0).abs() < 1e-9);
    // Two connections for each instance.
    stage.post(json!({"instances": 1}));
    stage.turns(50, &[report(QUEUE, 2, 10, 10)]);
    assert!((stage.scale()["instance_rate"].as_f64().unwrap() - 10.0).abs() < 1.0);
}

#[test]
fn with_nothing_known_it_stays_as_it_is_and_never_asks_for_none() {
    let mut stage = Stage::new(Coupling::DemandAware);
    stage.turns(1, &[]);
    let (status, told) = stage.post(json!({"queue": QUEUE, "instances": 3}));
    assert_eq!((status, &told["desired"], &told["instance_rate"]), (200, &json!(3), &Value::Null));
    let (_, told) = stage.post(json!({"queue": QUEUE, "instances": 0}));
    assert_eq!(told["desired"], json!(1));
}

#[test]
fn a_queue_need_not_be_named_when_there_is_one() {
    let mut stage = Stage::new(Coupling::DemandAware);
    assert_eq!(stage.ask("GET", "scale", "", "").0, 404);
    assert_eq!(stage.post(json!({"instances": 1})).0, 404);
    stage.turns(1, &[report(QUEUE, 1, 5, 5)]);
    assert_eq!(stage.scale()["queue"], json!(QUEUE));
    stage.turns(1, &[report("other:t", 1, 5, 5)]);
    assert_eq!(stage.ask("GET", "scale", "", "").0, 400);
    assert_eq!(stage.ask("GET", "scale", "queue=workers%3Asensors%2F%23", "").1["queue"], json!(QUEUE));
    assert_eq!(stage.ask("GET", "scale", "queue=no:such", "").0, 404);
}

#[test]
fn nonsense_is_refused_in_words() {
    let stage = Stage::new(Coupling::DemandAware);
    for body in
        ["", "[]", "{}", "{\"instances\":-1}", "{\"instances\":\"3\"}", "{\"instances\":1e99}", "\u{0}"]
    {
        let (status, answer) = stage.ask("POST", "autoscaler", "", body);
        assert!(
            status == 400 && answer["error"].as_str().unwrap().contains("must be JSON such as"),
            "{answer}"
        );
    }
    for (body, word) in [
        (json!({"queue": QUEUE, "instances": 100_001}), "at most 100000"),
        (json!({"queue": QUEUE, "instances": 1, "max": 0}), "from 1 to 100000"),
        (json!({"queue": "nonsense", "instances": 1}), "group:filter"),
        (json!({"queue": format!("g:{}", "x".repeat(300)), "instances": 1}), "256 bytes"),
    ] {
        let (status, answer) = stage.post(body);
        assert!(status == 400 && answer["error"].as_str().unwrap().contains(word), "{answer}");
    }
    assert_eq!(stage.ask("GET", "autoscaler", "", "").0, 405);
    assert_eq!(stage.ask("POST", "scale", "", "").0, 405);
    let other = Request { method: "GET", path: "queues", query: "", body: b"" };
    assert!(stage.plugin.on_request(&other).is_none());
}

#[test]
fn memory_is_bounded_and_idle_queues_are_forgotten() {
    let mut stage = Stage::new(Coupling::DemandAware);
    stage.turns(1, &[]);
    for number in 0..10_000 {
        assert_eq!(stage.post(json!({"queue": format!("g:{number}"), "instances": 1})).0, 200);
    }
    assert_eq!(stage.post(json!({"queue": "g:one/more", "instances": 1})).0, 507);
    let reports: Vec<_> = (0..100).map(|number| report(&format!("new:{number}"), 1, 1, 1)).collect();
    stage.turns(1, &reports);
    assert_eq!(stage.ask("GET", "scale", "queue=new:1", "").0, 404);
    stage.turns(601, &[]);
    assert_eq!(stage.ask("GET", "scale", "queue=g:1", "").0, 404);
}

#[test]
fn what_arrives_is_forgotten_when_nothing_does() {
    let mut stage = Stage::new(Coupling::Apart);
    stage.turns(30, &[report(QUEUE, 4, 20, 20)]);
    stage.turns(60, &[]);
    let scale = stage.scale();
    assert_eq!((&scale["desired"], &scale["depth"]), (&json!(1), &json!(0)));
}

#[test]
fn bad_settings_are_refused() {
    for utilisation in [0.0, -1.0, 1.1, f64::NAN] {
        assert!(AutoscaleConfig { utilisation, ..AutoscaleConfig::default() }.build(None).is_err());
    }
    let longest = AutoscaleConfig { state_ttl: Duration::MAX, ..AutoscaleConfig::default() };
    assert!(longest.build(None).is_ok());
}
