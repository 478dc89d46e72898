//! Consumers that cannot keep up: nothing that was acknowledged is lost, order is kept, others go on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::client::Client;
use common::decode::Packet;
use common::flood::flood;
use common::packet::Version::{V5, V311};
use common::packet::*;
use common::property::*;
use common::server::{Server, Setup};
use common::{PATIENCE, unique};

fn start(name: &str, settings: &[(&'static str, &str)]) -> Server {
    let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    Server::start(name, &Setup { settings, ..Setup::default() })
}

/// `count` messages of QoS 1 that say who sent them and which number they have.
fn numbered(topic: &str, publisher: usize, count: usize) -> impl Iterator<Item = Publish> + use<> {
    let topic = topic.to_owned();
    (0..count).map(move |n| Publish::new(&topic, format!("{publisher} {n}")).qos(1))
}

/// Checks that messages come in order from each publisher, none twice; tells how many came.
struct Order {
    next: Vec<usize>,
    /// Whether numbers may be left out.
    gaps: bool,
}

impl Order {
    fn new(publishers: usize, gaps: bool) -> Self {
        Self { next: vec![0; publishers], gaps }
    }

    fn check(&mut self, publish: &Publish) {
        let (publisher, number) = publish.text().split_once(' ').expect("two numbers");
        let (publisher, number): (usize, usize) = (publisher.parse().unwrap(), number.parse().unwrap());
        let next = &mut self.next[publisher];
        let right = if self.gaps { number >= *next } else { number == *next };
        assert!(right, "publisher {publisher}: {number} where {next} was to come");
        *next = number + 1;
    }
}

/// A consumer slower than its two publishers: everything acknowledged is delivered, in order for each
/// publisher; what waits stays near the bound, because the publishers wait; a pair on other topics goes on.
#[test]
fn slow_consumer_holds_its_publishers_and_nobody_else() {
    const EACH: usize = 10_000;
    let settings = [("queue.max_messages", "500"), ("queue.max_bytes", "1048576")];
    let server = start("slow-consumer", &settings);
    let connect = Connect::v5(&unique("slow")).with(short(RECEIVE_MAXIMUM, 20));
    let mut consumer = server.connect(&connect);
    consumer.subscribe("slow/topic", 1);
    let (accepted, received) = (&[AtomicUsize::new(0), AtomicUsize::new(0)], &AtomicUsize::new(0));
    let peak = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (publisher, count) in accepted.iter().enumerate() {
            let mut client = server.client(V5);
            scope.spawn(move || {
                flood(&mut client, numbered("slow/topic", publisher, EACH), 100, |acknowledged| {
                    count.store(acknowledged, SeqCst);
                });
            });
        }
        let mut pair = Pair::new(&server);
        scope.spawn(move || {
            for _ in 0..200 {
                pair.round_trip();
            }
            assert!(received.load(SeqCst) < 2 * EACH, "200 round trips took longer than the whole flood");
        });
        let mut order = Order::new(2, false);
        for n in 0..2 * EACH {
            let publish = consumer.expect_publish();
            order.check(&publish);
            received.store(n + 1, SeqCst);
            let waiting =
                accepted.iter().map(|count| count.load(SeqCst)).sum::<usize>().saturating_sub(n + 1);
            peak.fetch_max(waiting, SeqCst);
            if n % 4 == 0 {
                // This is the work that makes the consumer slow.
                std::thread::sleep(Duration::from_millis(1));
            }
            consumer.acknowledge(&publish);
        }
    });
    consumer.expect_silence();
    let peak = peak.load(SeqCst);
    // 500 in the queue, 20 in flight, and what was on its way to the queue when the publishers were held.
    assert!(peak < EACH / 2, "{peak} messages waited where 500 are the bound");
}

/// A publisher and a subscriber that have nothing to do with the others.
struct Pair {
    publisher: Client,
    subscriber: Client,
    topic: String,
}

impl Pair {
    fn new(server: &Server) -> Self {
        let (publisher, mut subscriber) = (server.client(V5), server.client(V5));
        let topic = unique("pair/");
        subscriber.subscribe(&topic, 1);
        Self { publisher, subscriber, topic }
    }

    fn round_trip(&mut self) {
        self.publisher.publish(Publish::new(&self.topic, "there").qos(1));
        assert_eq!(self.subscriber.receive().text(), "there");
    }
}

/// A QoS 0 subscriber that stops reading: the publishers are not stopped, and who reads gets everything.
#[test]
fn stopped_qos0_subscriber_does_not_stop_the_fleet() {
    const EACH: usize = 10_000;
    let server = start("stopped-qos0", &[]);
    let mut stopped = server.client(V311);
    stopped.subscribe("#", 0);
    let mut consumer = server.client(V311);
    consumer.subscribe("fleet/#", 1);
    std::thread::scope(|scope| {
        for publisher in 0..4 {
            let mut client = server.client(V311);
            let topic = format!("fleet/{publisher}");
            scope.spawn(move || {
                let padding = "x".repeat(500);
                let messages = (0..EACH).map(|n| Publish::new(&topic, format!("{n} {padding}")).qos(1));
                flood(&mut client, messages, 200, |_| {});
            });
        }
        let mut next = [0; 4];
        for _ in 0..4 * EACH {
            let publish = consumer.receive();
            let publisher: usize = publish.topic["fleet/".len()..].parse().expect("a number");
            let number: usize =
                publish.text().split(' ').next().expect("a number").parse().expect("a number");
            assert_eq!(number, next[publisher], "from publisher {publisher}");
            next[publisher] += 1;
        }
    });
    consumer.expect_silence();
    Pair::new(&server).round_trip();
    assert!(server.resident_kb() < 150 * 1024, "{} kB are resident", server.resident_kb());
}

/// A QoS 1 consumer that acknowledges nothing holds its publishers only for `queue.progress_timeout`.
#[test]
fn consumer_without_progress_holds_nobody() {
    let settings = [("queue.progress_timeout", "1"), ("queue.max_messages", "100")];
    let server = start("no-progress", &settings);
    let mut stuck = server.connect(&Connect::v5(&unique("stuck")).with(short(RECEIVE_MAXIMUM, 10)));
    stuck.subscribe("stuck/topic", 1);
    let mut consumer = server.client(V5);
    consumer.subscribe("stuck/topic", 1);
    let mut publisher = server.client(V5);
    std::thread::scope(|scope| {
        scope.spawn(move || flood(&mut publisher, numbered("stuck/topic", 0, 2_000), 50, |_| {}));
        let mut order = Order::new(1, false);
        for _ in 0..2_000 {
            order.check(&consumer.receive());
        }
    });
    // It gets what was in flight and what was kept, in order.
    let mut order = Order::new(1, true);
    while order.next[0] < 2_000 {
        order.check(&stuck.receive());
    }
}

/// Publishes, and waits until somebody else has it all: then nothing is on its way any more.
fn publish_and_settle(server: &Server, publisher: &mut Client, messages: Vec<Publish>) {
    let mut control = server.client(V5);
    control.subscribe(&messages[0].topic, 1);
    let count = messages.len();
    std::thread::scope(|scope| {
        scope.spawn(move || control.receive_texts(count));
        flood(publisher, messages, 50, |_| {});
    });
}

/// A client that is away keeps at most `queue.offline_messages`: the oldest go first.
#[test]
fn offline_queue_is_bounded_by_messages() {
    let server = start("offline-messages", &[("queue.offline_messages", "100")]);
    for version in [V311, V5] {
        let (topic, connect) = (unique("away/"), Connect::persistent(version, &unique("away")));
        let mut subscriber = server.connect(&connect);
        subscriber.subscribe(&topic, 1);
        subscriber.disconnect();
        let mut publisher = server.client(version);
        publish_and_settle(&server, &mut publisher, numbered(&topic, 0, 250).collect());
        let mut subscriber = server.connect(&connect);
        assert!(subscriber.connack.session_present);
        let texts = subscriber.receive_texts(100);
        let expected: Vec<String> = (150..250).map(|n| format!("0 {n}")).collect();
        assert_eq!(texts, expected);
        subscriber.expect_nothing_from(&mut publisher);
    }
}

/// The same for `queue.offline_bytes`.
#[test]
fn offline_queue_is_bounded_by_bytes() {
    let server = start("offline-bytes", &[("queue.offline_bytes", "20000")]);
    let (topic, connect) = (unique("away/"), Connect::persistent(V5, &unique("away")));
    let mut subscriber = server.connect(&connect);
    subscriber.subscribe(&topic, 1);
    subscriber.disconnect();
    let mut publisher = server.client(V5);
    let messages = (0..100).map(|n| Publish::new(&topic, format!("{n:01000}")).qos(1));
    publish_and_settle(&server, &mut publisher, messages.collect());
    let mut subscriber = server.connect(&connect);
    let mut numbers: Vec<usize> = Vec::new();
    while numbers.last() != Some(&99) {
        numbers.push(subscriber.receive().text().parse().expect("a number"));
    }
    let count = numbers.len();
    assert!((10..=20).contains(&count), "{count} messages of 1,000 bytes in 20,000 bytes");
    assert_eq!(numbers, (100 - count..100).collect::<Vec<_>>());
}

/// A group with a member that stops: what it holds goes to the others when it leaves, nothing is lost.
#[test]
fn group_with_a_stuck_member_loses_nothing() {
    const COUNT: usize = 5_000;
    let server = start("stuck-member", &[("queue.max_messages", "500")]);
    let filter = "$share/group/work";
    let mut stuck = server.connect(&Connect::v5(&unique("stuck")).with(short(RECEIVE_MAXIMUM, 50)));
    stuck.subscribe(filter, 1);
    let mut worker = server.client(V5);
    worker.subscribe(filter, 1);
    let mut publisher = server.client(V5);
    let seen = std::thread::scope(|scope| {
        scope.spawn(move || flood(&mut publisher, numbered("work", 0, COUNT), 100, |_| {}));
        let mut stuck = Some(stuck);
        let mut seen = vec![0; COUNT];
        for n in 0..COUNT {
            if n == COUNT / 2 {
                stuck.take();
            }
            let publish = worker.receive();
            let number: usize = publish.text()["0 ".len()..].parse().expect("a number");
            seen[number] += 1;
        }
        seen
    });
    assert!(seen.iter().all(|count| *count == 1), "some messages came twice and others never");
}

/// A consumer of QoS 1 on `debug/#` that takes nothing, and a publisher of so many messages to it.
struct Watching {
    server: Server,
    publisher: Client,
    _watchers: Vec<Client>,
}

impl Watching {
    const MESSAGES: usize = 3_000;

    fn start(name: &str, never_hold: &str, client: &str, user: Option<&str>) -> Self {
        Self::with(name, never_hold, "debug/#", &[client], user)
    }

    fn with(name: &str, never_hold: &str, filter: &str, clients: &[&str], user: Option<&str>) -> Self {
        let settings = [
            ("queue.max_messages", "100"),
            // longer than any test: whoever holds, holds
            ("queue.progress_timeout", "3600"),
            ("queue.never_hold", never_hold),
        ];
        let server = start(name, &settings);
        let watch = |client: &&str| {
            let connect = Connect { user: user.map(Into::into), ..Connect::v5(client) };
            let mut watcher = server.connect(&connect);
            watcher.subscribe(filter, 1);
            watcher
        };
        let watchers = clients.iter().map(watch).collect();
        let publisher = server.client(V5);
        Self { server, publisher, _watchers: watchers }
    }

    fn assert_nobody_is_held(mut self, rule: &str) {
        let messages = self.messages();
        flood(&mut self.publisher, messages, 200, |_| {});
        assert_eq!(self.holds(), 0, "{rule}");
    }

    fn assert_the_publisher_is_held(mut self, rule: &str) {
        for publish in self.messages() {
            let id = self.publisher.packet_id();
            self.publisher.send(&publish.id(id));
        }
        let deadline = Instant::now() + PATIENCE;
        while self.holds() == 0 {
            assert!(Instant::now() < deadline, "nobody was held: {rule}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn messages(&self) -> impl Iterator<Item = Publish> + use<> {
        numbered("debug/topic", 0, Self::MESSAGES)
    }

    fn holds(&self) -> u64 {
        count(&self.server, "tidegate_holds_total")
    }
}

/// A counter of the server.
fn count(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics");
    let count = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    count.expect("a count").parse().expect("a number")
}

/// `queue.never_hold` by user, client identifier and filter: such a consumer holds nobody, however little it takes.
#[test]
fn never_hold() {
    for (name, rule) in [
        ("never-hold-user", r#"[{ user = "sup*" }]"#),
        ("never-hold-client", r#"[{ client = "watch-*" }]"#),
        ("never-hold-filter", r#"[{ filter = "debug/*" }]"#),
        ("never-hold-all", r#"[{ user = "support", client = "watch-1", filter = "debug/#" }]"#),
    ] {
        Watching::start(name, rule, "watch-1", Some("support")).assert_nobody_is_held(rule);
    }
}

/// A rule that fits in part does not count: the publisher is held.
#[test]
fn never_hold_needs_all_of_a_rule() {
    for (name, rule) in [
        ("hold-user", r#"[{ user = "support", client = "other-*" }]"#),
        ("hold-filter", r#"[{ filter = "other/#" }, { user = "nobody" }]"#),
    ] {
        Watching::start(name, rule, "watch-1", Some("support")).assert_the_publisher_is_held(rule);
    }
}

/// A rule about some clients says nothing about a group, whoever of its members came first or last.
#[test]
fn never_hold_by_client_is_not_for_groups() {
    let rule = r#"[{ client = "watch-*" }, { user = "support" }]"#;
    for (name, members) in
        [("hold-group-last", ["work", "watch-1"]), ("hold-group-first", ["watch-1", "work"])]
    {
        Watching::with(name, rule, "$share/g/debug/#", &members, Some("support"))
            .assert_the_publisher_is_held(rule);
    }
}

/// A rule by filter alone is for the whole group.
#[test]
fn never_hold_by_filter_is_for_groups() {
    let rule = r#"[{ filter = "$share/g/*" }]"#;
    Watching::with("never-hold-group", rule, "$share/g/debug/#", &["one", "two"], None)
        .assert_nobody_is_held(rule);
}

/// Two clients that flood each other without waiting for acknowledgements, with far more than is kept for a held
/// publisher. Their acknowledgements are behind their messages: unless some of those pass, both wait for ever.
#[test]
fn clients_that_flood_each_other_go_on() {
    const EACH: usize = 20_000;
    let settings =
        [("queue.max_messages", "200"), ("listen.max_buffer", "8192"), ("queue.progress_timeout", "600")];
    let server = start("mutual", &settings);
    let clients = [0, 1].map(|index| {
        let mut client = server.client(V311);
        client.subscribe(&format!("to/{index}"), 1);
        client
    });
    std::thread::scope(|scope| {
        for (index, client) in clients.into_iter().enumerate() {
            scope.spawn(move || flood_and_receive(client, index, EACH));
        }
    });
}

/// Publishes to the other client as fast as it can; receives and acknowledges as much, in order.
fn flood_and_receive(mut client: Client, index: usize, count: usize) {
    let output = Mutex::new(client.stream().try_clone().expect("a second handle"));
    let write = |bytes: &[u8]| output.lock().unwrap().write_all(bytes).expect("the gateway reads on");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (n, publish) in numbered(&format!("to/{}", 1 - index), index, count).enumerate() {
                write(&publish.id((n % 60_000 + 1) as u16).encode(V311));
            }
        });
        let (mut order, mut received, mut accepted) = (Order::new(2, false), 0, 0);
        while received < count || accepted < count {
            match client.recv() {
                Packet::Publish(publish) => {
                    order.check(&publish);
                    received += 1;
                    write(&Ack::new(Kind::Puback, publish.id).encode(V311));
                }
                Packet::Ack(ack) if ack.kind == Kind::Puback => accepted += 1,
                other => panic!("unexpected {other:?}"),
            }
        }
    });
}

/// What a held publisher sent before it left waits only for so long, is counted, and takes no connection with it; that it
/// said goodbye is known all the same.
#[test]
fn publisher_that_leaves_while_it_is_held_is_forgotten() {
    const SENT: u64 = 2_000;
    let settings =
        [("queue.max_messages", "10"), ("queue.progress_timeout", "3600"), ("queue.left_timeout", "1")];
    let server = start("left", &settings);
    let mut consumer = server.connect(&Connect::v5(&unique("stuck")).with(short(RECEIVE_MAXIMUM, 1)));
    consumer.subscribe("left/topic", 1);
    let mut heir = server.client(V5);
    heir.subscribe("left/will", 0);
    let connect = Connect::v311(&unique("leaves")).will(Will::new("left/will", "gone"));
    let mut publisher = server.connect(&connect);
    for (n, publish) in numbered("left/topic", 0, SENT as usize).enumerate() {
        publisher.send(&publish.id(n as u16 + 1));
    }
    publisher.send(&Disconnect::default());
    publisher.vanish();
    let deadline = Instant::now() + PATIENCE;
    while count(&server, "tidegate_disconnects_total") == 0 {
        assert!(Instant::now() < deadline, "the connection is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    let published = count(&server, "tidegate_messages_published_total");
    assert!(published < SENT, "it was never held");
    assert_eq!(published + count(&server, "tidegate_messages_dropped_publisher_left_total"), SENT);
    heir.expect_silence();
}

/// A client that is held with more than is kept for it is heard before its keep-alive is over.
#[test]
fn held_publisher_gets_its_pings_answered() {
    let settings =
        [("queue.max_messages", "10"), ("listen.max_buffer", "4096"), ("queue.progress_timeout", "600")];
    let server = start("ping", &settings);
    let mut consumer = server.connect(&Connect::v5(&unique("stuck")).with(short(RECEIVE_MAXIMUM, 1)));
    consumer.subscribe("ping/topic", 1);
    let mut publisher = server.connect(&Connect::v311(&unique("held")).keep_alive(3));
    for (n, publish) in numbered("ping/topic", 0, 5_000).enumerate() {
        publisher.send(&publish.id(n as u16 + 1));
    }
    publisher.ping();
    // it was held: most of its messages are still there
    let mut order = Order::new(1, false);
    for _ in 0..100 {
        order.check(&consumer.receive());
    }
}

/// A client that connects anew for each message, as scripts do, is heard in order, whatever else goes on.
#[test]
fn clients_that_connect_for_each_message_stay_in_order() {
    const EACH: usize = 300;
    let server = start("again", &[]);
    let mut consumer = server.client(V5);
    consumer.subscribe("again/topic", 1);
    std::thread::scope(|scope| {
        // the others keep the way to the queues long
        for _ in 0..2 {
            let mut client = server.client(V5);
            scope.spawn(move || flood(&mut client, numbered("other/topic", 0, 20_000), 500, |_| {}));
        }
        scope.spawn(|| {
            for (n, publish) in numbered("again/topic", 0, EACH).enumerate() {
                // every other time as the same client
                let id = if n % 2 == 0 { "again".into() } else { unique("again") };
                let mut client = server.connect(&Connect::v5(&id));
                client.publish(publish);
                client.disconnect();
            }
        });
        let mut order = Order::new(1, false);
        for _ in 0..EACH {
            order.check(&consumer.receive());
        }
    });
}

/// Workers that take jobs, acknowledge them, and flood a slow consumer with results, without waiting for
/// acknowledgements: they wait, and what was acknowledged is not lost.
#[test]
fn results_of_busy_workers_are_not_dropped() {
    const EACH: usize = 5_000;
    let settings = [("listen.max_buffer", "8192"), ("queue.progress_timeout", "600")];
    let server = start("workers", &settings);
    let mut consumer = server.connect(&Connect::v5(&unique("slow")).with(short(RECEIVE_MAXIMUM, 5)));
    consumer.subscribe("result", 1);
    let mut jobs = server.client(V5);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let mut client = server.client(V311);
            client.subscribe("job", 1);
            scope.spawn(move || {
                for (n, publish) in numbered("result", worker, EACH).enumerate() {
                    client.send(&publish.id((n % 60_000 + 1) as u16));
                }
                let mut accepted = 0;
                while accepted < EACH {
                    // its job is never acknowledged: it owes that for the whole time
                    if matches!(client.recv(), Packet::Ack(ack) if ack.kind == Kind::Puback) {
                        accepted += 1;
                    }
                }
            });
        }
        jobs.publish(Publish::new("job", "go").qos(1));
        let mut order = Order::new(2, false);
        for n in 0..2 * EACH {
            if n % 100 == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
            order.check(&consumer.receive());
        }
    });
}
