//! A small world in steps of a millisecond: devices send, queues fill, consumers empty them, the plugin is told.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_control::flow::Flow;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{
    Client, Delays, Hook, Host, Moment as At, Operated, Plugin, Publisher, QueueReport, Request, Tick,
};

use crate::{Overload, OverloadConfig};

/// A gateway that writes down what is published.
#[derive(Default)]
pub(super) struct FakeHost {
    pub(super) publishers: HashMap<u64, Arc<Publisher>>,
    /// Subscribers of every control topic, but for some.
    pub(super) subscribers: usize,
    pub(super) subscribers_of: HashMap<String, usize>,
    pub(super) published: Mutex<Vec<(String, Vec<u8>)>>,
    /// What newcomers would read.
    pub(super) retained: Mutex<HashMap<String, Vec<u8>>>,
}

impl Host for FakeHost {
    fn publish(&self, topic: &str, payload: &[u8], retain: bool) {
        assert!(retain, "{topic} is to be retained");
        self.published.lock().push((topic.into(), payload.into()));
        self.retain(topic, payload);
    }

    fn retain(&self, topic: &str, payload: &[u8]) {
        if payload.is_empty() {
            self.retained.lock().remove(topic);
        } else {
            self.retained.lock().insert(topic.into(), payload.into());
        }
    }

    fn subscribers(&self, topic: &str) -> usize {
        self.subscribers_of.get(topic).copied().unwrap_or(self.subscribers)
    }

    fn publisher(&self, number: u64) -> Option<Arc<Publisher>> {
        self.publishers.get(&number).cloned()
    }
}

/// A device that follows the rate it is given.
pub(super) struct Device {
    pub(super) number: u64,
    /// Messages a second that it wants to send.
    pub(super) wants: f64,
    /// The queues that each of its messages goes to.
    pub(super) feeds: Vec<usize>,
    pub(super) sent: u64,
    next: f64,
    interval: f64,
}

/// A queue with consumers that take messages at an even pace.
pub(super) struct SimQueue {
    pub(super) name: Arc<str>,
    filter: Arc<str>,
    pub(super) consumers: u32,
    /// Messages a second.
    pub(super) rate: f64,
    flow: Flow,
    fed: HashMap<u64, u32>,
    ready: f64,
    /// Messages in the queue at which it holds its publishers itself.
    pub(super) bound: u64,
    holds: bool,
    pub(super) never_holds: bool,
    pub(super) processed: u64,
    /// The longest delay since this was last set to zero.
    pub(super) worst: Span,
}

pub(super) struct World {
    pub(super) plugin: Overload,
    pub(super) host: FakeHost,
    pub(super) devices: Vec<Device>,
    pub(super) queues: Vec<SimQueue>,
    pub(super) millis: u64,
    hooks: HashMap<u64, Box<dyn Hook>>,
    /// Announcements, with the millisecond of each.
    pub(super) announced: Vec<(u64, String, Value)>,
}

impl World {
    pub(super) fn new(config: OverloadConfig) -> Self {
        Self {
            plugin: Overload::new(config).unwrap(),
            host: FakeHost { subscribers: 1, ..FakeHost::default() },
            devices: Vec::new(),
            queues: Vec::new(),
            millis: 1000,
            hooks: HashMap::new(),
            announced: Vec::new(),
        }
    }

    pub(super) fn queue(&mut self, rate: f64) -> usize {
        let filter: Arc<str> = format!("sensors/{}/#", self.queues.len()).into();
        self.queues.push(SimQueue {
            name: format!("workers:{filter}").into(),
            filter,
            consumers: 1,
            rate,
            flow: Flow::new(self.now()),
            fed: HashMap::new(),
            ready: 0.0,
            bound: u64::MAX,
            holds: false,
            never_holds: false,
            processed: 0,
            worst: Span::ZERO,
        });
        self.queues.len() - 1
    }

    /// Connects devices that send to these queues.
    pub(super) fn devices(&mut self, name: &str, count: u64, wants: f64, feeds: &[usize]) -> Vec<usize> {
        let first = self.devices.len();
        for _ in 0..count {
            let number = self.devices.len() as u64 + 1;
            let publisher = Arc::new(Publisher::new(format!("{name}-{number}").into(), None, 60, 5));
            let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
            let client = Client {
                id: &publisher.client,
                user: None,
                password: None,
                peer,
                certificate: None,
                publisher: &publisher,
            };
            if let Some(hook) = self.plugin.connect(&client).unwrap() {
                self.hooks.insert(number, hook);
            }
            self.host.publishers.insert(number, publisher);
            // spread over their first interval
            let next = self.millis as f64 + 1e3 / wants * ((number as f64 * 0.618) % 1.0);
            self.devices.push(Device {
                number,
                wants,
                feeds: feeds.to_vec(),
                sent: 0,
                next,
                interval: 1e3 / wants,
            });
        }
        (first..self.devices.len()).collect()
    }

    pub(super) fn disconnect(&mut self, devices: &[usize]) {
        for index in devices {
            let device = &mut self.devices[*index];
            device.wants = 0.0;
            self.host.publishers.remove(&device.number);
            self.hooks.remove(&device.number);
        }
    }

    /// A device says what its topic is.
    /// Whether the message that it sent last is not held to its rate.
    pub(super) fn passes(&self, device: usize) -> bool {
        self.host.publishers[&self.devices[device].number].passes()
    }

    pub(super) fn uses_topic(&mut self, device: usize, topic: &str) {
        let number = self.devices[device].number;
        let publish = tidegate_plugin::Publish {
            topic,
            payload: b"",
            qos: 1,
            retain: false,
            now: At::START,
            waited: std::time::Duration::ZERO,
        };
        self.hooks.get_mut(&number).unwrap().on_publish(&publish);
    }

    pub(super) fn now(&self) -> Moment {
        Moment::START + Span::from_millis(self.millis)
    }

    pub(super) fn run(&mut self, seconds: f64) {
        for _ in 0..(seconds * 1000.0) as u64 {
            self.millis += 1;
            self.send();
            let now = self.now();
            self.queues.iter_mut().for_each(|queue| queue.serve(now));
            if self.millis.is_multiple_of(100) {
                self.tick();
            }
        }
    }

    fn send(&mut self) {
        let (millis, now) = (self.millis as f64, self.now());
        for device in &mut self.devices {
            let Some(publisher) = self.host.publishers.get(&device.number) else { continue };
            let rate = device.wants.min(publisher.rate());
            if device.feeds.iter().any(|queue| self.queues[*queue].holds) || rate <= 0.0 {
                device.next = device.next.max(millis);
                continue;
            }
            let interval = 1e3 / rate;
            if interval != device.interval {
                // what is left of the time between two messages grows or shrinks with it, so that nobody gets in step
                device.next = millis + (device.next - millis).max(0.0) * interval / device.interval;
                device.interval = interval;
            }
            while device.next <= millis {
                device.next += interval;
                device.sent += 1;
                publisher.note_accepted();
                for queue in &device.feeds {
                    let queue = &mut self.queues[*queue];
                    queue.flow.arrive(now, 1);
                    *queue.fed.entry(device.number).or_default() += 1;
                }
            }
        }
    }

    pub(super) fn tick(&mut self) {
        let now = self.now();
        let reports: Vec<_> = self
            .queues
            .iter_mut()
            .enumerate()
            .map(|(id, queue)| queue.report(id as u64 + 1_000_000, now))
            .collect();
        self.tell(now, &reports);
    }

    /// One turn with these reports.
    pub(super) fn tell(&mut self, now: Moment, reports: &[QueueReport]) {
        let wall_ms = 1_731_730_000_000 + self.millis;
        self.plugin.on_tick(&Tick { now, wall_ms, queues: reports, host: &self.host });
        for (topic, payload) in self.host.published.lock().drain(..) {
            let value =
                if payload.is_empty() { Value::Null } else { serde_json::from_slice(&payload).unwrap() };
            self.announced.push((self.millis, topic, value));
        }
    }

    /// Sets counts back to zero, runs, and returns messages a second of each queue.
    pub(super) fn measure(&mut self, seconds: f64) -> Vec<f64> {
        self.devices.iter_mut().for_each(|device| device.sent = 0);
        self.queues.iter_mut().for_each(|queue| (queue.processed, queue.worst) = (0, Span::ZERO));
        self.run(seconds);
        self.queues.iter().map(|queue| queue.processed as f64 / seconds).collect()
    }

    pub(super) fn rate(&self, device: usize) -> f64 {
        self.host.publishers[&self.devices[device].number].rate()
    }

    pub(super) fn ask(&self, path: &str, query: &str) -> (u16, Value) {
        let request = Request { method: "GET", path, query, body: b"" };
        let response = self.plugin.on_request(&request).unwrap();
        (response.status, serde_json::from_str(&response.json).unwrap())
    }

    /// What the plugin says of a queue.
    pub(super) fn view(&self, queue: usize) -> Value {
        let (status, answer) = self.ask("queues", "");
        assert_eq!(status, 200);
        let name = &*self.queues[queue].name;
        let queues = answer.as_array().unwrap();
        queues.iter().find(|queue| queue["queue"] == name).cloned().unwrap_or(Value::Null)
    }

    pub(super) fn phase(&self, queue: usize) -> String {
        self.view(queue)["phase"].as_str().unwrap_or("gone").into()
    }

    /// What somebody who subscribes now reads on a topic.
    pub(super) fn retained(&self, topic: &str) -> Option<Value> {
        self.host.retained.lock().get(topic).map(|payload| serde_json::from_slice(payload).unwrap())
    }

    /// The last announcement on a topic.
    pub(super) fn last(&self, topic: &str) -> Option<&Value> {
        self.announced.iter().rev().find(|(_, on, _)| on == topic).map(|(_, _, value)| value)
    }
}

impl SimQueue {
    fn serve(&mut self, now: Moment) {
        if self.consumers > 0 {
            // at most what is ready now: time that nothing waited is lost
            self.ready = (self.ready + self.rate / 1000.0).min((self.rate / 1000.0).max(1.0));
            let taken = self.flow.depart(now, (self.ready + 1e-9) as u64);
            self.ready -= taken as f64;
            self.processed += taken;
        }
        self.worst = self.worst.max(self.flow.delay(now));
        let depth = self.flow.depth();
        self.holds = depth > self.bound || self.holds && depth > self.bound / 2;
    }

    fn report(&mut self, id: u64, now: Moment) -> QueueReport {
        let reading = self.flow.read(now);
        let mut delays = Delays::default();
        (0..reading.departed).for_each(|_| delays.add(reading.delay.as_nanos() / 1_000_000));
        let feeders: Vec<_> = self.fed.drain().collect();
        QueueReport {
            id,
            name: Arc::clone(&self.name),
            group: Some("workers".into()),
            filter: Arc::clone(&self.filter),
            filters: Arc::new([Arc::clone(&self.filter)]),
            qos: 1,
            consumers: self.consumers,
            reading,
            dropped: 0,
            lost: 0,
            in_flight: 0,
            waiting: reading.depth,
            age: reading.delay,
            soonest: None,
            delays,
            held: if self.holds { feeders.len() as u32 } else { 0 },
            feeders,
            never_holds: self.never_holds,
            elsewhere: None,
        }
    }
}
