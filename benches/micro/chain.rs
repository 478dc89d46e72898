//! What asking plugins about a message costs: `cargo bench -p tidegate-bench --bench chain`.

#![allow(clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use tidegate::chain::{Candidate, Chain, Hooks};
use tidegate_access::{Access, AccessConfig};
use tidegate_plugin::{Client, Hook, Moment, Plugin, Publish, Publisher, Refusal, Verdict};

const PUBLISH: Publish<'_> = Publish {
    topic: "plant/7/line/3/meter/1042/power",
    payload: &[b'7'; 64],
    qos: 1,
    retain: false,
    now: Moment::START,
    waited: Duration::ZERO,
};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("plugin chain");
    group.throughput(Throughput::Elements(1));
    for count in [0, 1, 4] {
        let plugins = (0..count).map(|_| Arc::new(Counting) as Arc<dyn Plugin>).collect();
        let mut hooks = hooks(plugins);
        group.bench_function(format!("{count} hooks that count"), |b| b.iter(|| ask(&mut hooks)));
    }
    let mut hooks = hooks(vec![Arc::new(access())]);
    group.bench_function("access with 20 rules, the same topic again", |b| b.iter(|| ask(&mut hooks)));
    let topics: Vec<String> = (0..1024).map(|meter| format!("plant/7/line/3/meter/{meter}/power")).collect();
    let mut turn = 0;
    group.bench_function("access with 20 rules, another topic", |b| {
        b.iter(|| {
            turn = (turn + 1) % topics.len();
            let publish = Publish { topic: black_box(&topics[turn]), ..PUBLISH };
            assert_eq!(hooks.on_publish(&publish), Verdict::Continue);
        });
    });
    group.finish();
    criterion.final_summary();
}

fn ask(hooks: &mut Hooks) {
    assert_eq!(hooks.on_publish(black_box(&PUBLISH)), Verdict::Continue);
}

/// What the plugins keep for a connected client.
fn hooks(plugins: Vec<Arc<dyn Plugin>>) -> Hooks {
    let candidate = Candidate {
        id: "meter-1042".into(),
        user: None,
        password: None,
        peer: SocketAddr::from(([127, 0, 0, 1], 50_000)),
        certificate: None,
        publisher: Arc::new(Publisher::new("meter-1042".into(), None, 60, 5)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    match runtime.block_on(Chain::new(plugins).connect(Arc::new(candidate))) {
        Ok(hooks) => hooks,
        Err(refusal) => panic!("{refusal:?}"),
    }
}

/// The least that a plugin can do with a message.
struct Counting;

struct Count {
    messages: u64,
    bytes: usize,
}

impl Plugin for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn connect(&self, _client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        Ok(Some(Box::new(Count { messages: 0, bytes: 0 })))
    }
}

impl Hook for Count {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        self.messages += 1;
        self.bytes += publish.payload.len();
        Verdict::Continue
    }
}

/// The plugin for users and rules, with nineteen rules for other plants before the one that lets this client publish.
fn access() -> Access {
    let mut rules = tempfile::NamedTempFile::new().expect("a file can be made");
    for number in 0..19 {
        writeln!(rules, "client * publish plant/1{number:02}/#").expect("a line can be written");
    }
    writeln!(rules, "client * publish plant/7/line/+/meter/#").expect("a line can be written");
    let config = AccessConfig { anonymous: true, users: None, rules: Some(rules.path().to_owned()) };
    Access::load(config).expect("the rules are sound")
}
