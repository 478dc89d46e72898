//! 200 publishers want five times what the consumer can take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_client::{Policy, Publisher, Qos, Subscriber};

use crate::gateway::Gateway;
use crate::relay::Relay;
use crate::{Shown, connection, peak, until};

const FLEET: u32 = 200;
/// Messages a second that each sends when nobody holds it back: 250 together.
const OWN_RATE: f64 = 1.25;
/// What the gateway wants from all of them.
const ANNOUNCED: &str = "tidegate_queue_announced_rate{queue=\"client/worker:fleet/#\"}";
/// The consumer takes 50 messages a second.
const WORK: Duration = Duration::from_millis(20);
/// How long it settles and how long it is measured, usually and when it is to be quick.
const TIMES: [(Duration, Duration); 2] =
    [(Duration::from_secs(30), Duration::from_secs(60)), (Duration::from_secs(20), Duration::from_secs(20))];
/// How long what waits at the end may take.
const REST: Duration = Duration::from_secs(40);

pub(crate) async fn run(quick: bool) -> Shown {
    let (settle, measure) = TIMES[usize::from(quick)];
    let gateway = Arc::new(Gateway::start("127.0.0.1:0", &[]));
    let over = Arc::new(AtomicBool::new(false));
    let worker = consume(&gateway, over.clone()).await;
    let arrivals = watch_arrivals(&gateway).await;
    let relay = Relay::to(gateway.address).await;
    let fleet: Vec<Publisher> = (0..FLEET).map(|member| start(&relay, member)).collect();
    until("all connected", || fleet.iter().all(|publisher| publisher.stats().connections == 1)).await;
    // They sample in step, two and a half times a second.
    let start = Instant::now();
    let (mut offered, mut count, mut announced, mut rates) = (0.0, 0_u32, Vec::new(), Vec::new());
    let mut ticks = tokio::time::interval(Duration::from_millis(400));
    while start.elapsed() < settle + measure {
        ticks.tick().await;
        for (member, publisher) in fleet.iter().enumerate() {
            let sample = f64::from(count) + member as f64 / 7.0;
            offered += sample;
            assert!(publisher.offer(&format!("fleet/{member}"), sample));
        }
        count += 1;
        let asked = gateway.clone();
        let metric = tokio::task::spawn_blocking(move || asked.metric(ANNOUNCED)).await;
        if start.elapsed() >= settle {
            let rate = metric.unwrap().unwrap_or_else(|| panic!("the gateway does not tell {ANNOUNCED}"));
            announced.push((Instant::now(), rate));
        }
        rates.push((Instant::now(), fleet.iter().filter_map(Publisher::rate).sum()));
    }
    let (from, to) = (start + settle, start + settle + measure);
    let held = fleet.iter().filter(|publisher| publisher.is_held_back()).count();
    let (told, followed) = (mean(&announced, from), mean(&rates, from));
    let seconds = |times: &[Instant]| {
        let inside = times.iter().filter(|time| (from..to).contains(*time));
        let mut seconds: Vec<f64> = inside.map(|time| (*time - from).as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        seconds
    };
    let (sent, accepted) = (seconds(&relay.sent.lock()), seconds(&arrivals.lock()));
    let all = u64::from(count) * u64::from(FLEET);
    let deadline = Instant::now() + REST;
    while worker.lock().1 < all && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    over.store(true, Ordering::Relaxed);
    report((&sent, &accepted), measure, (told, followed), held, &fleet, *worker.lock(), (offered, all))
}

/// `got` and `offered` are the sum of all samples and their number.
fn report(
    (times, accepted): (&[f64], &[f64]),
    measure: Duration,
    (told, followed): (f64, f64),
    held: usize,
    fleet: &[Publisher],
    got: (f64, u64),
    offered: (f64, u64),
) -> Shown {
    let mut shown = Shown::default();
    shown.show("publishers held back at the end", held, held == fleet.len());
    let sent = times.len() as f64 / measure.as_secs_f64();
    let text =
        format!("{followed:.1} where {told:.1} were announced, {:+.1}%", 100.0 * (followed / told - 1.0));
    shown.show("the sum of the publishers' rates", text, (followed / told - 1.0).abs() <= 0.05);
    let text = format!("{sent:.1} where {told:.1} were announced, {:+.1}%", 100.0 * (sent / told - 1.0));
    shown.show("messages that they sent a second", text, (sent / told - 1.0).abs() <= 0.05);
    let (most, share) = (peak(times, 2.0), 2.0 * told);
    let text = format!("{most} where {share:.0} is the share, {:.2} times", most as f64 / share);
    shown.show("sent in the fullest two seconds", text, most as f64 <= 1.5 * share);
    let most = peak(accepted, 2.0);
    let text = format!("{most} where {share:.0} is the share, {:.2} times", most as f64 / share);
    shown.show("accepted by the gateway in its fullest two seconds", text, most as f64 <= 1.5 * share);
    let (mean, expected) = (got.0 / got.1 as f64, offered.0 / offered.1 as f64);
    let text = format!("{mean:.9} of {} samples, {expected:.9} of {} offered", got.1, offered.1);
    shown.show("the mean", text, got.1 == offered.1 && (mean - expected).abs() < 1e-9 * expected.abs());
    let (mut pushed_back, mut discarded) = (0, 0);
    for stats in fleet.iter().map(Publisher::stats) {
        pushed_back += stats.pushed_back;
        discarded += stats.dropped + stats.refused + stats.replaced + stats.rejected_samples;
    }
    shown.show("samples discarded", discarded, discarded == 0);
    println!("                 messages refused by the gate: {pushed_back}");
    let waiting: u64 = fleet.iter().map(|publisher| publisher.stats().waiting).sum();
    println!("                 samples that still wait: {waiting}");
    shown
}

fn start(relay: &Relay, member: u32) -> Publisher {
    let connection = connection(&relay.url(), &format!("member-{member}"));
    Publisher::builder(connection).policy(Policy::Mean).rate(OWN_RATE).start().unwrap()
}

/// The consumer that can't keep up: the sum of all samples that it got, and their number.
async fn consume(gateway: &Gateway, over: Arc<AtomicBool>) -> Arc<Mutex<(f64, u64)>> {
    let connection = connection(&gateway.url(), "worker");
    let mut updates = Subscriber::builder(connection).filter("fleet/#").passive_only().start().unwrap();
    until("the worker", || updates.stats().connections == 1).await;
    let total = Arc::new(Mutex::new((0.0, 0)));
    let sums = total.clone();
    tokio::spawn(async move {
        let mut next = tokio::time::Instant::now();
        while !over.load(Ordering::Relaxed) {
            let Some(update) = updates.next().await else { return };
            let value: Value = serde_json::from_slice(&update.payload).unwrap();
            let (mean, count) = (value["mean"].as_f64().unwrap(), value["count"].as_u64().unwrap());
            add(&sums, mean * count as f64, count);
            // As fast on average as it says, though timers are late.
            next = next.max(tokio::time::Instant::now() - WORK) + WORK;
            tokio::time::sleep_until(next).await;
        }
    });
    total
}

fn add(sums: &Mutex<(f64, u64)>, sum: f64, count: u64) {
    let mut sums = sums.lock();
    *sums = (sums.0 + sum, sums.1 + count);
}

/// When messages were accepted, as somebody sees it who is never behind.
async fn watch_arrivals(gateway: &Gateway) -> Arc<Mutex<Vec<Instant>>> {
    let builder = Subscriber::builder(connection(&gateway.url(), "watcher"));
    let mut updates = builder.filter_with("fleet/#", Qos::AtMostOnce).passive_only().start().unwrap();
    until("the watcher", || updates.stats().connections == 1).await;
    let times = Arc::<Mutex<Vec<Instant>>>::default();
    let seen = times.clone();
    tokio::spawn(async move {
        while updates.next().await.is_some() {
            seen.lock().push(Instant::now());
        }
    });
    times
}

/// The mean of what was seen since a moment.
fn mean(seen: &[(Instant, f64)], since: Instant) -> f64 {
    let values: Vec<f64> = seen.iter().filter(|(time, _)| *time >= since).map(|(_, value)| *value).collect();
    values.iter().sum::<f64>() / values.len() as f64
}
