//! The gateway is killed with everything it knew, and started again; alarms are raised all the time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_client::{Publisher, Subscriber};

use crate::gateway::Gateway;
use crate::relay::Relay;
use crate::{Shown, connection, peak, until};

const FLEET: usize = 500;
const OUTAGE: Duration = Duration::from_secs(4);
/// Time between two alarms of the same member.
const ALARMS: Duration = Duration::from_secs(1);
/// How long the last alarms may take.
const REST: Duration = Duration::from_secs(60);

/// Alarms that were offered, by when.
#[derive(Default)]
struct Offered {
    /// How many of each member.
    each: u64,
    /// Where each time begins: the number of its first alarm.
    times: Vec<(&'static str, u64)>,
}

impl Offered {
    /// All members raise an alarm.
    fn raise(&mut self, fleet: &[Publisher]) {
        for (member, publisher) in fleet.iter().enumerate() {
            publisher.offer_urgent(&format!("killed/{member}"), self.each.to_string()).unwrap();
        }
        self.each += 1;
    }

    async fn raise_for(&mut self, time: Duration, fleet: &[Publisher]) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.raise(fleet);
            tokio::time::sleep(ALARMS).await;
        }
    }

    fn begin(&mut self, name: &'static str) {
        self.times.push((name, self.each));
    }
}

pub(crate) async fn run() -> Shown {
    let gateway = Gateway::start("127.0.0.1:0", &[]);
    let address = gateway.address;
    let relay = Relay::to(address).await;
    let room = ControlRoom::start(&gateway.url()).await;
    let mut fleet = Vec::new();
    for member in 0..FLEET {
        let connection = connection(&relay.url(), &format!("member-{member}"));
        fleet.push(Publisher::builder(connection).start().unwrap());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    until("all connected", || fleet.iter().all(|publisher| publisher.stats().connections == 1)).await;
    // Longer than the first window, so that this counts as a connection that was good.
    let mut offered = Offered::default();
    offered.begin("before the kill");
    offered.raise_for(Duration::from_secs(4), &fleet).await;
    offered.begin("at the moment of the kill");
    offered.raise(&fleet);
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(gateway);
    offered.begin("while it is away");
    offered.raise_for(OUTAGE, &fleet).await;
    let _gateway = Gateway::start(&address.to_string(), &[]);
    relay.accepted.lock().clear();
    offered.begin("after it is back");
    offered.raise_for(Duration::from_secs(5), &fleet).await;
    until("all are back", || fleet.iter().all(|publisher| publisher.stats().connections == 2)).await;
    let accepted = relay.accepted.lock().clone();
    let all = |publisher: &Publisher| publisher.stats().urgent_waiting == 0;
    until("all alarms are taken", || fleet.iter().all(all)).await;
    let deadline = Instant::now() + REST;
    while room.lost(&offered).1 > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    report(&accepted, &fleet, &offered, &room)
}

fn report(accepted: &[Instant], fleet: &[Publisher], offered: &Offered, room: &ControlRoom) -> Shown {
    let mut shown = Shown::default();
    let seconds: Vec<f64> = accepted.iter().map(|time| (*time - accepted[0]).as_secs_f64()).collect();
    let spread = seconds.last().copied().unwrap_or(0.0);
    let (most, mean) = (peak(&seconds, 1.0), seconds.len() as f64 / spread);
    let text = format!(
        "{most} at most, {mean:.0} on average over {spread:.1} s, {:.2} times; {} for {FLEET} clients",
        most as f64 / mean,
        seconds.len()
    );
    shown.show("connections a second", text, most as f64 <= 2.0 * mean);
    let all = offered.each * FLEET as u64;
    let delivered: u64 = fleet.iter().map(|publisher| publisher.stats().urgent_delivered).sum();
    shown.show("alarms that the gateway took", format!("{delivered} of {all}"), delivered == all);
    let (text, lost) = room.lost(offered);
    let text = format!("{} of {all}{text}", all - lost);
    shown.show("alarms that the subscriber got", text, lost == 0);
    let seen = room.seen.lock();
    shown.show("alarms out of order", seen.disordered, seen.disordered == 0);
    println!("                 {} came twice: the gateway might have forgotten them", seen.twice);
    shown
}

/// Somebody who listens to all alarms.
struct ControlRoom {
    seen: Arc<Mutex<Seen>>,
}

/// What was seen, by member.
#[derive(Default)]
struct Seen {
    alarms: HashMap<String, HashSet<u64>>,
    last: HashMap<String, u64>,
    twice: u64,
    disordered: u64,
}

impl Seen {
    fn alarm(&mut self, topic: String, number: u64) {
        if !self.alarms.entry(topic.clone()).or_default().insert(number) {
            self.twice += 1;
            return;
        }
        let last = self.last.entry(topic).or_insert(number);
        self.disordered += u64::from(number < *last);
        *last = number.max(*last);
    }
}

impl ControlRoom {
    async fn start(url: &str) -> Self {
        let builder = Subscriber::builder(connection(url, "control-room")).filter("killed/#");
        let mut updates = builder.answer_limit(1_000).buffer(20_000).start().unwrap();
        until("the control room", || updates.stats().answered_checks > 0).await;
        let seen = Arc::<Mutex<Seen>>::default();
        let written = seen.clone();
        tokio::spawn(async move {
            while let Some(update) = updates.next().await {
                let number = String::from_utf8_lossy(&update.payload).parse().unwrap();
                written.lock().alarm(update.topic, number);
            }
        });
        Self { seen }
    }

    /// What is missing, in words and in numbers.
    fn lost(&self, offered: &Offered) -> (String, u64) {
        let seen = self.seen.lock();
        let (mut text, mut all) = (String::new(), 0);
        for (place, (name, from)) in offered.times.iter().enumerate() {
            let to = offered.times.get(place + 1).map_or(offered.each, |(_, from)| *from);
            let got =
                |alarms: &HashSet<u64>| alarms.iter().filter(|n| (*from..to).contains(n)).count() as u64;
            let lost = (to - from) * FLEET as u64 - seen.alarms.values().map(got).sum::<u64>();
            if lost > 0 {
                text += &format!(", {lost} lost {name}");
            }
            all += lost;
        }
        (text, all)
    }
}
