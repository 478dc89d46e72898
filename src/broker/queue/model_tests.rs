//! Several publishers and queues, whatever happens: who is held is held by as many queues as say so, nobody is
//! forgotten, and those who wait get their turn.

use proptest::prelude::*;

use super::tests::{entries, limits, numbered, take};
use super::*;
use crate::hold::Gate;

const QUEUES: usize = 2;
const PUBLISHERS: usize = 4;

#[derive(Debug, Clone)]
enum Step {
    /// A publisher sends to a queue, which may hold it.
    Send(usize, usize, u64),
    /// A publisher is about to send to a queue that may hold others already.
    Come(usize, usize),
    /// A publisher has something to send.
    Stand(usize),
    /// A publisher leaves; it comes back with a new connection.
    Reconnect(usize),
    Exempt(usize, bool),
    Pop(usize, usize),
    GoOn(usize),
    Connect(usize),
    Disconnect(usize),
    Policy(usize, bool),
    Tick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (queue, publisher) = (0..QUEUES, 0..PUBLISHERS);
    prop_oneof![
        6 => (queue.clone(), publisher.clone(), 1..200_u64).prop_map(|(q, p, n)| Step::Send(q, p, n)),
        3 => (queue.clone(), publisher.clone()).prop_map(|(q, p)| Step::Come(q, p)),
        4 => publisher.clone().prop_map(Step::Stand),
        1 => publisher.clone().prop_map(Step::Reconnect),
        1 => (publisher, any::<bool>()).prop_map(|(p, exempt)| Step::Exempt(p, exempt)),
        6 => (queue.clone(), 1..150_usize).prop_map(|(q, most)| Step::Pop(q, most)),
        2 => queue.clone().prop_map(Step::GoOn),
        1 => queue.clone().prop_map(Step::Connect),
        1 => queue.clone().prop_map(Step::Disconnect),
        1 => (queue, any::<bool>()).prop_map(|(q, lasting)| Step::Policy(q, lasting)),
        2 => (1..15_000_u64).prop_map(Step::Tick),
    ]
}

struct House {
    queues: Vec<Queue>,
    /// The gate of each publisher's connection.
    current: Vec<Arc<Gate>>,
    /// All that ever were, so that those of connections that ended are looked at too.
    all: Vec<Arc<Gate>>,
    now: Millis,
}

impl House {
    fn new() -> Self {
        let queues: Vec<_> = (0..QUEUES).map(|_| Queue::new(HoldPolicy::WhileProgress)).collect();
        queues.iter().for_each(|queue| queue.connect(1));
        let current: Vec<_> = (0..PUBLISHERS).map(|number| numbered(number as u64 + 1)).collect();
        Self { queues, all: current.clone(), current, now: 1 }
    }

    fn apply(&mut self, step: &Step) {
        let (now, limits) = (self.now, limits());
        match *step {
            Step::Send(queue, publisher, count) => {
                let gate = &self.current[publisher];
                if self.queues[queue].push(entries(QoS::AtLeastOnce, count, now), now, &limits).over {
                    self.queues[queue].hold([(gate.number, Arc::clone(gate))].into_iter(), now, &limits);
                }
            }
            Step::Come(queue, publisher) => {
                let gate = &self.current[publisher];
                self.queues[queue].hold_newcomer(gate.number, gate, now, &limits);
            }
            Step::Stand(publisher) => self.current[publisher].stand_in_line(),
            Step::Reconnect(publisher) => {
                self.current[publisher].leave();
                self.current[publisher] = numbered(publisher as u64 + 1);
                self.all.push(Arc::clone(&self.current[publisher]));
            }
            Step::Exempt(publisher, exempt) => self.current[publisher].publisher.set_exempt(exempt),
            Step::Pop(queue, most) => {
                let count = take(&self.queues[queue], most, now).len() as u64;
                self.queues[queue].finished(Finished { count, soonest: 1 }, now);
            }
            Step::GoOn(queue) => self.queues[queue].go_on(now, &limits).open(),
            Step::Connect(queue) => self.queues[queue].connect(now),
            Step::Disconnect(queue) => drop(self.queues[queue].disconnect(&limits, |_| true)),
            Step::Policy(queue, lasting) => {
                let policy = if lasting { HoldPolicy::WhileProgress } else { HoldPolicy::Never };
                self.queues[queue].set_policy(policy);
            }
            Step::Tick(time) => {
                self.now += time;
                for queue in &self.queues {
                    queue.check_progress(self.now, &limits);
                }
            }
        }
    }

    /// Takes and acknowledges everything that waits, as connections and the broker's clock would have it, until nobody
    /// waits.
    fn drain(&mut self) {
        for _ in 0..1000 {
            self.now += 10;
            for queue in &self.queues {
                let count = take(queue, 10, self.now).len() as u64;
                queue.finished(Finished { count, soonest: 1 }, self.now);
                queue.check_progress(self.now, &limits());
                queue.go_on(self.now, &limits()).open();
            }
            self.current.iter().for_each(|gate| gate.stand_in_line());
        }
    }
}

proptest! {
    #[test]
    fn a_gate_is_held_by_as_many_queues_as_hold_it(steps in prop::collection::vec(step(), 1..120)) {
        let mut house = House::new();
        for step in &steps {
            house.apply(step);
            for gate in &house.all {
                let holding = house.queues.iter().map(|queue| queue.holds_gate(gate)).sum::<usize>();
                prop_assert_eq!(gate.places(), (holding, holding), "after {:?}", step);
            }
        }
        house.drain();
        for gate in &house.current {
            prop_assert_eq!(gate.places(), (0, 0), "held though nothing waits");
        }
    }
}
