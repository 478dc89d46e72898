#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_control::random::Seeded;

use super::*;
use crate::aggregate::{Added, Merged, Policy};
use crate::publish::slots::PolicyOf;

fn at(seconds: f64) -> Moment {
    Moment::from_secs_f64(seconds)
}

fn settings(policy: Policy) -> OutboxSettings {
    let slots = SlotSettings {
        policy: Arc::new(move |_| policy.clone()),
        most_topics: 10,
        most_bytes: 10_000,
        min_interval: Span::ZERO,
        deadband: 0.0,
    };
    OutboxSettings {
        slots,
        own_rate: None,
        growth: 1.1,
        urgent: 5,
        urgent_bytes: 1_000,
        urgent_memory: Span::from_secs(5),
        window: 4,
    }
}

/// A publisher with a broker that answers when it is told to.
struct Rig {
    outbox: Outbox,
    random: Seeded,
    now: Moment,
    ids: u16,
    /// Sent and not answered.
    flying: Vec<(u16, Message)>,
    policy: Arc<PolicyOf>,
}

impl Rig {
    fn new(settings: OutboxSettings) -> Self {
        let policy = settings.slots.policy.clone();
        let mut outbox = Outbox::new(settings);
        outbox.connected(100, usize::MAX, false);
        Self { outbox, random: Seeded::new(1), now: at(1.0), ids: 0, flying: Vec::new(), policy }
    }

    /// Offers a sample as a publisher does.
    fn offer(&mut self, topic: &str, sample: Sample) -> bool {
        let mut offer = self.outbox.offer(topic, sample);
        loop {
            offer = match offer {
                Offer::Done(taken) => return taken,
                Offer::Make(sample) => self.outbox.made(topic, (self.policy)(topic).make(), sample),
                Offer::Work(job) => {
                    let finished = job.run();
                    let taken = finished.is_taken();
                    assert!(self.outbox.finish(finished, self.now).1.is_none());
                    Offer::Done(taken)
                }
            }
        }
    }

    /// What to do now, with the work done.
    fn step(&mut self) -> Step {
        match self.outbox.step(self.now, &mut self.random) {
            Step::Work(job) => self.outbox.finish(job.run(), self.now).0,
            step => step,
        }
    }

    /// Sends all that may go now; what went, and when to look again.
    fn run(&mut self) -> (Vec<Message>, Option<Moment>) {
        let mut gone = Vec::new();
        loop {
            match self.step() {
                Step::Work(_) => panic!("the work is done"),
                Step::Send(message) => {
                    self.ids += 1;
                    self.outbox.sent(self.ids, self.now);
                    self.flying.push((self.ids, message.clone()));
                    gone.push(message);
                }
                Step::Wait(Some(moment)) if moment <= self.now => {}
                Step::Wait(wake) => return (gone, wake),
            }
        }
    }

    /// What goes within so many seconds from a broker that accepts at once, with the times.
    fn run_for(&mut self, seconds: f64) -> Vec<(f64, Message)> {
        let end = self.now + Span::from_secs_f64(seconds);
        let mut all = Vec::new();
        loop {
            let (gone, wake) = self.run();
            let went = !gone.is_empty();
            all.extend(gone.into_iter().map(|message| (self.now.as_secs_f64(), message)));
            self.answer_all(Outcome::Accepted);
            if went {
                continue;
            }
            match wake.filter(|wake| *wake < end) {
                Some(wake) => self.now = wake,
                None => break,
            }
        }
        self.now = end;
        all
    }

    fn answer(&mut self, place: usize, outcome: Outcome, hints: &Hints) -> Message {
        let (id, message) = self.flying.remove(place);
        self.outbox.answered(id, outcome, hints, self.now, &mut self.random);
        message
    }

    fn answer_all(&mut self, outcome: Outcome) {
        while !self.flying.is_empty() {
            self.answer(0, outcome, &Hints::default());
        }
    }

    fn tell(&mut self, text: &str) {
        self.outbox.announced(Source::Everybody, text.as_bytes(), self.now);
    }

    fn texts(gone: &[Message]) -> Vec<String> {
        gone.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned()).collect()
    }
}

#[test]
fn without_a_limit_every_sample_is_a_message() {
    let mut rig = Rig::new(settings(Policy::Latest));
    for n in 0..4 {
        assert!(rig.offer("t", n.into()));
        assert_eq!(Rig::texts(&rig.run().0), [n.to_string()]);
    }
    assert_eq!(rig.run().0, []);
    assert!(rig.offer("t", 4.into()) && rig.offer("t", 5.into()));
    assert_eq!(rig.run().0, [], "four are the window");
    rig.answer_all(Outcome::Accepted);
    assert_eq!(Rig::texts(&rig.run().0), ["5"]);
    let stats = rig.outbox.stats();
    assert_eq!((stats.replaced, stats.delivered_messages, stats.waiting), (1, 4, 1));
    assert!(stats.is_conserved());
}

/// 200 publishers that sample in step are told at the same moment to send a fifth of what they would: a message in four
/// seconds each, so that in step every other window of two seconds would hold twice its share.
#[test]
fn a_fleet_keeps_the_rate_spreads_and_discards_nothing() {
    const FLEET: u64 = 200;
    let (rate, seconds) = (0.25, 120.0);
    let (mut times, mut sum, mut offered_sum, mut count, mut offered) = (Vec::new(), 0.0, 0.0, 0, 0);
    for member in 0..FLEET {
        let mut rig = Rig::new(OutboxSettings { own_rate: Some(1.25), ..settings(Policy::Mean) });
        rig.random = Seeded::stream(3, member);
        let mut messages = Vec::new();
        for step in 0..(seconds * 2.0) as u32 {
            if step % 8 == 0 {
                rig.tell(&format!(r#"{{"v":1,"seq":{step},"rate":{rate},"ttl_ms":10000}}"#));
            }
            let value = f64::from(step).sin() * 10.0 + member as f64;
            (offered_sum, offered) = (offered_sum + value, offered + 1);
            rig.offer("temp", value.into());
            messages.extend(rig.run_for(0.5));
        }
        let on_time = messages.len();
        // Freed at the end: what is left goes too.
        rig.tell(r#"{"v":1,"seq":1000000,"rate":null}"#);
        messages.extend(rig.run_for(5.0));
        assert!(rig.outbox.stats().is_conserved());
        assert_eq!(rig.outbox.stats().delivered_samples, rig.outbox.stats().offered);
        times.extend(messages[..on_time].iter().map(|(time, _)| *time));
        for (_, message) in messages {
            let value: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
            let samples = value["count"].as_u64().unwrap();
            (sum, count) = (sum + value["mean"].as_f64().unwrap() * samples as f64, count + samples);
        }
    }
    assert_eq!(count, offered);
    assert!(
        (sum / count as f64 - offered_sum / offered as f64).abs() < 1e-9,
        "the mean is not that of the samples"
    );
    let expected = FLEET as f64 * rate * seconds;
    let share = times.len() as f64 / expected;
    assert!((0.95..=1.05).contains(&share), "{share} of the rate announced");
    times.sort_by(f64::total_cmp);
    let window = FLEET as f64 * rate * 2.0;
    let peak =
        times.iter().enumerate().map(|(n, start)| times[n..].partition_point(|time| *time < start + 2.0));
    let peak = peak.max().unwrap() as f64;
    assert!(peak <= 1.5 * window, "{peak} in two seconds, {window} is the share");
}

#[test]
fn a_minute_without_network_neither_blocks_nor_grows() {
    let policies = [Policy::Latest, Policy::Mean, Policy::Batch { samples: 50, bytes: 400 }];
    for policy in policies {
        let mut rig = Rig::new(settings(policy.clone()));
        rig.outbox.disconnected();
        for n in 0..6_000 {
            rig.offer(&format!("t/{}", n % 20), n.into());
            let _ = rig.outbox.offer_urgent("alarm", "x".into());
            assert!(rig.run().0.is_empty());
            assert!(rig.outbox.bytes() <= 10_000, "{policy:?}: {}", rig.outbox.bytes());
        }
        let stats = rig.outbox.stats();
        assert!(stats.is_conserved(), "{stats:?}");
        assert_eq!((stats.urgent_waiting, stats.urgent_refused), (5, 5_995));
        assert_eq!(stats.refused, 3_000, "ten of twenty topics fit");
        assert!(stats.waiting > 0);
        rig.outbox.connected(100, usize::MAX, false);
        rig.run_for(10.0);
        let stats = rig.outbox.stats();
        assert_eq!((stats.waiting, stats.urgent_waiting), (0, 0), "{policy:?}");
        assert!(stats.is_conserved());
    }
}

#[test]
fn alarms_keep_their_order_through_refusals_and_breaks() {
    let mut rig = Rig::new(OutboxSettings { urgent_memory: Span::ZERO, ..settings(Policy::Latest) });
    for text in ["a", "b", "c", "d", "e"] {
        rig.outbox.offer_urgent("alarm", text.into()).unwrap();
    }
    assert_eq!(rig.outbox.offer_urgent("alarm", "f".into()), Err(UrgentFull));
    rig.offer("t", 1.into());
    assert_eq!(Rig::texts(&rig.run().0), ["a", "1"], "one alarm at a time, before the samples");
    rig.answer(0, Outcome::PushedBack, &Hints { wait: Some(Span::from_secs(3)), ..Hints::default() });
    rig.answer(0, Outcome::Accepted, &Hints::default());
    assert_eq!(rig.run(), (vec![], Some(at(4.0))));
    rig.now = at(4.0);
    assert_eq!(Rig::texts(&rig.run().0), ["a"]);
    rig.answer_all(Outcome::Accepted);
    assert_eq!(Rig::texts(&rig.run().0), ["b"]);
    rig.outbox.disconnected();
    rig.outbox.connected(100, usize::MAX, true);
    assert_eq!(rig.run().0, [], "the session goes on: b is on its way");
    rig.answer_all(Outcome::Accepted);
    assert_eq!(Rig::texts(&rig.run().0), ["c"]);
    rig.outbox.disconnected();
    rig.flying.clear();
    rig.outbox.connected(100, usize::MAX, false);
    assert_eq!(Rig::texts(&rig.run().0), ["c"], "the session is lost: c goes again");
    rig.answer_all(Outcome::Accepted);
    assert_eq!(Rig::texts(&rig.run().0), ["d"]);
    rig.answer_all(Outcome::Rejected);
    assert_eq!(Rig::texts(&rig.run().0), ["e"]);
    rig.answer_all(Outcome::Accepted);
    let stats = rig.outbox.stats();
    assert_eq!((stats.urgent_delivered, stats.urgent_rejected, stats.urgent_refused), (4, 1, 1));
    assert!(stats.is_conserved());
}

/// A broker may be killed between its acknowledgement and the delivery.
#[test]
fn alarms_that_a_broker_may_have_forgotten_go_again() {
    let mut rig = Rig::new(settings(Policy::Latest));
    let alarms = |rig: &mut Rig, texts: &[&str]| {
        for text in texts {
            rig.outbox.offer_urgent("alarm", (*text).to_owned().into()).unwrap();
        }
        rig.run_for(0.1).iter().map(|(_, message)| String::from_utf8_lossy(&message.payload).into()).collect()
    };
    let all: Vec<String> = alarms(&mut rig, &["a", "b"]);
    assert_eq!(all, ["a", "b"]);
    rig.now += Span::from_secs(7);
    let all: Vec<String> = alarms(&mut rig, &["c", "d"]);
    assert_eq!(all, ["c", "d"]);
    // However long it is away: nothing was heard of it since.
    rig.outbox.disconnected();
    rig.now += Span::from_secs(600);
    rig.outbox.connected(100, usize::MAX, true);
    assert_eq!(rig.run().0, [], "it has its memory");
    rig.outbox.disconnected();
    rig.outbox.offer_urgent("alarm", "e".into()).unwrap();
    rig.outbox.connected(100, usize::MAX, false);
    assert_eq!(rig.outbox.stats().urgent_repeating, 2);
    assert_eq!(Rig::texts(&rig.run().0), ["c"]);
    assert_eq!(rig.outbox.stats().urgent_repeating, 2, "it is not acknowledged");
    rig.outbox.disconnected();
    rig.flying.clear();
    rig.outbox.connected(100, usize::MAX, false);
    let all: Vec<String> = alarms(&mut rig, &[]);
    assert_eq!(all, ["c", "d", "e"]);
    let stats = rig.outbox.stats();
    assert_eq!((stats.urgent_delivered, stats.urgent_repeated, stats.urgent_repeating), (5, 2, 0));
    assert!(stats.is_conserved());
}

#[test]
fn a_refused_message_goes_again_unless_a_newer_one_replaced_it() {
    let hints = Hints { rate: Some(Some(1.0)), wait: Some(Span::from_millis(500)), nonsense: 0 };
    let mut rig = Rig::new(settings(Policy::Latest));
    rig.offer("t", 1.into());
    rig.run();
    rig.offer("t", 2.into());
    rig.run();
    rig.answer(1, Outcome::Accepted, &Hints::default());
    rig.answer(0, Outcome::PushedBack, &hints);
    assert!(rig.run_for(10.0).is_empty(), "2 is there, 1 is of no use any more");
    assert_eq!(rig.outbox.stats().replaced, 1);
    let mut rig = Rig::new(settings(Policy::Mean));
    rig.offer("t", 1.into());
    rig.run();
    rig.answer(0, Outcome::PushedBack, &hints);
    rig.offer("t", 2.into());
    assert_eq!(rig.run().0, []);
    let went = rig.run_for(10.0);
    assert_eq!(went.len(), 2, "a mean counts whatever came later");
    assert!(went[0].0 >= 1.5 && went[1].0 - went[0].0 > 0.999);
    let stats = rig.outbox.stats();
    assert_eq!((stats.pushed_back, stats.rates_followed, stats.delivered_samples), (1, 1, 2));
}

/// Acknowledgements that tell another rate each time: the publisher keeps the rate, and an alarm does not wait for it.
#[test]
fn the_interval_of_an_accepted_message_is_no_pause() {
    let mut rig = Rig::new(settings(Policy::Mean));
    rig.offer("t", 0.into());
    rig.run();
    let mut sent = 0;
    for n in 0..1000 {
        let rate = if n % 2 == 0 { 0.25 } else { 0.26 };
        let hints = Hints { rate: Some(Some(rate)), wait: Some(Span::from_rate(rate)), nonsense: 0 };
        while !rig.flying.is_empty() {
            rig.answer(0, Outcome::Accepted, &hints);
        }
        rig.offer("t", n.into());
        rig.now += Span::from_secs(1);
        sent += rig.run().0.len();
    }
    assert!((245..=260).contains(&sent), "{sent} in a thousand seconds");
    rig.outbox.offer_urgent("alarm", "fire".into()).unwrap();
    assert_eq!(Rig::texts(&rig.run().0), ["fire"]);
}

/// docs/protocol.md: with an accepted message it asks for nothing more.
#[test]
fn a_wait_without_a_refusal_is_no_pause_either() {
    let mut rig = Rig::new(settings(Policy::Mean));
    rig.offer("t", 0.into());
    rig.run();
    let hints = Hints { rate: None, wait: Some(Span::from_secs(600)), nonsense: 0 };
    rig.answer(0, Outcome::Accepted, &hints);
    rig.offer("t", 1.into());
    assert_eq!(rig.run().0.len(), 1);
}

/// The newest sample takes the room of what it makes worthless: what must go again, and what waits beside the aggregate.
#[test]
fn the_newest_sample_has_the_room_of_the_older() {
    let mut with = settings(Policy::Latest);
    with.slots.most_bytes = 10;
    let mut rig = Rig::new(with);
    assert!(rig.offer("t", 11111111.into()));
    rig.run();
    rig.answer(0, Outcome::PushedBack, &Hints::default());
    assert!(rig.offer("t", 22222222.into()), "the first need not go again");
    assert_eq!((rig.outbox.stats().replaced, rig.outbox.bytes()), (1, 8));
    let Offer::Work(slow) = rig.outbox.offer("t", 33333333.into()) else { panic!("it is there") };
    assert!(rig.offer("t", 44444444.into()) && rig.offer("t", 55555555.into()), "the aggregate is on loan");
    assert!(rig.outbox.stats().is_conserved());
    rig.outbox.finish(slow.run(), rig.now);
    assert_eq!(
        Rig::texts(&rig.run_for(10.0).into_iter().map(|(_, one)| one).collect::<Vec<_>>()),
        ["55555555"]
    );
    assert!(rig.outbox.bytes() <= 10 && rig.outbox.stats().is_conserved());
    assert_eq!((rig.outbox.stats().replaced, rig.outbox.stats().refused), (4, 0));
}

/// What is on its way takes room as well.
#[test]
fn samples_under_way_count_for_the_bound() {
    let mut with = settings(Policy::Batch { samples: 1_000, bytes: 10_000 });
    with.slots.most_bytes = 1_000;
    let mut rig = Rig::new(with);
    for n in 0..500 {
        rig.offer(&format!("t/{}", n % 10), "twenty bytes or so..".into());
        if n % 7 == 0 {
            rig.run();
        }
        assert!(rig.outbox.bytes() <= 1_000, "{}", rig.outbox.bytes());
    }
    assert!(rig.outbox.stats().refused > 0 && rig.outbox.stats().is_conserved());
}

/// The buffer is full, and a sample comes that takes the place of another, or changes a mean: nothing grows.
#[test]
fn a_full_buffer_takes_what_does_not_grow() {
    let batch = Policy::Batch { samples: 2, bytes: 50 };
    for (policy, room) in [(Policy::Latest, 10), (Policy::Mean, 20), (batch, 20)] {
        let mut with = settings(policy.clone());
        with.slots.most_bytes = room;
        let mut rig = Rig::new(with);
        rig.outbox.disconnected();
        for n in 0..10 {
            assert!(rig.offer("t", 12345678.into()), "{policy:?}, {n}");
            assert!(rig.outbox.bytes() <= room, "{policy:?}");
        }
        assert!(!rig.offer("other", 12345678.into()), "{policy:?}: this would be more");
        assert!(rig.outbox.stats().is_conserved());
    }
}

/// The network takes a message and not the next one: what it took is told apart from what it did not.
#[test]
fn what_the_network_does_not_take_goes_again_alone() {
    let mut rig = Rig::new(settings(Policy::Mean));
    for topic in ["a", "b"] {
        assert!(rig.offer(topic, 1.into()));
    }
    let mut handed = || match rig.step() {
        Step::Send(message) => message.topic,
        _ => panic!("there is something to send"),
    };
    assert_eq!((&*handed(), &*handed()), ("a", "b"));
    rig.outbox.not_taken();
    rig.outbox.sent(1, rig.now);
    rig.outbox.answered(1, Outcome::Accepted, &Hints::default(), rig.now, &mut rig.random);
    assert_eq!(rig.outbox.stats().delivered_messages, 1);
    let Step::Send(again) = rig.step() else { panic!("b goes again") };
    rig.outbox.sent(2, rig.now);
    rig.outbox.answered(2, Outcome::Accepted, &Hints::default(), rig.now, &mut rig.random);
    assert_eq!((&*again.topic, rig.outbox.stats().delivered_messages), ("b", 2));
    assert!(rig.outbox.is_settled(rig.now) && rig.outbox.stats().is_conserved());
}

/// Counts samples, and panics at a number below zero.
#[derive(Default)]
struct Counting(u64);

impl Aggregate for Counting {
    fn add(&mut self, sample: Sample) -> Added {
        assert!(sample.number().unwrap() >= 0.0, "a test of panics");
        self.0 += 1;
        Added::Kept
    }

    fn take(&mut self) -> Option<Merged> {
        let samples = std::mem::take(&mut self.0);
        Some(Merged { payload: samples.to_string().into(), samples })
    }

    fn size(&self) -> usize {
        8
    }
}

/// Two threads offer samples of the same topic, and one of them takes its time: the other does not wait, and its sample is
/// not lost.
#[test]
fn samples_that_come_while_an_aggregate_works_wait_beside_it() {
    let mut rig = Rig::new(settings(Policy::own(|| Box::<Counting>::default())));
    assert!(rig.offer("t", 1.into()));
    let Offer::Work(slow) = rig.outbox.offer("t", 2.into()) else { panic!("it is there") };
    assert!(rig.offer("t", 3.into()) && rig.offer("t", 4.into()) && rig.offer("other", 5.into()));
    assert_eq!(rig.outbox.stats().waiting, 5);
    assert_eq!(Rig::texts(&rig.run().0), ["1"], "the other topic");
    assert!(rig.outbox.stats().is_conserved() && !rig.outbox.is_settled(rig.now));
    rig.outbox.finish(slow.run(), rig.now);
    assert!(rig.outbox.stats().is_conserved());
    assert_eq!(Rig::texts(&rig.run().0), ["4"]);
    rig.answer_all(Outcome::Accepted);
    assert_eq!((rig.outbox.stats().delivered_samples, rig.outbox.stats().waiting), (5, 0));
}

#[test]
fn an_aggregate_that_panics_costs_its_samples_only() {
    let mut rig = Rig::new(settings(Policy::own(|| Box::<Counting>::default())));
    assert!(rig.offer("t", 1.into()) && rig.offer("other", 1.into()));
    let Offer::Work(job) = rig.outbox.offer("t", (-1).into()) else { panic!("it is there") };
    assert!(rig.offer("t", 2.into()), "it waits beside it");
    assert!(rig.outbox.finish(job.run(), rig.now).1.is_some());
    let stats = rig.outbox.stats();
    assert_eq!((stats.dropped, stats.waiting, stats.is_conserved()), (3, 1, true));
    assert!(rig.offer("t", 3.into()));
    assert_eq!(Rig::texts(&rig.run().0), ["1", "1"], "the topic has begun anew");
    assert_eq!(rig.outbox.bytes(), 2 + 2 * 8, "what is under way, and two aggregates");
}

#[test]
fn a_deadband_widens_with_the_interval() {
    let mut with = settings(Policy::Latest);
    (with.slots.min_interval, with.slots.deadband) = (Span::from_secs(1), 0.5);
    let mut rig = Rig::new(with);
    rig.offer("t", 20.0.into());
    assert_eq!(rig.run().0.len(), 1);
    rig.offer("t", 20.4.into());
    assert_eq!(rig.run_for(5.0), [], "too small a change");
    rig.offer("t", 20.5.into());
    assert_eq!(rig.run_for(1.0).len(), 1);
    rig.offer("t", 25.0.into());
    rig.run_for(0.0);
    rig.offer("t", 30.0.into());
    assert_eq!(rig.run_for(0.1), [], "too soon");
    rig.run_for(1.0);
    // Held to one message in four seconds: the band is two wide now.
    rig.tell(r#"{"rate":0.25,"ttl_ms":30000}"#);
    rig.offer("t", 31.9.into());
    assert_eq!(rig.run_for(20.0), []);
    rig.offer("t", 32.0.into());
    assert_eq!(rig.run_for(5.0).len(), 1);
    // Free again: what waited within the wide band is news in the narrow one.
    rig.offer("t", 33.0.into());
    assert_eq!(rig.run_for(2.0), []);
    rig.tell(r#"{"rate":null}"#);
    assert_eq!(rig.run_for(2.0).len(), 1);
    assert!(rig.outbox.stats().is_conserved());
}

#[test]
fn an_old_rate_is_left_while_samples_wait() {
    let mut rig = Rig::new(OutboxSettings { own_rate: Some(2.0), ..settings(Policy::Latest) });
    rig.tell(r#"{"rate":0.01,"ttl_ms":10000}"#);
    let mut times = Vec::new();
    for _ in 0..300 {
        rig.offer("t", 1.into());
        times.extend(rig.run_for(0.5).into_iter().map(|(time, _)| time));
    }
    // 0.01 grows to 2 in 56 s; before that about 2 / (100 ln 1.1) messages' worth is 21.
    assert!(times.len() > 150 && times[0] > 20.0, "{} {:?}", times.len(), times.first());
    assert_eq!(rig.outbox.limit(rig.now).rate, Some(2.0));
}

#[test]
fn what_the_broker_would_never_take_is_not_sent_for_ever() {
    let mut rig = Rig::new(settings(Policy::Latest));
    rig.outbox.connected(100, 100, false);
    rig.offer("t", "x".repeat(200).into());
    rig.outbox.offer_urgent("t", "y".repeat(200).into()).unwrap();
    assert_eq!(rig.run().0, []);
    let stats = rig.outbox.stats();
    assert_eq!((stats.rejected_samples, stats.urgent_rejected, stats.waiting), (1, 1, 0));
}

#[test]
fn nonsense_is_ignored_and_counted() {
    let mut rig = Rig::new(settings(Policy::Latest));
    rig.tell(r#"{"seq":5,"rate":1}"#);
    rig.tell(r#"{"seq":4,"rate":0.5}"#);
    rig.tell("rubbish");
    rig.outbox.announced(Source::Client, b"", rig.now);
    let stats = rig.outbox.stats();
    assert_eq!((stats.rates_followed, stats.rates_stale, stats.nonsense), (1, 1, 1));
    assert_eq!(rig.outbox.limit(rig.now).rate, Some(1.0));
    for topic in ["", "a/+", "#", "nul\0"] {
        assert!(!rig.offer(topic, 1.into()));
        assert!(rig.outbox.offer_urgent(topic, "x".into()).is_err());
    }
    assert!(rig.outbox.stats().is_conserved());
}

#[derive(Debug, Clone)]
enum Op {
    Offer(u8, i32),
    Urgent,
    Run,
    Answer(u8, u8, Option<u16>),
    Break(bool),
    Tell(Option<f64>, u8),
    Later(u16),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..15u8, any::<i32>()).prop_map(|(topic, value)| Op::Offer(topic, value)),
        2 => Just(Op::Urgent),
        4 => Just(Op::Run),
        4 => (any::<u8>(), 0..3u8, any::<Option<u16>>()).prop_map(|(which, how, wait)| Op::Answer(which, how, wait)),
        1 => any::<bool>().prop_map(Op::Break),
        1 => (prop::option::of(0.001..100.0f64), any::<u8>()).prop_map(|(rate, seq)| Op::Tell(rate, seq)),
        3 => any::<u16>().prop_map(Op::Later),
    ];
    prop::collection::vec(op, 1..200)
}

proptest! {
    /// Whatever happens: nothing vanishes, nothing grows, and alarms are delivered in their order.
    #[test]
    fn the_books_balance(ops in ops(), policy in 0..3u8) {
        let policy = [Policy::Latest, Policy::Mean, Policy::Batch { samples: 5, bytes: 100 }][usize::from(policy)].clone();
        let mut rig = Rig::new(settings(policy));
        let (mut alarm, mut delivered) = (0, Vec::<u32>::new());
        for op in ops {
            match op {
                Op::Offer(topic, value) => { rig.offer(&format!("t/{topic}"), value.into()); }
                Op::Urgent => {
                    if rig.outbox.offer_urgent("alarm", alarm.to_string().into()).is_ok() { alarm += 1; }
                }
                Op::Run => { rig.run(); }
                Op::Answer(which, how, wait) => if !rig.flying.is_empty() {
                    let place = usize::from(which) % rig.flying.len();
                    let outcome = [Outcome::Accepted, Outcome::PushedBack, Outcome::Accepted][usize::from(how)];
                    let hints = Hints { wait: wait.map(|ms| Span::from_millis(ms.into())), ..Hints::default() };
                    let message = rig.answer(place, outcome, &hints);
                    if message.urgent && outcome == Outcome::Accepted {
                        let number = String::from_utf8_lossy(&message.payload).parse().unwrap();
                        // Some go twice, since the broker may have forgotten them.
                        if !message.repeated { delivered.push(number); }
                        prop_assert!(delivered.contains(&number));
                    }
                },
                Op::Break(resumed) => {
                    rig.outbox.disconnected();
                    rig.outbox.connected(100, usize::MAX, resumed);
                    if !resumed { rig.flying.clear(); }
                }
                Op::Tell(rate, seq) => {
                    let rate = rate.map_or("null".into(), |rate| rate.to_string());
                    rig.tell(&format!(r#"{{"seq":{seq},"rate":{rate}}}"#));
                }
                Op::Later(ms) => rig.now += Span::from_millis(ms.into()),
            }
            prop_assert!(rig.outbox.stats().is_conserved(), "{:?}", rig.outbox.stats());
            prop_assert!(rig.flying.len() <= 4);
            prop_assert!(rig.outbox.stats().urgent_repeating <= 5);
            prop_assert!(rig.outbox.bytes() <= 10_000 + 4 * 1_000);
        }
        prop_assert_eq!(delivered.clone(), (0..delivered.len() as u32).collect::<Vec<_>>());
    }
}
