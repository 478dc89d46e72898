//! The figures of a run that are compared and expected.

use std::borrow::Cow;

use super::waiting_at_end;
use crate::record::{ClassTotals, Latency, Run};
use crate::scenario::Scenario;

/// Whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// A figure of a run that is compared.
#[derive(Debug, Clone)]
pub struct Measure {
    /// Its name, the key in `BrokerResult::measures`.
    pub name: Cow<'static, str>,
    /// What it is, as the head of a column.
    pub title: Cow<'static, str>,
    /// Its unit; empty for a bare number.
    pub unit: &'static str,
    /// Which way is good.
    pub better: Better,
    read: Read,
}

#[derive(Debug, Clone)]
enum Read {
    Run(fn(&Run) -> Option<f64>),
    /// Of a class, by its place, and the first class.
    Class(usize, fn(&ClassTotals, &ClassTotals) -> Option<f64>),
}

impl Measure {
    /// Reads it from a run; none if the run does not know it.
    pub fn read(&self, run: &Run) -> Option<f64> {
        match self.read {
            Read::Run(read) => read(run),
            Read::Class(place, read) => read(run.classes.get(place)?, run.classes.first()?),
        }
    }
}

/// All figures of a run as a whole.
pub static MEASURES: [Measure; 41] = [
    rate("sent", "sent", |run| Some(run.rates.sent)),
    rate("accepted", "accepted", |run| Some(run.rates.accepted)),
    rate("delivered", "delivered", |run| Some(run.rates.delivered)),
    latency("p50", "latency p50", |run| known(&run.latency, |it| it.p50)),
    latency("p99", "latency p99", |run| known(&run.latency, |it| it.p99)),
    latency("max", "latency max", |run| known(&run.latency, |it| it.max)),
    latency("queue_wait_mean", "queueing delay, mean", |run| known(&run.queue_wait, |it| it.mean)),
    latency("queue_wait_p50", "queueing delay p50", |run| known(&run.queue_wait, |it| it.p50)),
    latency("queue_wait_p99", "queueing delay p99", |run| known(&run.queue_wait, |it| it.p99)),
    latency("queue_wait_max", "queueing delay max", |run| known(&run.queue_wait, |it| it.max)),
    count("withheld", "withheld as told", |run| run.withheld.map(|withheld| withheld.messages)),
    less("withheld_share", "withheld of what devices that follow want", "%", |run| {
        run.withheld.map(|withheld| 100.0 * withheld.share())
    }),
    less("advice_share", "announcements to devices for messages accepted", "%", |run| {
        run.withheld?;
        ratio(run.totals.announcements as f64, run.totals.accepted as f64).map(|share| 100.0 * share)
    }),
    more("processed", "processed", "", |run| Some(processed(run))),
    more("processed_share", "processed of what was possible", "", |run| {
        ratio(processed(run), run.control.limit?)
    }),
    more("delivered_share", "processed of the consumers' capacity", "", |run| {
        ratio(processed(run), run.control.capacity?)
    }),
    count("mean_depth", "mean queue length", |run| run.control.mean_depth),
    less("mean_interval", "mean send interval", "s", |run| run.control.mean_interval),
    less("max_interval", "longest send interval", "s", |run| run.control.max_interval),
    count("mean_instances", "mean instances", |run| run.control.mean_instances),
    less("settle", "time to settle", "s", |run| run.control.settle),
    count("swing", "swing once settled", |run| run.control.swing),
    more("fairness", "least fairness of a class", "", |run| {
        run.classes.iter().filter_map(|class| class.fairness).min_by(f64::total_cmp)
    }),
    count("lost", "messages lost", |run| Some(run.totals.lost as f64)),
    less("lost_share", "lost", "%", |run| {
        ratio(run.totals.lost as f64, run.totals.expected as f64).map(|share| 100.0 * share)
    }),
    count("undelivered", "not delivered yet", |run| Some(run.totals.undelivered as f64)),
    count("duplicates", "duplicates", |run| Some(run.totals.duplicates as f64)),
    count("repeated", "repeated after a reconnect", |run| Some(run.totals.repeated as f64)),
    count("out_of_order", "out of order", |run| Some(run.totals.out_of_order as f64)),
    count("refused", "refused with a reason", |run| Some(run.totals.refused as f64)),
    count("unsent", "due and not sent", |run| Some(run.totals.unsent as f64)),
    count("outstanding", "sent and not there in the end", |run| Some(run.totals.outstanding as f64)),
    count("waiting", "waiting at the end", |run| Some(waiting_at_end(run) as f64)),
    count("disconnects", "connections broken", |run| Some(run.totals.disconnects as f64)),
    count("failed_connects", "connection attempts failed", |run| Some(run.totals.failed_connects as f64)),
    less("connect", "connecting", "s", |run| Some(run.connect_seconds)),
    count("drained", "delivered afterwards", |run| Some(drained(run) as f64)),
    less("drain", "waiting afterwards", "s", |run| Some(run.drain_seconds)),
    count("cpu", "processors used", |run| run.broker_use.map(|used| used.cpu)),
    less("rss", "memory", "MB", |run| run.broker_use.map(|used| used.rss as f64 / 1e6)),
    count("generator_cpu", "processors of the generator", |run| Some(run.generator_use.cpu)),
];

type OfClass = fn(&ClassTotals, &ClassTotals) -> Option<f64>;

/// The figures of each class: the end of the name, what it is, its unit, which way is good.
const CLASS_MEASURES: [(&str, &str, &str, Better, OfClass); 9] = [
    ("accepted", "accepted", "/s", Better::Higher, |class, _| Some(class.rate)),
    ("times", "accepted by a device, against the first class", "×", Better::Higher, |class, first| {
        ratio(of_a_device(class), of_a_device(first))
    }),
    ("fairness", "fairness", "", Better::Higher, |class, _| class.fairness),
    ("p50", "latency p50", "ms", Better::Lower, |class, _| known(&class.latency, |it| it.p50)),
    ("p99", "latency p99", "ms", Better::Lower, |class, _| known(&class.latency, |it| it.p99)),
    ("max", "latency max", "ms", Better::Lower, |class, _| known(&class.latency, |it| it.max)),
    ("queue_wait_p99", "queueing delay p99", "ms", Better::Lower, |class, _| {
        known(&class.queue_wait, |it| it.p99)
    }),
    ("lost", "messages lost", "", Better::Lower, |class, _| Some(class.lost as f64)),
    ("withheld_share", "withheld as told", "%", Better::Lower, |class, _| {
        class.withheld.map(|withheld| 100.0 * withheld.share())
    }),
];

/// All figures of these runs, those of each class included if there are several.
pub fn measures_of<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<Measure> {
    let most = runs.max_by_key(|run| run.classes.len());
    let names: Vec<&str> =
        most.iter().flat_map(|run| &run.classes).map(|class| class.name.as_str()).collect();
    let classes = if names.len() > 1 { of_classes(&names) } else { Vec::new() };
    MEASURES.iter().cloned().chain(classes).collect()
}

/// The names of all figures of a scenario.
pub fn measure_names(scenario: &Scenario) -> Vec<String> {
    let names: Vec<&str> = scenario.classes.iter().map(|class| class.name.as_str()).collect();
    let all = MEASURES.iter().cloned().chain(of_classes(&names));
    all.map(|measure| measure.name.into_owned()).collect()
}

/// A figure by its name; none if the run does not know it.
pub fn value(run: &Run, name: &str) -> Option<f64> {
    let names: Vec<&str> = run.classes.iter().map(|class| class.name.as_str()).collect();
    match MEASURES.iter().find(|measure| measure.name == name) {
        Some(measure) => measure.read(run),
        None => of_classes(&names).iter().find(|measure| measure.name == name)?.read(run),
    }
}

fn of_classes(names: &[&str]) -> Vec<Measure> {
    let of = |(place, name): (usize, &&str)| {
        CLASS_MEASURES.map(|(end, title, unit, better, read)| Measure {
            name: format!("class.{name}.{end}").into(),
            title: format!("{name}: {title}").into(),
            unit,
            better,
            read: Read::Class(place, read),
        })
    };
    names.iter().enumerate().flat_map(of).collect()
}

/// First deliveries after the measured part.
pub fn drained(run: &Run) -> u64 {
    // Times are rounded.
    run.intervals.iter().filter(|one| one.t > run.duration + 1e-6).map(|one| one.delivered).sum()
}

/// First deliveries in the measured part.
fn processed(run: &Run) -> f64 {
    (run.rates.delivered * run.duration).round()
}

fn of_a_device(class: &ClassTotals) -> f64 {
    class.rate / f64::from(class.devices.max(1))
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn known(latency: &Latency, read: fn(&Latency) -> f64) -> Option<f64> {
    (latency.count > 0).then(|| read(latency))
}

const fn rate(name: &'static str, title: &'static str, read: fn(&Run) -> Option<f64>) -> Measure {
    more(name, title, "/s", read)
}

const fn latency(name: &'static str, title: &'static str, read: fn(&Run) -> Option<f64>) -> Measure {
    less(name, title, "ms", read)
}

const fn count(name: &'static str, title: &'static str, read: fn(&Run) -> Option<f64>) -> Measure {
    less(name, title, "", read)
}

const fn more(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    read: fn(&Run) -> Option<f64>,
) -> Measure {
    let (name, title) = (Cow::Borrowed(name), Cow::Borrowed(title));
    Measure { name, title, unit, better: Better::Higher, read: Read::Run(read) }
}

const fn less(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    read: fn(&Run) -> Option<f64>,
) -> Measure {
    let (name, title) = (Cow::Borrowed(name), Cow::Borrowed(title));
    Measure { name, title, unit, better: Better::Lower, read: Read::Run(read) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::record::{Control, Rates, Totals};

    #[test]
    fn no_two_measures_have_the_same_name() {
        let mut names: Vec<&str> = MEASURES.iter().map(|measure| measure.name.as_ref()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn shares_are_of_what_was_possible() {
        let control = Control { limit: Some(500.0), capacity: Some(800.0), ..Control::default() };
        let rates = Rates { delivered: 40.0, ..Rates::default() };
        let totals = Totals { disconnects: 3, unsent: 4, ..Totals::default() };
        let run = Run { control, rates, totals, duration: 10.0, ..Run::default() };
        let of = |name: &str| value(&run, name);
        assert_eq!(
            (of("processed"), of("processed_share"), of("delivered_share")),
            (Some(400.0), Some(0.8), Some(0.5))
        );
        assert_eq!((of("disconnects"), of("unsent")), (Some(3.0), Some(4.0)));
        assert_eq!((of("queue_wait_p99"), of("settle"), of("nonsense")), (None, None, None));
        assert_eq!(value(&Run::default(), "processed_share"), None);
    }

    #[test]
    fn figures_of_classes_have_the_names_of_their_classes() {
        let class = |name: &str, devices, rate, fairness| ClassTotals {
            name: name.to_owned(),
            devices,
            rate,
            fairness: Some(fairness),
            ..ClassTotals::default()
        };
        let classes = vec![class("sensor", 10, 20.0, 0.9), class("gold", 5, 40.0, 0.8)];
        let run = Run { classes, ..Run::default() };
        assert_eq!(value(&run, "class.gold.times"), Some(4.0));
        assert_eq!((value(&run, "class.sensor.accepted"), value(&run, "fairness")), (Some(20.0), Some(0.8)));
        assert_eq!((value(&run, "class.gold.p99"), value(&run, "class.silver.p99")), (None, None));
        let all = measures_of(std::iter::once(&run));
        assert_eq!(all.len(), MEASURES.len() + 2 * CLASS_MEASURES.len());
    }
}
