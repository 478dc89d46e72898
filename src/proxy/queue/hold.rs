//! Publishers that wait because there is too much in a queue: they stand in line, as in the broker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Bounds, Queue, State};
use crate::broker::clock::{Millis, moment};
use crate::hold::{Gate, HeldGates, Released, Room};
use crate::wire::QoS;

/// A queue of so few messages is never late.
const FEW: u64 = 32;
/// Messages that may wait before it is known how fast consumers are: those who begin to publish do not know it either.
const FIRST: u64 = 256;

impl Queue {
    /// Closes the gate of a publisher that has just sent something, if there is too much of it; whether it just did.
    pub(in crate::proxy) fn hold(&self, now: Millis, gate: &Arc<Gate>) -> bool {
        let mut state = self.at(now);
        let exempt = gate.publisher.is_exempt();
        if !state.may_hold(now, &self.bounds)
            || !state.over(now, &self.bounds)
            || exempt && !state.is_full(&self.bounds)
        {
            return false;
        }
        let held = state.hold_one(gate);
        self.lasting.store(state.holds_lasting(), Ordering::Release);
        held
    }

    /// Whether publishers wait for their turn.
    pub(in crate::proxy) fn has_line(&self) -> bool {
        self.lasting.load(Ordering::Acquire)
    }

    /// Closes the gate of a publisher that is about to send something, if others wait for their turn; whether it does.
    pub(in crate::proxy) fn hold_newcomer(&self, now: Millis, gate: &Arc<Gate>) -> bool {
        let mut state = self.at(now);
        if !state.holds_lasting() || !state.may_hold(now, &self.bounds) {
            return false;
        }
        state.hold_one(gate);
        true
    }

    /// Lets publishers go for whom consumers of other nodes have made room by now; whether some still wait.
    pub(in crate::proxy) fn let_go_by_now(&self, now: Millis) -> bool {
        let mut state = self.at(now);
        let released = self.let_go(&mut state, now, 0);
        let waits = state.held.is_some();
        drop(state);
        released.open();
        waits
    }

    /// Lets publishers go, once consumers have taken so much that there is room. `taken` is what they took since the last turn of the
    /// control loop, and 0 in between.
    pub(super) fn let_go(&self, state: &mut State, now: Millis, taken: u64) -> Released {
        if state.held.is_none() {
            return Released::default();
        }
        let released = state.release_if_short(now, &self.bounds, taken);
        self.lasting.store(state.holds_lasting(), Ordering::Release);
        released
    }
}

impl State {
    /// Whether consumers are at work for whom publishers may wait.
    fn may_hold(&self, now: Millis, bounds: &Bounds) -> bool {
        !self.gone
            && !self.must_not_hold()
            && self.terms.qos() != QoS::AtMostOnce
            && self.all_consumers() > 0
            && now <= self.moved + bounds.progress
    }

    fn over(&self, now: Millis, bounds: &Bounds) -> bool {
        self.is_full(bounds) || self.is_late(now, bounds, bounds.delay)
    }

    fn is_full(&self, bounds: &Bounds) -> bool {
        self.waits() > bounds.messages
    }

    /// Whether the first one has waited for too long, or the last one will wait for longer than `wait`.
    fn is_late(&self, now: Millis, bounds: &Bounds, wait: Millis) -> bool {
        let fresh = self.fresh();
        let (_, _, age) = self.seen(moment(now));
        let aged = self.backlog == 0 && age.as_nanos() / 1_000_000 > bounds.delay;
        fresh > FEW && (aged || fresh > self.takes_within(wait))
    }

    fn waits(&self) -> u64 {
        self.upstream.depth() + self.all_in_flight().saturating_sub(self.all_windows())
    }

    /// What waits and came while consumers were there.
    fn fresh(&self) -> u64 {
        self.waits().saturating_sub(self.backlog)
    }

    /// How many messages consumers take in so many milliseconds.
    fn takes_within(&self, millis: Millis) -> u64 {
        if self.rate > 0.0 { (self.rate * millis as f64 / 1e3) as u64 } else { FIRST }
    }

    pub(super) fn holds_lasting(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_lasting())
    }

    fn hold_one(&mut self, gate: &Arc<Gate>) -> bool {
        // a publisher that is held has something to send: it counts as one that feeds the queue
        self.account.fed_by(gate.number, 0);
        let held = self.held.get_or_insert_default();
        let is_new = held.hold(gate.number, Arc::clone(gate));
        self.most_held = self.most_held.max(held.len());
        is_new
    }

    /// The most publishers that waited at a time since this was asked last.
    pub(super) fn take_most_held(&mut self) -> u32 {
        let now = self.held.as_ref().map_or(0, |held| held.len());
        let most = std::mem::replace(&mut self.most_held, now);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    fn release_if_short(&mut self, now: Millis, bounds: &Bounds, taken: u64) -> Released {
        if !self.may_hold(now, bounds) {
            self.granted = 0;
            return Released::all(self.held.take());
        }
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let room = Room {
            fresh: number(self.fresh()),
            in_time: number(self.takes_within(bounds.delay).max(FEW)),
            full: number(bounds.messages),
            late: self.is_late(now, bounds, bounds.delay / 2),
            crowded: false,
            over: self.over(now, bounds),
            taken: number(taken),
            strict: bounds.limit != 0,
        };
        HeldGates::let_go(&mut self.held, &mut self.granted, &room)
    }

    /// A turn of the control loop: others in line get their turn, should those who had it have sent nothing.
    pub(super) fn go_on(&mut self) {
        self.granted = 0;
        if let Some(held) = &mut self.held {
            held.forget_gone();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_plugin::Publisher;

    use super::*;
    use crate::ledger::Measured;

    const BOUNDS: Bounds =
        Bounds { limit: 0, window: 50, messages: 100, delay: 1_000, progress: 10_000, nodes: false };

    fn queue(bounds: Bounds) -> Queue {
        let queue = Queue::new(1, "c".into(), None, bounds, 1);
        queue.subscribed("t", QoS::AtLeastOnce, false, false);
        queue
    }

    /// A publisher with a number and a share, that wants to send.
    fn gate(number: u64, share: u32) -> Arc<Gate> {
        let publisher = Publisher::new(format!("p{number}").into(), None, 60, 5);
        publisher.set_share(share);
        Arc::new(Gate::new(number, Arc::new(publisher)))
    }

    fn held(gate: &Gate) -> bool {
        gate.held(0).is_some()
    }

    fn take(queue: &Queue, now: Millis, count: u64) {
        (0..count).for_each(|_| {
            queue.deliver(now, QoS::AtLeastOnce, false);
            queue.finish(now, 1, true, 5);
        });
    }

    #[test]
    fn publishers_wait_while_there_is_too_much() {
        let (queue, one) = (queue(BOUNDS), gate(1, 1));
        queue.arrive(1, 7, QoS::AtLeastOnce, 101);
        assert!(!queue.hold(1, &one), "nobody is there to take it");
        queue.join(1, u64::MAX);
        queue.arrive(1, 7, QoS::AtLeastOnce, 101);
        assert!(queue.hold(2, &one) && held(&one));
        take(&queue, 3, 126);
        assert!(held(&one), "76 are still there");
        take(&queue, 4, 40);
        assert!(!held(&one));
        queue.deliver(5, QoS::AtLeastOnce, false);
        assert!(queue.hold(1_100, &one), "the first one has waited for too long");
        queue.measure(moment(10_005));
        assert!(!held(&one), "the consumer takes nothing");
        queue.finish(10_006, 1, true, 5);
        assert!(queue.hold(10_007, &one));
        queue.subscribed("debug", QoS::AtLeastOnce, true, false);
        queue.measure(moment(10_100));
        assert!(!held(&one), "the operator says never");
    }

    /// Who waited and is let go right before a report waited all the same.
    #[test]
    fn who_was_held_is_told_of() {
        let (queue, one) = (queue(BOUNDS), gate(1, 1));
        queue.join(1, u64::MAX);
        queue.arrive(1, 7, QoS::AtLeastOnce, 101);
        assert!(queue.hold(2, &one));
        take(&queue, 3, 100);
        assert!(!held(&one));
        let reported = |now| queue.measure(moment(now)).unwrap().held;
        assert_eq!(reported(4), 1, "since the last report");
        assert_eq!(reported(5), 0);
        queue.arrive(6, 7, QoS::AtLeastOnce, 101);
        assert!(queue.hold(6, &one));
        assert_eq!((reported(7), reported(8)), (1, 1), "it still waits");
    }

    /// Nobody can know how long 300 messages take before the first ones are done.
    #[test]
    fn few_may_wait_before_consumers_were_seen_at_work() {
        let (queue, one, other) = (queue(Bounds { messages: 10_000, ..BOUNDS }), gate(1, 1), gate(2, 1));
        queue.join(1, u64::MAX);
        queue.arrive(1, 7, QoS::AtLeastOnce, 300);
        assert!(queue.hold(1, &one));
        queue.measure(moment(2)).unwrap();
        (2..=201).for_each(|now| take(&queue, now, 1));
        queue.measure(moment(202)).unwrap();
        queue.arrive(202, 7, QoS::AtLeastOnce, 300);
        assert!(!queue.hold(202, &other), "400 at 1,000 a second are soon done");
        queue.arrive(202, 7, QoS::AtLeastOnce, 700);
        assert!(queue.hold(202, &other), "1,100 are not");
    }

    /// Those in line go one after the other, each as often as its weight says; the exempt do not wait.
    #[test]
    fn they_go_in_turn() {
        let queue = queue(Bounds { messages: 10_000, delay: 100, ..BOUNDS });
        queue.join(1, u64::MAX);
        queue.arrive(1, 7, QoS::AtLeastOnce, 100);
        queue.measure(moment(2)).unwrap();
        (2..=101).for_each(|now| take(&queue, now, 1));
        queue.measure(moment(102)).unwrap();
        queue.arrive(103, 7, QoS::AtLeastOnce, 120);
        let (gates, alarm, late) = ([gate(1, 1), gate(2, 4), gate(3, 1)], gate(4, 1), gate(5, 1));
        alarm.publisher.set_exempt(true);
        assert!(
            gates.iter().all(|gate| queue.hold(103, gate)),
            "120 messages at 1,000 a second are too many"
        );
        gates.iter().for_each(|gate| gate.stand_in_line());
        assert!(!queue.hold(103, &alarm));
        assert!(queue.has_line() && queue.hold_newcomer(104, &late));
        late.stand_in_line();
        // 49 wait, and 50 may: there is room for one
        (104..175).for_each(|now| take(&queue, now, 1));
        assert_eq!(gates.each_ref().map(|gate| held(gate)), [false, true, true]);
        assert_eq!(gates[0].take_grant(), Some(1));
        queue.arrive(175, 1, QoS::AtLeastOnce, 1);
        take(&queue, 175, 1);
        assert_eq!(gates.each_ref().map(|gate| held(gate)), [false, false, true]);
        assert_eq!(gates[1].take_grant(), Some(1));
        queue.arrive(176, 2, QoS::AtLeastOnce, 1);
        assert!(queue.hold_newcomer(176, &gates[1]));
        gates[1].stand_in_line();
        take(&queue, 176, 1);
        assert_eq!(gates.each_ref().map(|gate| held(gate)), [false, true, false]);
        assert!(held(&late));
    }
}
