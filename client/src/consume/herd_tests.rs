//! A thousand consumers whose sources all change at the same moment, on a gateway that answers a hundred checks a second.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::time::Duration;

use tidegate_check::{CheckConfig, Desk, Reply, Submitted};
use tidegate_control::active::{Bounds, CheckTimer, SelfTuningConfig};
use tidegate_control::backoff::{Announced, BackoffConfig};
use tidegate_control::pacing::Bucket;
use tidegate_control::random::{Random, Seeded};
use tidegate_control::time::{Moment, Span};

use super::checks::{Ask, Checks};

fn at(seconds: f64) -> Moment {
    Moment::from_secs_f64(seconds)
}

struct Consumer {
    checks: Checks,
    random: Seeded,
    /// Updates of its source, and those it knows.
    head: u32,
    known: u32,
}

impl Consumer {
    fn new(number: u64) -> Self {
        let bounds = Bounds { shortest: Span::from_millis(2_500), longest: Span::from_secs(60) };
        let strategy = SelfTuningConfig { bounds, ..Default::default() }.build().unwrap();
        let timer = CheckTimer::new(Box::new(strategy) as _, BackoffConfig::default().build().unwrap());
        let checks = Checks::new(Span::from_secs(5), timer, Bucket::new(at(0.0), 0.4, 2.0).unwrap());
        let mut consumer = Self { checks, random: Seeded::stream(11, number), head: 0, known: 0 };
        consumer.checks.connected(at(0.0), &mut consumer.random);
        consumer
    }
}

fn desk(limit: f64) -> Desk {
    let mut config = CheckConfig::default();
    (config.max_rate, config.max_wait) = (limit, Duration::from_millis(100));
    Desk::new(&config, at(0.0)).unwrap()
}

/// Response times of looked-up checks after the first minute, and how many checks there were in all.
fn run(clients: u64, limit: f64, seconds: u64) -> (Vec<f64>, u64, u64) {
    let mut desk = desk(limit);
    let mut consumers: Vec<Consumer> = (0..clients).map(Consumer::new).collect();
    let (mut world, mut update) = (Seeded::new(4), at(1.0));
    let (mut responses, mut served_after, mut later_after) = (Vec::new(), 0, 0);
    for step in 0..seconds * 100 {
        let now = at(step as f64 / 100.0);
        let settled = now > at(60.0);
        if now >= update {
            consumers.iter_mut().for_each(|consumer| consumer.head += 1);
            update = now + Span::from_secs_f64(world.uniform_in(2.0, 4.0));
        }
        for (number, consumer) in consumers.iter_mut().enumerate() {
            let Ask::Now(id) = consumer.checks.step(now, false, false, &mut consumer.random) else {
                continue;
            };
            let filter = format!("t/{number}");
            let check = format!(r#"{{"id":{id},"filters":[{{"filter":"{filter}","since":{{}}}}]}}"#);
            let check = tidegate_check::Check::read(check.as_bytes()).unwrap();
            if let Submitted::Later(retry) =
                desk.submit(&number.to_string(), &Reply::default(), check, 1, now)
            {
                consumer.checks.delayed(retry, now, &mut consumer.random);
                later_after += u64::from(settled);
            }
        }
        while let Ok(served) = desk.serve(now) {
            let rate = desk.share(now);
            for asker in served.askers {
                let (consumer, came) = (&mut consumers[asker.client.parse::<usize>().unwrap()], asker.came);
                let missing = std::mem::replace(&mut consumer.known, consumer.head).abs_diff(consumer.head);
                let announced = Announced { rate, delay: Some(now.since(came)) };
                consumer.checks.answered(missing, false, announced, now, &mut consumer.random);
                if settled {
                    // From the first try on, with the times that it was sent away.
                    responses.push(consumer.checks.counts.last_response.as_secs_f64());
                    served_after += 1;
                }
            }
        }
    }
    (responses, served_after, later_after)
}

#[test]
fn a_thousand_consumers_are_answered_in_time_with_the_hint() {
    let (mut responses, served, later) = run(1_000, 100.0, 240);
    responses.sort_by(f64::total_cmp);
    let p95 = responses[responses.len() * 95 / 100];
    println!("p95 {p95:.3} s, {served} looked up in 180 s, {later} sent away");
    assert!(p95 <= 0.2, "{p95}");
    assert!(served as f64 >= 0.6 * 180.0 * 100.0, "{served} looked up: the limit is not used");
    assert!(later < served / 2, "{later} sent away: the hint does not hold them back");
}

/// All are started at the same moment, as after a power cut, and ask where things stand: those who are told to come later do not
/// come back together.
#[test]
fn a_herd_that_begins_together_is_soon_through() {
    let (mut desk, mut waiting) = (desk(100.0), (0..1_000).map(Consumer::new).collect::<Vec<_>>());
    let (mut begun, mut asked) = (vec![false; waiting.len()], 0);
    for step in 0..6_000 {
        let now = at(f64::from(step) / 100.0);
        for (number, consumer) in waiting.iter_mut().enumerate().filter(|(number, _)| !begun[*number]) {
            let Ask::Now(id) = consumer.checks.step(now, false, true, &mut consumer.random) else { continue };
            asked += 1;
            let check = format!(r#"{{"id":{id},"filters":[{{"filter":"t/{number}"}}]}}"#);
            let check = tidegate_check::Check::read(check.as_bytes()).unwrap();
            let submitted = desk.submit(&number.to_string(), &Reply::default(), check, 1, now);
            if let Submitted::Later(retry) = submitted {
                consumer.checks.delayed(retry, now, &mut consumer.random);
            }
        }
        while let Ok(served) = desk.serve(now) {
            let askers = served.askers.iter().map(|asker| asker.client.parse::<usize>().unwrap());
            askers.for_each(|number| begun[number] = true);
        }
        if begun.iter().all(|begun| *begun) {
            println!("all have begun after {:.1} s, with {asked} checks", now.as_secs_f64());
            assert!(now < at(40.0) && asked < 4_000, "after {} s, with {asked} checks", now.as_secs_f64());
            return;
        }
    }
    panic!("{} of them have not begun", begun.iter().filter(|begun| !**begun).count());
}
