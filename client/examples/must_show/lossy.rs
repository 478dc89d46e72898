//! Consumers on links that drop a fifth of the notifications, some with active checks and some without.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_client::control::active::{Bounds, Check, SelfTuning, SelfTuningConfig, Strategy};
use tidegate_client::control::random::{Random, Seeded};
use tidegate_client::control::time::Span;
use tidegate_client::{Publisher, Qos, Subscriber};

use crate::gateway::Gateway;
use crate::lossy_relay::lossy_relay;
use crate::{Shown, connection, until};

const PAIRS: usize = 30;
/// How many there are, usually and when it is to be quick.
const UPDATES: [u64; 2] = [30, 10];

pub(crate) async fn run(quick: bool) -> Shown {
    let updates = UPDATES[usize::from(quick)];
    let gateway = Gateway::start("127.0.0.1:0", &[]);
    let relay = format!("mqtt://{}", lossy_relay(gateway.address).await);
    let logs: Vec<Log> = (0..PAIRS).map(|_| Log::default()).collect();
    let active: Vec<Consumer> = logs.iter().enumerate().map(|(n, log)| start(&relay, n, Some(log))).collect();
    let passive: Vec<Consumer> = (0..PAIRS).map(|number| start(&relay, number, None)).collect();
    for consumer in &active {
        until("a first answer", || consumer.stats().answered_checks > 0).await;
    }
    until("the passive ones", || passive.iter().all(|consumer| consumer.stats().connections == 1)).await;
    let (start, before) = (Instant::now(), checks(&active));
    publish(&gateway, updates).await;
    // The last update may be one that was dropped: the next check finds it, a minute later at most.
    let newest = || active.iter().filter(|consumer| consumer.last() == updates).count();
    let deadline = Instant::now() + Duration::from_secs(90);
    while newest() < PAIRS && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seconds = start.elapsed().as_secs_f64();
    let made =
        checks(&active).into_iter().zip(before).map(|(after, before)| (after - before) as f64 / seconds);
    let most_checks = made.fold(0.0, f64::max);
    let mut shown = Shown::default();
    let text = format!("{} of {PAIRS}, after {updates} updates", newest());
    shown.show("consumers that end with the newest update", text, newest() == PAIRS);
    let lost = |consumers: &[Consumer]| consumers.iter().map(|one| updates - one.seen()).sum::<u64>();
    let (left, without) = (lost(&active), lost(&passive));
    let text = format!("{left} where {without} are lost without checks, of {}", updates * PAIRS as u64);
    shown.show("lost with checks", text, 3 * left <= without);
    shown.show("checks a second of the busiest", format!("{most_checks:.3}"), most_checks <= 0.4);
    let (worst, compared) = worst_interval(&logs);
    let text = format!("{:.1}% off control::active at worst, of {compared}", 100.0 * worst);
    shown.show("intervals", text, compared > 0 && worst <= 0.1);
    let redundant: u64 = active.iter().map(|consumer| consumer.stats().redundant_checks).sum();
    println!("                 {redundant} checks found nothing, of {}", checks(&active).iter().sum::<u64>());
    shown
}

/// One update each 2 to 4 seconds, for all.
async fn publish(gateway: &Gateway, updates: u64) {
    let source = Publisher::builder(connection(&gateway.url(), "source")).start().unwrap();
    let mut random = Seeded::new(1);
    for number in 1..=updates {
        source.offer("room/1/temp", number.to_string());
        source.delivered().await;
        tokio::time::sleep(Duration::from_secs_f64(random.uniform_in(2.0, 4.0))).await;
    }
}

fn checks(consumers: &[Consumer]) -> Vec<u64> {
    consumers.iter().map(|consumer| consumer.stats().checks).collect()
}

/// A consumer that remembers what it saw.
struct Consumer {
    seen: Arc<Mutex<Vec<u64>>>,
    stats: Arc<Mutex<tidegate_client::SubscriberStats>>,
}

impl Consumer {
    fn seen(&self) -> u64 {
        self.seen.lock().len() as u64
    }

    fn last(&self) -> u64 {
        self.seen.lock().last().copied().unwrap_or(0)
    }

    fn stats(&self) -> tidegate_client::SubscriberStats {
        *self.stats.lock()
    }
}

fn start(relay: &str, number: usize, log: Option<&Log>) -> Consumer {
    let name = format!("{}-{number}", if log.is_some() { "active" } else { "passive" });
    let builder = Subscriber::builder(connection(relay, &name)).filter_with("room/#", Qos::AtMostOnce);
    let builder = match log {
        Some(log) => builder.strategy(Recorded { strategy: by_default(), log: log.clone() }),
        None => builder.passive_only(),
    };
    let mut subscriber = builder.start().unwrap();
    let (seen, stats) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::default());
    let consumer = Consumer { seen: seen.clone(), stats: Arc::clone(&stats) };
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            tokio::select! {
                _ = ticks.tick() => *stats.lock() = subscriber.stats(),
                update = subscriber.next() => {
                    let Some(update) = update else { return };
                    let number: u64 = String::from_utf8_lossy(&update.payload).parse().unwrap();
                    let mut seen = seen.lock();
                    assert!(seen.last().is_none_or(|last| *last < number), "{number} after {seen:?}");
                    seen.push(number);
                }
            }
        }
    });
    consumer
}

/// What the strategy of one consumer was told, and what it answered.
type Log = Arc<Mutex<Vec<(Check, Span)>>>;

/// The strategy that a subscriber has by default, written down.
struct Recorded {
    strategy: SelfTuning,
    log: Log,
}

impl Strategy for Recorded {
    fn interval(&self) -> Span {
        self.strategy.interval()
    }

    fn on_check(&mut self, check: &Check, random: &mut dyn Random) -> Span {
        let interval = self.strategy.on_check(check, random);
        self.log.lock().push((*check, interval));
        interval
    }
}

fn by_default() -> SelfTuning {
    let bounds = Bounds { shortest: Span::from_millis(2_500), longest: Span::from_secs(60) };
    SelfTuningConfig { bounds, ..SelfTuningConfig::default() }.build().unwrap()
}

/// How far the time between two regular checks was from what the strategy says for the same losses, at worst.
fn worst_interval(logs: &[Log]) -> (f64, usize) {
    let (mut worst, mut compared) = (0.0, 0);
    for log in logs {
        let (mut model, mut random, log) = (by_default(), Seeded::new(1), log.lock());
        for pair in log.windows(2) {
            let expected = model.on_check(&pair[0].0, &mut random).as_secs_f64();
            let waited = pair[1].0.at.since(pair[0].0.at).as_secs_f64();
            worst = f64::max(worst, (waited / expected - 1.0).abs());
            compared += 1;
        }
    }
    (worst, compared)
}
