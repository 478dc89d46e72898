//! A thousand active consumers whose sources all change at the same moment, on a gateway that answers a hundred checks a
//! second.

use std::time::{Duration, Instant};

use tidegate_client::control::random::{Random, Seeded};
use tidegate_client::{Publisher, Subscriber, SubscriberStats};

use crate::gateway::Gateway;
use crate::{Shown, connection, until};

const HERD: usize = 1_000;
/// How long it settles and how long it is measured, usually and when it is to be quick.
const TIMES: [(Duration, Duration); 2] =
    [(Duration::from_secs(60), Duration::from_secs(60)), (Duration::from_secs(40), Duration::from_secs(20))];

pub(crate) async fn run(quick: bool) -> Shown {
    let (settle, measure) = TIMES[usize::from(quick)];
    let gateway = Gateway::start("127.0.0.1:0", &["check.max_rate=100.0"]);
    let mut herd = Vec::new();
    for number in 0..HERD {
        let connection = connection(&gateway.url(), &format!("consumer-{number}"));
        herd.push(Subscriber::builder(connection).filter(format!("herd/{number}")).start().unwrap());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    until("all connected", || herd.iter().all(|consumer| consumer.stats().connections == 1)).await;
    let source = Publisher::builder(connection(&gateway.url(), "source")).window(64).start().unwrap();
    let (start, mut random, mut update) = (Instant::now(), Seeded::new(4), Instant::now());
    let mut known: Vec<SubscriberStats> = herd.iter().map(Subscriber::stats).collect();
    let (mut responses, mut changes, mut later) = (Vec::new(), 0, 0);
    while start.elapsed() < settle + measure {
        if Instant::now() >= update {
            changes += 1;
            for number in 0..HERD {
                source.offer(&format!("herd/{number}"), changes);
            }
            update = Instant::now() + Duration::from_secs_f64(random.uniform_in(2.0, 4.0));
        }
        for (consumer, known) in herd.iter_mut().zip(&mut known) {
            // What came by itself is taken, so that nobody is held back for that.
            while let Ok(Some(_)) = tokio::time::timeout(Duration::ZERO, consumer.next()).await {}
            let now = consumer.stats();
            let before = std::mem::replace(known, now);
            if start.elapsed() >= settle {
                later += now.delayed_checks - before.delayed_checks;
                responses.extend((now.answered_checks > before.answered_checks).then_some(now.last_response));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    responses.sort();
    let mut shown = Shown::default();
    let at = |share: usize| responses.get(responses.len() * share / 100).copied().unwrap_or(Duration::MAX);
    let text = format!("{:.3} s (median {:.3} s)", at(95).as_secs_f64(), at(50).as_secs_f64());
    shown.show("95% of responses within", text, at(95) <= Duration::from_millis(200));
    let silent: u64 = known.iter().map(|stats| stats.silent_checks).sum();
    shown.show("checks without an answer", silent, silent == 0);
    let rate = responses.len() as f64 / measure.as_secs_f64();
    println!("                 {rate:.0} answers a second, {later} checks told to come later");
    let lost: u64 = known.iter().map(|stats| stats.lost).sum();
    let passive: u64 = known.iter().map(|stats| stats.passive).sum();
    println!("                 {changes} changes of {HERD} topics: {passive} came, {lost} lost");
    shown
}
