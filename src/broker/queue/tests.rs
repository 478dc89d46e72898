#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use tidegate_control::time::Span;

use super::super::message::Parts;
use super::holding::Holding;

use super::*;
use crate::hold::Gate;

fn entry(qos: QoS, since: Millis, number: u64) -> Entry {
    in_lane(false, qos, since, number)
}

pub(super) fn in_lane(urgent: bool, qos: QoS, since: Millis, number: u64) -> Entry {
    let parts = Parts {
        topic: "t",
        properties: b"",
        payload: b"0123456789",
        qos,
        retain: false,
        urgent,
        ordinal: number,
        expires: 0,
    };
    Entry { message: Arc::new(Message::new(1, &parts)), extra: None, since, qos, retain: false }
}

fn gate() -> Arc<Gate> {
    numbered(1)
}

pub(super) fn numbered(number: u64) -> Arc<Gate> {
    Arc::new(Gate::new(number, Arc::new(tidegate_plugin::Publisher::new("p".into(), None, 60, 5))))
}

pub(super) fn limits() -> Limits {
    Limits {
        messages: 100,
        bytes: 1 << 20,
        delay: 100,
        brief: 20,
        progress: 10_000,
        offline_messages: 10,
        offline_bytes: 1 << 20,
        measured: true,
    }
}

pub(super) fn entries(qos: QoS, count: u64, since: Millis) -> Vec<Entry> {
    (0..count).map(|number| entry(qos, since, number)).collect()
}

pub(super) fn take(queue: &Queue, most: usize, now: Millis) -> Vec<Entry> {
    let mut out = Vec::new();
    queue.pop(&mut out, most, usize::MAX, usize::MAX, now, &limits());
    out
}

#[test]
fn a_full_queue_holds_its_publishers_until_it_is_short() {
    let limits = Limits { messages: 28, ..limits() };
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    let gate = gate();
    assert!(!queue.push(entries(QoS::AtLeastOnce, 28, 1), 1, &limits).over);
    assert!(queue.push(entries(QoS::AtLeastOnce, 1, 1), 1, &limits).over);
    assert_eq!(queue.hold([(1, Arc::clone(&gate))].into_iter(), 1, &limits).count, 1);
    assert!(gate.held(1).is_some());
    let mut out = Vec::new();
    queue.pop(&mut out, 7, usize::MAX, usize::MAX, 2, &limits);
    assert!(gate.held(2).is_some(), "22 is not short");
    queue.pop(&mut out, 1, usize::MAX, usize::MAX, 2, &limits);
    assert!(gate.held(2).is_none());
    assert_eq!(gate.take_grant(), None, "it was full, not late");
}

#[test]
fn a_late_queue_says_how_much_may_come_when_it_lets_go() {
    let limits = Limits { messages: 10_000, ..limits() };
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    queue.push(entries(QoS::AtLeastOnce, 60, 1), 1, &limits);
    let mut out = Vec::new();
    let mut take_one = |now| queue.pop(&mut out, 1, usize::MAX, usize::MAX, now, &limits);
    (2..=41).for_each(&mut take_one); // one a millisecond: 100 in the time that a queue may take
    assert!(queue.push(entries(QoS::AtLeastOnce, 90, 41), 41, &limits).over);
    let gates: Vec<_> = (1..=3).map(numbered).collect();
    let held = gates.iter().map(|gate| (gate.number, Arc::clone(gate)));
    assert_eq!(queue.hold(held, 41, &limits), Holding { count: 3, began: true });
    gates[1].stand_in_line();
    gates[0].stand_in_line();
    (42..=120).for_each(&mut take_one);
    let left = queue.depth();
    assert!((25..=50).contains(&left), "{left}");
    for gate in &gates[..2] {
        assert_eq!(gate.held(120), None);
        let grant = gate.take_grant().expect("let go by a late queue");
        assert!((1..=25).contains(&grant), "{grant}");
        assert_eq!(gate.take_grant(), None, "said once");
    }
}

/// Publishers get their turns in the order in which they came, no more at once than there is room for.
#[test]
fn those_who_wait_for_a_slow_consumer_get_their_turns() {
    let limits = Limits { messages: 10_000, ..limits() };
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    let mut out = Vec::new();
    let mut now = 1;
    let mut take_one = |queue: &Queue| {
        now += 1;
        queue.pop(&mut out, 1, usize::MAX, usize::MAX, now, &limits);
        now
    };
    queue.push(entries(QoS::AtLeastOnce, 160, 1), 1, &limits);
    for _ in 0..40 {
        take_one(&queue);
    }
    let gates: Vec<_> = (1..=2_000).map(numbered).collect();
    let pairs = gates.iter().map(|gate| (gate.number, Arc::clone(gate)));
    assert_eq!(queue.hold(pairs, 41, &limits).count, 2_000);
    gates.iter().for_each(|gate| gate.stand_in_line());
    gates[3].leave();
    let free = || gates.iter().filter(|gate| gate.held(41).is_none()).count();
    let mut before = 0;
    while queue.depth() > 1 {
        take_one(&queue);
        let after = free();
        assert!(after - before <= 50, "{} at once", after - before);
        assert!(gates[..after].iter().all(|gate| gate.held(41).is_none()), "the first in line first");
        before = after;
    }
    assert!((40..=51).contains(&before), "{before}: as many as there is room for");
    // Nobody sent anything, and nothing is left that could be taken: they go on all the same.
    (0..100).for_each(|turn| queue.go_on(1000 + turn, &limits).open());
    assert_eq!(free(), 2_000);
    assert!(!queue.holds());
}

/// Those who are not in line keep the queue where nobody gets a turn, and where nobody is held: who waits goes all the same.
#[test]
fn nobody_waits_for_ever_while_others_go_on() {
    // 74 of 10,000 messages are late, 74 of 90 are also nearly full
    for messages in [10_000, 90] {
        nobody_waits_for_ever(&Limits { messages, ..limits() });
    }
}

fn nobody_waits_for_ever(limits: &Limits) {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    let (mut out, gates) = (Vec::new(), (1..=50).map(numbered).collect::<Vec<_>>());
    queue.push(entries(QoS::AtLeastOnce, 160, 1), 1, limits);
    for now in 2..=42 {
        queue.pop(&mut out, 1, usize::MAX, usize::MAX, now, limits);
    }
    let pairs = gates.iter().map(|gate| (gate.number, Arc::clone(gate)));
    assert_eq!(queue.hold(pairs, 42, limits).count, 50);
    gates.iter().for_each(|gate| gate.stand_in_line());
    // 119 wait; until 74 do, more is taken than comes, and then as much: 50 at 1,000 a second is where turns are given
    for now in 43..=3_000 {
        let come = u64::from(now > 87);
        queue.push(entries(QoS::AtLeastOnce, come, now), now, limits);
        queue.pop(&mut out, 1, usize::MAX, usize::MAX, now, limits);
        if now % 100 == 0 {
            queue.go_on(now, limits).open();
        }
    }
    assert_eq!(queue.depth(), 74);
    assert!(gates.iter().all(|gate| gate.held(3_000).is_none()));
}

#[test]
fn newcomers_are_held_where_others_are_and_the_exempt_only_where_it_is_full() {
    let limits = Limits { messages: 10_000, ..limits() };
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    let (first, newcomer, alarm) = (numbered(1), numbered(2), numbered(3));
    alarm.publisher.set_exempt(true);
    assert!(!queue.hold_newcomer(2, &newcomer, 1, &limits), "it holds nobody");
    queue.push(entries(QoS::AtLeastOnce, 100, 1), 1, &limits);
    let all = || [&first, &alarm].into_iter().map(|gate| (gate.number, Arc::clone(gate)));
    assert_eq!(queue.hold(all(), 1, &limits).count, 1);
    assert!(queue.hold_newcomer(2, &newcomer, 1, &limits));
    let held = |gate: &Gate| gate.held(1).is_some();
    assert_eq!((held(&first), held(&newcomer), held(&alarm)), (true, true, false));
    queue.push(entries(QoS::AtLeastOnce, 10_000, 1), 1, &limits);
    assert_eq!(queue.hold(all(), 1, &limits).count, 1);
    assert!(held(&alarm), "the queue is full");
}

#[test]
fn a_late_queue_holds_its_publishers_though_it_is_not_full() {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    assert!(!queue.push(entries(QoS::AtLeastOnce, 30, 1), 1, &limits()).over);
    assert!(queue.push(entries(QoS::AtLeastOnce, 1, 150), 150, &limits()).over);
}

#[test]
fn a_queue_longer_than_its_consumer_takes_in_time_holds_its_publishers() {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    queue.push(entries(QoS::AtLeastOnce, 60, 1), 1, &limits());
    for now in 2..=22 {
        take(&queue, 1, now); // one a millisecond
    }
    assert!(!queue.push(entries(QoS::AtLeastOnce, 40, 22), 22, &limits()).over, "79 take 79 ms");
    assert!(queue.push(entries(QoS::AtLeastOnce, 30, 22), 22, &Limits { messages: 1000, ..limits() }).over);
}

#[test]
fn what_waited_for_an_absent_consumer_holds_nobody() {
    let limits = Limits { offline_messages: 90, ..limits() };
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.push(entries(QoS::AtLeastOnce, 90, 1), 1, &limits);
    queue.connect(60_000);
    assert!(!queue.push(entries(QoS::AtLeastOnce, 5, 60_001), 60_001, &limits).over);
    take(&queue, 50, 60_002);
    assert!(!queue.push(entries(QoS::AtLeastOnce, 5, 60_003), 60_003, &limits).over, "40 old ones are left");
    take(&queue, 40, 60_004);
    assert!(
        queue.push(entries(QoS::AtLeastOnce, 40, 60_200), 60_200, &limits).over,
        "these came while it was there"
    );
}

#[test]
fn without_progress_a_queue_lets_go_and_drops_its_oldest() {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    let gate = gate();
    queue.push(entries(QoS::AtLeastOnce, 101, 1), 1, &limits());
    queue.hold([(1, Arc::clone(&gate))].into_iter(), 1, &limits());
    assert!(!queue.check_progress(9_000, &limits()));
    assert!(queue.check_progress(10_002, &limits()));
    assert!(gate.held(10_002).is_none());
    let pushed = queue.push(entries(QoS::AtLeastOnce, 1, 10_002), 10_002, &limits());
    assert_eq!((pushed.dropped, pushed.over, queue.depth()), (92, false, 10));
    queue.finished(Finished { count: 1, soonest: 1 }, 10_003);
    assert_eq!(queue.push(entries(QoS::AtLeastOnce, 100, 10_003), 10_003, &limits()).dropped, 0);
}

#[test]
fn a_fast_qos_0_queue_holds_briefly_each_time() {
    let queue = Queue::new(HoldPolicy::Briefly);
    queue.connect(1);
    let gate = gate();
    let hold = |now| queue.hold([(1, Arc::clone(&gate))].into_iter(), now, &limits());
    assert!(queue.push(entries(QoS::AtMostOnce, 200, 1), 1, &limits()).over);
    hold(1);
    assert!(gate.held(20).is_some());
    assert!(gate.held(21).is_none());
    assert!(queue.push(entries(QoS::AtMostOnce, 1, 30), 30, &limits()).over, "it hesitates");
    assert!(!queue.push(entries(QoS::AtMostOnce, 1, 10_002), 10_002, &limits()).over, "it is dead");
    take(&queue, 100, 10_003);
    hold(10_003);
    take(&queue, 1000, 10_004);
    assert!(gate.held(10_004).is_none(), "an empty queue lets go at once");
}

#[test]
fn a_slow_qos_0_queue_holds_nobody() {
    let queue = Queue::new(HoldPolicy::Briefly);
    queue.connect(1);
    queue.push(entries(QoS::AtMostOnce, 101, 1), 1, &limits());
    for now in 2..=42 {
        take(&queue, usize::from(now % 4 == 0), now); // one in four milliseconds: 400 for a full queue
    }
    assert!(!queue.push(entries(QoS::AtMostOnce, 100, 42), 42, &limits()).over);
}

#[test]
fn an_absent_consumer_keeps_the_newest_and_nothing_of_qos_0() {
    let queue = Queue::new(HoldPolicy::Briefly);
    queue.push(entries(QoS::AtLeastOnce, 15, 1), 1, &limits());
    queue.push(entries(QoS::AtMostOnce, 5, 1), 1, &limits());
    let kept: Vec<u64> = take(&queue, 99, 1).iter().map(|entry| entry.message.ordinal).collect();
    assert_eq!(kept, (5..15).collect::<Vec<_>>());
}

#[test]
fn a_publisher_that_reconnects_is_held_again() {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    let (old, new) = (gate(), gate());
    queue.push(entries(QoS::AtLeastOnce, 101, 1), 1, &limits());
    assert_eq!(queue.hold([(1, Arc::clone(&old))].into_iter(), 1, &limits()).count, 1);
    queue.hold([(1, Arc::clone(&new))].into_iter(), 1, &limits());
    queue.hold([(1, Arc::clone(&new))].into_iter(), 1, &limits());
    assert!(old.held(1).is_none() && new.held(1).is_some());
    take(&queue, 101, 2);
    assert!(new.held(2).is_none());
}

#[test]
fn what_comes_after_the_end_holds_nobody() {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    queue.clear();
    assert!(!queue.push(entries(QoS::AtLeastOnce, 200, 1), 1, &limits()).over);
}

#[test]
fn what_a_group_gave_is_not_dropped() {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    let group = Some(Arc::new(Group::new("$share/g/t".into(), 9)));
    let extra = Some(Arc::new(Extra { identifiers: [].into(), group }));
    let shared = |number| Entry { extra: extra.clone(), ..entry(QoS::AtLeastOnce, 1, number) };
    queue.push([shared(0), entry(QoS::AtLeastOnce, 1, 1), shared(2)], 1, &limits());
    queue.disconnect(&limits(), |_| true);
    let rest = (3..20).map(|number| entry(QoS::AtLeastOnce, 1, number));
    assert_eq!(queue.push(rest, 1, &limits()).dropped, 8);
    let left: Vec<u64> = take(&queue, 99, 1).iter().map(|entry| entry.message.ordinal).collect();
    assert_eq!(left, [[0, 2].to_vec(), (10..20).collect()].concat());
}

#[derive(Debug, Clone)]
enum Step {
    Push(u8, u8),
    Pop(u8, u8),
    Connect,
    Disconnect,
    Clear,
    Tick(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, any::<u8>()).prop_map(|(qos, count)| Step::Push(qos, count)),
        4 => any::<(u8, u8)>().prop_map(|(most, window)| Step::Pop(most, window)),
        1 => Just(Step::Connect),
        1 => Just(Step::Disconnect),
        1 => Just(Step::Clear),
        2 => any::<u16>().prop_map(Step::Tick),
    ]
}

proptest! {
    /// arrived = departed + dropped + waiting, bounds hold, order is kept, whatever happens.
    #[test]
    fn it_conserves(steps in prop::collection::vec(step(), 1..80), policy in 0..3_u8) {
        let policy = [HoldPolicy::WhileProgress, HoldPolicy::Briefly, HoldPolicy::Never][usize::from(policy)];
        let queue = Queue::new(policy);
        let (mut now, mut number, mut last) = (1, 0, None);
        let mut connected = false;
        let (mut booked, mut unwanted) = ([0; 3], 0);
        for step in steps {
            match step {
                Step::Push(qos, count) => {
                    let qos = QoS::from_bits(qos).unwrap();
                    let batch: Vec<_> = (0..count).map(|_| { number += 1; entry(qos, now, number) }).collect();
                    unwanted += queue.push(batch, now, &limits()).unwanted;
                }
                Step::Pop(most, window) => {
                    let mut out = Vec::new();
                    queue.pop(&mut out, most.into(), usize::MAX, window.into(), now, &limits());
                    let strong = out.iter().filter(|entry| entry.qos != QoS::AtMostOnce).count();
                    prop_assert!(out.len() <= most.into() && strong <= window.into());
                    queue.finished(Finished { count: out.len() as u64, soonest: 1 }, now);
                    for entry in out {
                        prop_assert!(last < Some(entry.message.ordinal));
                        last = Some(entry.message.ordinal);
                    }
                }
                Step::Connect => { queue.connect(now); connected = true; }
                Step::Disconnect => { queue.disconnect(&limits(), |_| true); connected = false; }
                Step::Clear => { queue.clear(); connected = false; }
                Step::Tick(time) => { now += u64::from(time); queue.check_progress(now, &limits()); }
            }
            let flow = queue.flow();
            prop_assert_eq!(flow.arrived, flow.departed + flow.dropped + queue.depth() as u64);
            prop_assert!(connected || queue.depth() <= limits().offline_messages);
            // the books agree with the queue
            if let Some(Stated { statement, waiting, age, .. }) = queue.statement(moment(now), 1, 0) {
                booked = [booked[0] + statement.reading.arrived, booked[1] + statement.reading.departed, booked[2] + statement.dropped];
                let fed: u64 = statement.feeders.iter().map(|(_, count)| u64::from(*count)).sum();
                prop_assert_eq!(fed, statement.reading.arrived);
                prop_assert_eq!((statement.reading.depth, waiting), (queue.depth() as u64, queue.depth() as u64));
                prop_assert_eq!(booked, [flow.arrived - unwanted, flow.departed, flow.dropped - unwanted]);
                let oldest = queue.0.lock().entries.oldest(|_| true).map_or(0, |since| now - since);
                prop_assert_eq!(age, Span::from_millis(oldest));
                prop_assert!(statement.reading.delay >= age);
            }
        }
    }
}
