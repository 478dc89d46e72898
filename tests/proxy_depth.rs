//! How well a proxy knows what waits in the broker behind it: the test knows the truth.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use common::PATIENCE;
use common::client::Client;
use common::decode::Packet;
use common::packet::*;
use common::server::{Server, Setup, Target};
use serde_json::Value as Json;

/// What Mosquitto keeps for one consumer: 300 waiting and 20 in flight.
const LIMIT: u64 = 320;
/// How long messages are sent without a break.
const CONTINUOUS: Duration = Duration::from_secs(20);
/// How often the proxy measures then, in milliseconds.
const PERIOD: u32 = 40;
/// Measurements that must have been seen: a fifth of all, since a machine may be busy.
const ENOUGH: usize = 100;

fn start(name: &str, limit: u64) -> Server {
    start_with(name, limit, 100)
}

fn start_with(name: &str, limit: u64, period: u32) -> Server {
    let settings = vec![
        ("plugins", r#"["access","overload"]"#.to_owned()),
        ("proxy.queue_limit", limit.to_string()),
        // only to measure: nobody is held back
        ("queue.max_messages", "1000000".into()),
        ("queue.max_delay_ms", "600000".into()),
        ("overload.target_delay_ms", "600000".into()),
        // what the admin endpoint says is as old as the last turn of the control loop
        ("overload.period_ms", period.to_string()),
    ];
    let mosquitto = "max_queued_messages 300\nmax_inflight_messages 20\n";
    Server::start(name, &Setup { settings, mosquitto, target: Some(Target::Proxy), ..Setup::default() })
}

/// What the proxy says of the consumer's queue.
fn queue(server: &Server) -> Option<Json> {
    let answer = server.get("/api/v1/queues");
    let line = answer.lines().find(|line| line.starts_with('['))?;
    let queues: Json = serde_json::from_str(line).expect("JSON");
    queues.as_array()?.iter().find(|queue| queue["queue"] == "client/slow:d/#").cloned()
}

/// Messages that wait, in flight, and lost ones so far, as the proxy says.
fn told(server: &Server) -> Option<(u64, u64, u64)> {
    let queue = queue(server)?;
    Some((queue["depth"].as_u64()?, queue["in_flight"].as_u64()?, queue["lost"].as_u64()?))
}

/// The proxy comes to say what is true, within 2%.
fn expect(server: &Server, what: &str, depth: u64) {
    let deadline = Instant::now() + PATIENCE;
    let near = |told: u64| told.abs_diff(depth) * 50 <= depth.max(1);
    let mut last = None;
    while Instant::now() < deadline {
        last = told(server).or(last);
        if last.is_some_and(|(waiting, in_flight, _)| near(waiting + in_flight)) {
            // it stays so
            std::thread::sleep(Duration::from_millis(400));
            last = told(server).or(last);
            if last.is_some_and(|(waiting, in_flight, _)| near(waiting + in_flight)) {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: {depth} messages are there, the proxy says {last:?}");
}

fn publish(publisher: &mut Client, count: usize) {
    for _ in 0..count {
        assert_eq!(publisher.publish(Publish::new("d/1", "x").qos(1)), 0);
    }
}

fn take(consumer: &mut Client, count: usize) {
    for _ in 0..count {
        consumer.receive();
    }
}

/// Bursts, a consumer that comes and goes, drops by Mosquitto's queue limit.
#[test]
fn the_depth_is_known() {
    let server = start("depth", LIMIT);
    let persistent = Connect::persistent(Version::V311, "slow");
    let mut consumer = server.connect(&persistent);
    consumer.subscribe("d/#", 1);
    let mut publisher = server.client(Version::V311);
    publish(&mut publisher, 100);
    expect(&server, "a burst", 100);
    take(&mut consumer, 60);
    expect(&server, "the consumer took some", 40);
    consumer.vanish();
    publish(&mut publisher, 110);
    expect(&server, "a burst while it is away", 150);
    let mut consumer = server.connect(&persistent.clone().resume());
    assert!(consumer.connack.session_present);
    expect(&server, "it is back and slow", 150);
    publish(&mut publisher, 400);
    // those of the first ones that were never acknowledged come again
    expect(&server, "Mosquitto throws away what is over its limit", LIMIT);
    take(&mut consumer, 100);
    expect(&server, "it works again", LIMIT - 100);
    publish(&mut publisher, 30);
    expect(&server, "and more comes", LIMIT - 70);
    take(&mut consumer, (LIMIT - 70) as usize);
    consumer.expect_silence();
    expect(&server, "all is done", 0);
}

/// The load generator's own books: when each message was sent, and when the consumer was done with it.
#[derive(Default)]
struct Truth {
    sent: Mutex<Vec<Instant>>,
    done: Mutex<HashMap<usize, Instant>>,
    over: AtomicBool,
}

impl Truth {
    /// How many messages were there from each moment on. Those that never came to the consumer were thrown away as they came.
    fn depths(&self) -> Vec<(Instant, i64)> {
        let (sent, done) = (self.sent.lock().expect("sent"), self.done.lock().expect("done"));
        let came = done.iter().map(|(number, done)| [(sent[*number], 1), (*done, -1)]);
        let mut depths: Vec<(Instant, i64)> = came.flatten().collect();
        depths.sort_unstable();
        let mut depth = 0;
        for (_, change) in &mut depths {
            depth += *change;
            *change = depth;
        }
        depths
    }

    /// Sends 400 messages a second, and every three seconds 100 at once.
    fn publish(&self, publisher: &mut Client) {
        let begun = Instant::now();
        for number in 0.. {
            let bursts = begun.elapsed().as_secs() / 3;
            let due = number as f64 / 400.0 - bursts as f64 * 0.25;
            std::thread::sleep(Duration::from_secs_f64(due.max(0.0)).saturating_sub(begun.elapsed()));
            if begun.elapsed() > CONTINUOUS {
                return;
            }
            assert_eq!(publisher.publish(Publish::new("d/1", number.to_string().as_str()).qos(1)), 0);
            self.sent.lock().expect("sent").push(Instant::now());
        }
    }

    /// Takes 440 messages a second, and is away for a while now and then; until nothing comes any more.
    fn consume(&self, server: &Server) {
        let persistent = Connect::persistent(Version::V311, "slow").resume();
        for (there, away) in [(5.0, 0.3), (4.0, 1.2), (5.0, 0.1), (f64::INFINITY, 0.0)] {
            let mut consumer = server.connect(&persistent);
            let (begun, mut due) = (Instant::now(), Instant::now());
            while begun.elapsed().as_secs_f64() < there {
                match consumer.recv_within(Duration::from_millis(500)) {
                    Ok(Packet::Publish(publish)) => {
                        due = due.max(Instant::now() - Duration::from_millis(50))
                            + Duration::from_micros(2_273);
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        let number = String::from_utf8_lossy(&publish.payload).parse().expect("a number");
                        consumer.acknowledge(&publish);
                        self.done.lock().expect("done").insert(number, Instant::now());
                    }
                    Ok(_) => {}
                    Err(_) if self.over.load(SeqCst) => return,
                    Err(_) => {}
                }
            }
            consumer.vanish();
            std::thread::sleep(Duration::from_secs_f64(away));
        }
    }
}

/// What the proxy said, and when it measured that.
struct Sample {
    at: Instant,
    told: i64,
}

/// How much sooner or later than the proxy the test may have noted a message.
const NOTED_WITHIN: Duration = Duration::from_millis(2);

impl Sample {
    /// How far it is from what was true at that moment, as far as the test can tell, and the truth.
    fn error(&self, depths: &[(Instant, i64)]) -> (u64, u64) {
        let at = |moment: Instant| depths.partition_point(|(at, _)| *at <= moment);
        let depth_after = |count: usize| if count == 0 { 0 } else { depths[count - 1].1 };
        let within = at(self.at - NOTED_WITHIN)..=at(self.at + NOTED_WITHIN);
        let (least, most) = within
            .map(depth_after)
            .fold((i64::MAX, 0), |(least, most), depth| (least.min(depth), most.max(depth)));
        let depth = depth_after(at(self.at));
        (self.told.abs_diff(self.told.clamp(least, most)), depth.unsigned_abs())
    }
}

/// Asks the proxy all the time while `busy`: each measurement once.
#[allow(clippy::disallowed_methods)] // the proxy says by that clock when it measured
fn watch(server: &Server, busy: impl Fn() -> bool) -> Vec<Sample> {
    let (begun, epoch) = (Instant::now(), SystemTime::now().duration_since(SystemTime::UNIX_EPOCH));
    let epoch = epoch.expect("after 1970");
    let mut samples = Vec::<Sample>::new();
    while busy() {
        if let Some(queue) = queue(server) {
            let number = |key: &str| queue[key].as_u64().expect(key);
            // on average half a millisecond is cut off
            let at = Duration::from_millis(number("at_ms")) + Duration::from_micros(500);
            let at = begun + at.saturating_sub(epoch);
            if samples.last().is_none_or(|last| last.at < at) {
                samples.push(Sample { at, told: (number("depth") + number("in_flight")) as i64 });
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    samples
}

/// Under continuous load, with bursts, restarts of the consumer and drops by Mosquitto's queue limit: the mean error of the
/// depth over time is within 2% of the mean depth, and so are the books at the end.
#[test]
fn the_depth_is_known_at_any_time() {
    let server = start_with("continuous", LIMIT, PERIOD);
    let mut first = server.connect(&Connect::persistent(Version::V311, "slow"));
    first.subscribe("d/#", 1);
    first.disconnect();
    let mut publisher = server.client(Version::V311);
    let truth = Truth::default();
    let samples = std::thread::scope(|scope| {
        let publishing = scope.spawn(|| truth.publish(&mut publisher));
        let consuming = scope.spawn(|| truth.consume(&server));
        let samples = watch(&server, || !publishing.is_finished());
        publishing.join().expect("the publisher");
        truth.over.store(true, SeqCst);
        consuming.join().expect("the consumer");
        samples
    });
    let depths = truth.depths();
    assert!(samples.len() >= ENOUGH, "{} samples are too few to judge by", samples.len());
    let (mut error, mut sum, mut most) = (0.0, 0.0, 0);
    // each stands for the time since the one before it
    for (before, sample) in samples.iter().zip(&samples[1..]) {
        let (off, depth) = sample.error(&depths);
        let time = (sample.at - before.at).as_secs_f64();
        (error, sum, most) = (error + off as f64 * time, sum + depth as f64 * time, most.max(depth));
    }
    let (sent, done) =
        (truth.sent.lock().expect("sent").len() as u64, truth.done.lock().expect("done").len() as u64);
    let book = |name: &str| {
        let text = server.get("/metrics");
        let start = format!("tidegate_queue_{name}_total{{queue=\"client/slow:d/#\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let books = ["arrived", "departed", "dropped", "lost"].map(book);
    let (share, time) = (error / sum, (samples[samples.len() - 1].at - samples[0].at).as_secs_f64());
    eprintln!(
        "{} samples: mean depth {:.1}, at most {most}, mean error {:.2} messages or {:.2}%; \
         sent {sent}, done {done}; arrived, departed, dropped, lost by the proxy: {books:?}",
        samples.len(),
        sum / time,
        error / time,
        100.0 * share
    );
    assert!(sent - done > 50, "Mosquitto threw nothing away");
    let [arrived, departed, dropped, lost] = books;
    assert_eq!(arrived, departed + dropped + lost, "the books do not balance");
    let near = |told: u64, true_count: u64| told.abs_diff(true_count) * 50 <= sent;
    assert!(
        near(arrived, sent) && near(departed, done) && near(lost, sent - done),
        "{books:?} of {sent} and {done}"
    );
    assert!(share <= 0.02, "the mean error is {:.2}%", 100.0 * share);
}

/// Without a word about the limit, what is lost upstream is seen once the consumer has nothing to do.
#[test]
fn losses_are_seen_when_there_is_room() {
    let server = start("losses", 0);
    let mut consumer = server.connect(&Connect::v311("slow"));
    consumer.subscribe("d/#", 1);
    let mut publisher = server.client(Version::V311);
    publish(&mut publisher, 500);
    take(&mut consumer, LIMIT as usize);
    consumer.expect_silence();
    expect(&server, "nothing comes any more", 0);
    publish(&mut publisher, 50);
    take(&mut consumer, 20);
    expect(&server, "and it goes on from there", 30);
}

/// The proxy is new, the session is old: its subscription is learned from what is delivered.
#[test]
fn an_old_session_is_learned() {
    let server = start("learned", 0);
    let upstream = server.upstream.as_ref().expect("a broker");
    let persistent = Connect::persistent(Version::V311, "old");
    let mut direct = upstream.connect(&persistent);
    direct.subscribe("d/#", 1);
    direct.disconnect();
    let mut consumer = server.connect(&persistent.clone().resume());
    assert!(consumer.connack.session_present);
    let mut publisher = server.client(Version::V311);
    publish(&mut publisher, 1);
    take(&mut consumer, 1);
    publish(&mut publisher, 60);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = server.get("/api/v1/queues");
        if answer.contains(r#""queue":"client/old:d/1""#) && answer.contains(r#""in_flight":20"#) {
            break;
        }
        assert!(Instant::now() < deadline, "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
