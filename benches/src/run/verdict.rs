//! The end of a run: what was lost, and what a reader must know.

use crate::clock::Nanos;
use crate::codec::{Version, reasons};
use crate::device::{Done, Sending};
use crate::process::cores;
use crate::record::{ClassTotals, Farewell, Note, NoteKind, Totals, Withheld};
use crate::scenario::Scenario;
use crate::stats::{Distribution, get, in_short};
use crate::world::World;

use super::owing::Owing;
use super::sampler::Measured;

/// Sums up counters and checks; the totals of each class besides. Whoever got something new since `cut_off` was still
/// getting messages when waiting ended.
pub(super) fn totals(
    world: &World,
    devices: &[Done],
    owing: Owing,
    latencies: &[Distribution],
    cut_off: Option<Nanos>,
) -> (Totals, Vec<ClassTotals>) {
    let counts = &world.counts;
    let mut totals = Totals {
        sent: get(&counts.sent),
        accepted: get(&counts.accepted),
        refused: get(&counts.refused),
        resent: get(&counts.resent),
        unsent: owing.unsent,
        outstanding: owing.outstanding,
        foreign: get(&counts.foreign),
        announcements: get(&counts.announcements),
        connects: get(&counts.connects),
        failed_connects: get(&counts.failed_connects),
        disconnects: get(&counts.disconnects),
        ..Totals::default()
    };
    let mut classes: Vec<ClassTotals> = Vec::new();
    for (settings, latencies) in world.scenario.classes.iter().zip(latencies) {
        let (name, devices, latency) = (settings.name.clone(), settings.devices, in_short(latencies));
        classes.push(ClassTotals { name, devices, latency, ..ClassTotals::default() });
    }
    for (class, totals) in classes.iter_mut().enumerate() {
        let mine: Vec<&Done> = devices.iter().filter(|device| device.class == class).collect();
        totals.sent = mine.iter().map(|device| device.sent).sum();
        totals.accepted = mine.iter().map(|device| device.accepted).sum();
        totals.refused = mine.iter().map(|device| device.refused).sum();
    }
    for recipient in &world.recipients {
        let stream = recipient.stream.lock();
        totals.delivered += stream.delivered;
        totals.duplicates += stream.duplicates;
        totals.repeated += stream.repeated;
        totals.out_of_order += stream.out_of_order;
    }
    for (flow, sending) in devices.iter().flat_map(by_flow) {
        for stream in &world.flows[flow as usize].streams {
            let recipient = &world.recipients[*stream as usize];
            let always_there = recipient.always_there.load(std::sync::atomic::Ordering::Relaxed);
            let stream = recipient.stream.lock();
            let still_getting = cut_off.is_some_and(|since| stream.last_new >= since);
            let verdict = stream.verdict(flow, &sending.accepted, always_there, still_getting);
            totals.expected += verdict.expected;
            totals.lost += verdict.lost;
            totals.undelivered += verdict.undelivered;
            totals.unaccepted += verdict.unaccepted;
            classes[usize::from(world.flows[flow as usize].class)].lost += verdict.lost;
        }
    }
    (totals, classes)
}

/// What each class got in the measured part of so many seconds.
pub(super) fn measure_classes(
    world: &World,
    devices: &[Done],
    waits: &[Distribution],
    duration: f64,
    classes: &mut [ClassTotals],
) {
    let settings = &world.scenario.classes;
    // A class is equal to the one that it names, and to all others that name it.
    let group = |class: usize| settings[class].fair_with.as_ref().unwrap_or(&settings[class].name);
    let comes_and_goes = |class: usize| settings[class].patterned && world.scenario.workload.is_some();
    for (class, totals) in classes.iter_mut().enumerate() {
        let mine = devices.iter().filter(|device| device.class == class);
        totals.measured = mine.map(|device| device.measured).sum();
        totals.rate = if duration > 0.0 { totals.measured as f64 / duration } else { 0.0 };
        totals.queue_wait = waits.get(class).map(in_short).unwrap_or_default();
        totals.withheld = withheld(devices.iter().filter(|device| device.class == class));
        let equals = devices.iter().filter(|device| group(device.class) == group(class));
        totals.fairness = match equals.clone().any(|device| comes_and_goes(device.class)) {
            true => None,
            false => jain(equals.map(|device| device.measured as f64)),
        };
    }
}

/// What devices were talked out of sending; none if none of them follows.
pub(super) fn withheld<'a>(devices: impl Iterator<Item = &'a Done>) -> Option<Withheld> {
    devices.filter_map(|device| device.withheld).reduce(|mut sum, one| {
        sum.add(&one);
        sum
    })
}

/// How often the target said why it ends a connection, by reason.
pub(super) fn farewells(world: &World) -> Vec<Farewell> {
    let all = world.farewells.lock();
    let one = |(code, (count, words)): (&u8, &(u64, String))| Farewell {
        code: *code,
        meaning: reasons::meaning(Version::V5, *code).unwrap_or_default().to_owned(),
        words: words.clone(),
        count: *count,
    };
    all.iter().map(one).collect()
}

/// What a reader must know to judge the figures.
pub(super) fn notes(world: &World, measured: Option<&Measured>, joined: bool) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |kind: NoteKind, text: String| notes.push(Note { kind, text });
    if let Some(text) = too_late(world) {
        note(NoteKind::GeneratorLimited, text);
    }
    if let Some(measured) = measured {
        let all = cores() as f64;
        if measured.generator.cpu > 0.9 * all {
            let used = measured.generator.cpu;
            note(NoteKind::GeneratorLimited, format!("the generator used {used:.2} of {all} processors"));
        } else if measured.idle.is_some_and(|idle| idle < 0.05 * all) {
            let text = format!(
                "the {all} processors had nothing left: the generator used {:.2} of them beside the broker",
                measured.generator.cpu
            );
            note(NoteKind::MachineSaturated, text);
        }
        if let Some(text) = never_held(world, measured) {
            note(NoteKind::GeneratorLimited, text);
        }
    }
    let partly =
        world.recipients.iter().filter(|one| !one.always_there.load(std::sync::atomic::Ordering::Relaxed));
    let partly = partly.count();
    if partly > 0 {
        let text = format!(
            "{partly} consumers were not there all the time: gaps are looked for between what they got"
        );
        note(NoteKind::Check, text);
    }
    let downgraded = get(&world.counts.downgraded);
    if let Some(example) = world.downgrade.lock().clone() {
        let text = format!("{downgraded} subscriptions were granted less than they asked for: {example}");
        note(NoteKind::Check, text);
    }
    if !joined {
        note(
            NoteKind::Check,
            "some devices did not end in time: what they sent is not checked for loss".to_owned(),
        );
    }
    if let Some(told) = world.told.lock().note() {
        note(told.kind, told.text);
    }
    if get(&world.counts.disconnects) > 0 {
        let words = world.trouble.lock().clone().unwrap_or_default();
        let count = get(&world.counts.disconnects);
        note(NoteKind::Info, format!("{count} connections were lost, the last one: {words}"));
    }
    notes
}

fn too_late(world: &World) -> Option<String> {
    let (late, sent) = (get(&world.counts.late), get(&world.counts.sent));
    let share = late as f64 / sent.max(1) as f64;
    (share > 0.01).then(|| {
        let worst = get(&world.counts.latest) as f64 / 1e6;
        let percent = 100.0 * share;
        format!("{percent:.1}% of the messages went out more than 10 ms late though no broker held them up, at worst {worst:.0} ms")
    })
}

/// A closed loop without acknowledgements is held back only by full sockets; if there were hardly any, it was the limit.
fn never_held(world: &World, measured: &Measured) -> Option<String> {
    let closed =
        |scenario: &Scenario| scenario.classes.iter().all(|class| class.rate.is_none() && class.qos == 0);
    let (writes, blocked) = (get(&world.counts.writes), get(&world.counts.blocked));
    let seldom = (blocked as f64) < 0.01 * writes as f64;
    (closed(&world.scenario) && writes > 0 && seldom).then(|| {
        format!("the target took all that the generator could send ({:.0} a second)", measured.rates.sent)
    })
}

pub(super) fn by_flow(device: &Done) -> impl Iterator<Item = (u32, &Sending)> {
    let (first, flows) = &device.flows;
    flows.iter().enumerate().map(|(at, sending)| (*first + at as u32, sending))
}

/// Jain's index: 1 if all are the same, 1/n if one has everything; none without anything to share.
fn jain(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum, squares) = values.fold((0.0, 0.0, 0.0), |(count, sum, squares), value| {
        (count + 1.0, sum + value, squares + value * value)
    });
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn fairness() {
        assert_eq!(jain([2.0, 2.0, 2.0].into_iter()), Some(1.0));
        assert_eq!(jain([4.0, 0.0, 0.0, 0.0].into_iter()), Some(0.25));
        assert_eq!(jain([0.0].into_iter()), None);
    }
}
