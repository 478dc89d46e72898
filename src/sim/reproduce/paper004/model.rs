//! Four edge brokers, fifteen topics, a burst: the experiment of section 5 in steps of 10 ms.

use std::collections::VecDeque;
use tidegate_control::Invalid;
use tidegate_control::allocate::{Claim, water_fill};
use tidegate_control::balance::{
    Broker, Capacity, Distribute, DistributeConfig, Latency, Migration, MigrationConfig, MigrationState,
    Move, Offload, OffloadConfig, Origin, Rates, Topic, depth_threshold,
};
use tidegate_control::random::{Random, Seeded};
use tidegate_control::time::{Moment, Span};

/// Steps in a second.
const STEPS: u64 = 100;
const STEP: Span = Span::from_millis(10);
/// A publisher's messages a second before the burst.
const PUBLISHER_RATE: f64 = 50.0;

/// An edge broker of table 5.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) cpu_mhz: f64,
    pub(super) bandwidth_mbps: f64,
}

/// A topic of table 6.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) id: u64,
    pub(super) publishers: u32,
    pub(super) subscribers: u32,
    pub(super) latency: Span,
    pub(super) bytes: f64,
}

/// What is simulated.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) edges: Vec<Edge>,
    pub(super) topics: Vec<Spec>,
    pub(super) offload: OffloadConfig,
    /// Spent on links between publisher, head, edge and subscriber.
    pub(super) transmission: Span,
    /// When the topics with an even number double their rate.
    pub(super) burst: u64,
    /// Seconds.
    pub(super) duration: u64,
}

/// A plan that was carried out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// The second of the check.
    pub(super) at: u64,
    pub(super) from: usize,
    /// The topic that was deepest over its threshold, its depth and the threshold; none for another metric.
    pub(super) deepest: Option<(u64, f64, f64)>,
    pub(super) moves: Vec<Move>,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// Broker of each topic after the distribution, in the order of the topics.
    pub(super) placed: Vec<usize>,
    /// Uplink utilization of each broker in each second.
    pub(super) uplink: Vec<Vec<f64>>,
    /// Waiting messages of each topic in each second, over all brokers.
    pub(super) depth: Vec<Vec<f64>>,
    pub(super) events: Vec<Event>,
    /// When the queue that started the first event was empty again, in seconds.
    pub(super) cleared: Option<f64>,
    /// Messages that waited longer than they may, those included that still do at the end.
    pub(super) late: f64,
}

impl Setup {
    /// Runs it once; the seed decides when in its period each publisher sends.
    pub(super) fn run(&self, seed: u64) -> Result<Outcome, Invalid> {
        let mut world = World::new(self, seed)?;
        for second in 1..=self.duration {
            world.distribute(self, second)?;
            for step in 0..STEPS {
                world.step(self, (second - 1) * STEPS + step);
            }
            world.check(self, second)?;
        }
        world.count_overdue(self);
        Ok(world.outcome)
    }

    /// How many steps a message of this topic may wait.
    fn allowed_steps(&self, topic: usize) -> u64 {
        let allowed = self.topics.get(topic).map_or(Span::MAX, |spec| self.allowed(spec));
        allowed.as_nanos() / STEP.as_nanos()
    }

    fn allowed(&self, spec: &Spec) -> Span {
        Latency { required: spec.latency, transmission: self.transmission, elsewhere: Span::ZERO }.allowed()
    }
}

/// The subscribers of one topic on one broker, and what waits for them.
#[derive(Debug, Clone)]
struct Queue {
    topic: usize,
    subscribers: u32,
    /// When they came and how many.
    waiting: VecDeque<(u64, f64)>,
    arrived: f64,
    departed: f64,
}

impl Queue {
    /// Messages that have waited for a step or more.
    fn depth(&self, step: u64) -> f64 {
        self.waiting.iter().filter(|(at, _)| *at < step).map(|(_, count)| count).sum()
    }

    fn all(&self) -> f64 {
        self.waiting.iter().map(|(_, count)| count).sum()
    }

    /// Sends so many; returns how many of them had waited for more than `allowed` steps.
    fn send(&mut self, mut messages: f64, step: u64, allowed: u64) -> f64 {
        self.departed += messages;
        let mut late = 0.0;
        while let Some((at, count)) = self.waiting.front_mut() {
            let sent = count.min(messages);
            late += if step - *at > allowed { sent } else { 0.0 };
            *count -= sent;
            messages -= sent;
            // What is left of rounding is not a message.
            if *count > 1e-6 {
                break;
            }
            self.waiting.pop_front();
        }
        late
    }

    /// Messages that wait for more than `allowed` steps already.
    fn overdue(&self, step: u64, allowed: u64) -> f64 {
        self.waiting.iter().filter(|(at, _)| step - *at > allowed).map(|(_, count)| count).sum()
    }
}

struct World {
    distribute: Distribute,
    offload: Offload,
    capacities: Vec<Capacity>,
    queues: Vec<Vec<Queue>>,
    /// What each publisher of each topic has ready, in parts of a message.
    publishers: Vec<Vec<f64>>,
    migration: Option<(Migration, u64, usize, Vec<Move>)>,
    outcome: Outcome,
}

impl World {
    fn new(setup: &Setup, seed: u64) -> Result<Self, Invalid> {
        let capacity = |edge: &Edge| {
            // Ten messages a second for each MHz: matching is never what is scarce here.
            Capacity::new(edge.bandwidth_mbps * 1e6, edge.cpu_mhz * 10.0, edge.bandwidth_mbps * 1e6)
        };
        let mut random = Seeded::new(seed);
        let phases = |spec: &Spec| (0..spec.publishers).map(|_| random.uniform()).collect();
        Ok(Self {
            distribute: DistributeConfig { limits: setup.offload.limits, ..Default::default() }.build()?,
            offload: setup.offload.build()?,
            capacities: setup.edges.iter().map(capacity).collect::<Result<_, _>>()?,
            queues: vec![Vec::new(); setup.edges.len()],
            publishers: setup.topics.iter().map(phases).collect(),
            migration: None,
            outcome: Outcome { depth: vec![Vec::new(); setup.topics.len()], ..Default::default() },
        })
    }

    /// In each of the first seconds the subscribers of one topic come.
    fn distribute(&mut self, setup: &Setup, second: u64) -> Result<(), Invalid> {
        let index = second as usize - 1;
        let Some(spec) = setup.topics.get(index) else { return Ok(()) };
        let rate = PUBLISHER_RATE * f64::from(spec.publishers);
        let topic = measured(setup, spec, spec.subscribers, [rate, rate, 0.0]);
        topic.validate()?;
        let brokers = self.brokers(setup, second, true);
        if let Some(broker) = self.distribute.place(&topic, &brokers, &|_, _| 0.0) {
            self.outcome.placed.push(broker);
            self.join(broker, index, spec.subscribers);
        }
        Ok(())
    }

    fn join(&mut self, broker: usize, topic: usize, subscribers: u32) {
        let Some(queues) = self.queues.get_mut(broker) else { return };
        match queues.iter_mut().find(|queue| queue.topic == topic) {
            Some(queue) => queue.subscribers += subscribers,
            None => queues.push(Queue {
                topic,
                subscribers,
                waiting: VecDeque::new(),
                arrived: 0.0,
                departed: 0.0,
            }),
        }
    }

    /// One step: what was published is queued, then each broker sends what its uplink takes, fairly shared.
    fn step(&mut self, setup: &Setup, step: u64) {
        self.finish_migration(setup, step);
        for (topic, spec) in setup.topics.iter().enumerate() {
            let messages = self.publish(setup, topic, spec, step);
            for queue in self.queues.iter_mut().flatten().filter(|queue| queue.topic == topic) {
                queue.arrived += messages;
                let deliveries = messages * f64::from(queue.subscribers);
                if deliveries > 0.0 {
                    queue.waiting.push_back((step, deliveries));
                }
            }
        }
        for (queues, capacity) in self.queues.iter_mut().zip(&self.capacities) {
            let bits = |queue: &Queue| setup.topics.get(queue.topic).map_or(1.0, |spec| spec.bytes * 8.0);
            let claims: Vec<Claim> =
                queues.iter().map(|queue| Claim::up_to(queue.all() * bits(queue))).collect();
            let shares = water_fill(capacity.uplink() * STEP.as_secs_f64(), &claims);
            for (queue, share) in queues.iter_mut().zip(shares) {
                let allowed = setup.allowed_steps(queue.topic);
                let messages = share / bits(queue);
                self.outcome.late += queue.send(messages, step, allowed);
            }
        }
        self.note_cleared(step);
    }

    /// Counts as late what has waited too long at the end and is still not sent.
    fn count_overdue(&mut self, setup: &Setup) {
        let end = setup.duration * STEPS;
        let overdue = |queue: &Queue| queue.overdue(end, setup.allowed_steps(queue.topic));
        self.outcome.late += self.queues.iter().flatten().map(overdue).sum::<f64>();
    }

    /// Messages of a topic in this step.
    fn publish(&mut self, setup: &Setup, topic: usize, spec: &Spec, step: u64) -> f64 {
        let doubled = spec.id.is_multiple_of(2) && step >= setup.burst * STEPS;
        let rate = PUBLISHER_RATE * if doubled { 2.0 } else { 1.0 } / STEPS as f64;
        let publishers = self.publishers.get_mut(topic).map_or(&mut [][..], Vec::as_mut_slice);
        let mut messages = 0.0;
        for ready in publishers {
            *ready += rate;
            messages += ready.floor();
            *ready -= ready.floor();
        }
        messages
    }

    fn note_cleared(&mut self, step: u64) {
        let Some(event) = self.outcome.events.first().filter(|_| self.outcome.cleared.is_none()) else {
            return;
        };
        let Some((id, ..)) = event.deepest else { return };
        let topic = id as usize - 1;
        let queues = self.queues.get(event.from).map_or(&[][..], Vec::as_slice);
        if queues.iter().filter(|queue| queue.topic == topic).all(|queue| queue.depth(step) <= 0.0) {
            self.outcome.cleared = Some((step + 1) as f64 / STEPS as f64);
        }
    }

    /// The check at the end of each second.
    fn check(&mut self, setup: &Setup, second: u64) -> Result<(), Invalid> {
        let brokers = self.brokers(setup, second, false);
        self.outcome.uplink.push(brokers.iter().map(|broker| broker.utilization().uplink).collect());
        for (topic, depths) in self.outcome.depth.iter_mut().enumerate() {
            let queues = self.queues.iter().flatten().filter(|queue| queue.topic == topic);
            depths.push(queues.map(|queue| queue.depth(second * STEPS)).sum());
        }
        for queue in self.queues.iter_mut().flatten() {
            (queue.arrived, queue.departed) = (0.0, 0.0);
        }
        // Nothing is moved while clients still join.
        if self.migration.is_some() || second <= setup.topics.len() as u64 {
            return Ok(());
        }
        let plans = (0..brokers.len()).map(|from| (from, self.offload.plan(from, &brokers)));
        let Some((from, moves)) = plans.into_iter().find(|(_, moves)| !moves.is_empty()) else {
            return Ok(());
        };
        let clients = moves.iter().map(|next| next.subscribers).sum();
        let now = Moment::START + Span::from_secs(second);
        let migration = MigrationConfig::default().start(now, clients)?;
        let deepest = brokers.get(from).and_then(|broker| self.deepest(broker));
        self.outcome.events.push(Event { at: second, from, deepest, moves: moves.clone() });
        let cost = setup.offload.limits.migration_cost.as_nanos() / STEP.as_nanos();
        self.migration = Some((migration, second * STEPS + cost, from, moves));
        Ok(())
    }

    /// The topic that is furthest over its threshold.
    fn deepest(&self, broker: &Broker) -> Option<(u64, f64, f64)> {
        let cost = self.offload.limits().config().migration_cost;
        let threshold = |topic: &Topic| {
            depth_threshold(topic.allowed, cost, Rates { input: topic.demand(), output: topic.output_rate })
        };
        let over = broker.topics.iter().filter(|topic| topic.is_too_deep(cost));
        let over = over.map(|topic| (topic.id, topic.depth, threshold(topic)));
        over.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))
    }

    /// When the clients have moved, new messages go to their new broker; what waits is still sent from the old one.
    fn finish_migration(&mut self, setup: &Setup, step: u64) {
        let Some((mut migration, due, from, moves)) = self.migration.take() else { return };
        if step < due {
            self.migration = Some((migration, due, from, moves));
            return;
        }
        for next in &moves {
            let Some(topic) = setup.topics.iter().position(|spec| spec.id == next.topic) else { continue };
            let left =
                self.queues.get_mut(from).and_then(|queues| queues.iter_mut().find(|q| q.topic == topic));
            if let Some(queue) = left {
                queue.subscribers -= next.subscribers.min(queue.subscribers);
            }
            self.join(next.to, topic, next.subscribers);
            migration.on_moved(next.subscribers);
        }
        let now = Moment::START + Span::from_nanos(step * STEP.as_nanos());
        debug_assert_eq!(migration.state(now), MigrationState::Complete);
    }

    /// The brokers as measured in the last second, or as they will be when all publishers of a new topic are heard.
    fn brokers(&self, setup: &Setup, second: u64, nominal: bool) -> Vec<Broker> {
        let topic = |queue: &Queue| {
            let spec = setup.topics.get(queue.topic)?;
            let rate = PUBLISHER_RATE * f64::from(spec.publishers);
            let figures = if nominal {
                [rate, rate, 0.0]
            } else {
                [queue.arrived, queue.departed, queue.depth(second * STEPS)]
            };
            Some(measured(setup, spec, queue.subscribers, figures))
        };
        let brokers = self.queues.iter().zip(&self.capacities);
        let broker = |(queues, capacity): (&Vec<Queue>, &Capacity)| Broker {
            capacity: *capacity,
            topics: queues.iter().filter_map(topic).collect(),
        };
        brokers.map(broker).collect()
    }
}

/// A topic with its input, output and depth.
fn measured(setup: &Setup, spec: &Spec, subscribers: u32, figures: [f64; 3]) -> Topic {
    let [input_rate, output_rate, depth] = figures;
    Topic {
        id: spec.id,
        subscribers,
        origin: Origin::Local,
        message_bits: spec.bytes * 8.0,
        input_rate,
        output_rate,
        depth,
        allowed: setup.allowed(spec),
    }
}

/// Whether a broker is over 100% of its uplink in any second.
pub(super) fn overfull(outcome: &Outcome, broker: usize) -> bool {
    outcome.uplink.iter().any(|second| second.get(broker).is_some_and(|used| *used > 1.0))
}
