//! The page about one run.

use tidegate::sim::plot::svg::{escape, put};

use super::chart::{Across, Plot, Series};
use super::side_by_side::{distribution, per_second, percentiles, timeline};
use super::{finding, page, words};
use crate::compare::{value, waiting_at_end};
use crate::record::{ClassTotals, Interval, Run, Use};

/// Figures that a run has if they make sense for its scenario.
const CONTROL: [(&str, &str); 12] = [
    ("queue_wait_mean", "Queueing delay, mean, ms"),
    ("queue_wait_p50", "Queueing delay p50, ms"),
    ("queue_wait_p99", "Queueing delay p99, ms"),
    ("queue_wait_max", "Queueing delay max, ms"),
    ("processed_share", "Processed of what was possible"),
    ("delivered_share", "Processed of the consumers' capacity"),
    ("mean_depth", "Mean queue length"),
    ("mean_interval", "Mean send interval, s"),
    ("max_interval", "Longest send interval, s"),
    ("mean_instances", "Mean instances"),
    ("settle", "Time to settle, s"),
    ("swing", "Swing once settled"),
];

type Value = (&'static str, fn(&Interval) -> Option<f64>);

/// A page about one run.
pub fn run_html(run: &Run) -> String {
    let title = format!("{} on {}", words::capital(&run.scenario), run.broker.name);
    let mut body = format!("<header>\n<h1>{}</h1>\n<p>{}</p>\n", escape(&title), escape(&run.about));
    body.push_str(&page::facts(&[
        ("Started", run.started.clone()),
        ("Measured for", words::duration(run.duration)),
        ("Machine", page::machine(&run.machine)),
        ("Broker", format!("{} {} at {}", run.broker.name, run.broker.version, run.broker.address)),
        ("Generator", run.generator.clone()),
        ("Seed", run.seed.to_string()),
    ]));
    body.push_str("</header>\n");
    let named = || std::iter::once((run.broker.name.clone(), run));
    body.push_str(&page::warnings(&page::warnings_of(named())));
    let finding = finding::finding(std::slice::from_ref(run));
    let class = if finding.good { "good" } else { "bad" };
    put(
        &mut body,
        format_args!(
            "<section>\n<h2>What became of the messages</h2>\n<ul class=\"findings\"><li class=\"{class}\">{}{}</li></ul>\n",
            escape(&finding.long),
            finding
                .limits
                .map(|limits| format!(" {}.", escape(&words::capital(&limits))))
                .unwrap_or_default()
        ),
    );
    body.push_str(&figures(run));
    body.push_str(&page::notes(named()));
    body.push_str("</section>\n");
    body.push_str(&plots(run));
    body.push_str(&classes(&run.classes));
    body.push_str("<section>\n<h2>How it was run</h2>\n");
    body.push_str(&page::configuration(&run.broker));
    body.push_str(&page::folded("The scenario", &format!("<pre>{}</pre>\n", escape(&run.scenario_file))));
    body.push_str("</section>\n");
    page::page(&title, &body)
}

/// Everything that was counted, as names and figures.
pub(super) fn rows(run: &Run) -> Vec<(&'static str, String)> {
    let (totals, rates, latency) = (&run.totals, &run.rates, &run.latency);
    let both = |number, rate| format!("{} ({})", words::count(number), words::quantity(rate, "/s"));
    let used =
        |used: &Use| format!("{} processors, {} of memory", words::figure(used.cpu), words::memory(used.rss));
    let mut rows = vec![
        ("Sent", both(totals.sent, rates.sent)),
        ("Accepted", both(totals.accepted, rates.accepted)),
        ("Delivered", both(totals.delivered, rates.delivered)),
        ("Lost", words::count(totals.lost)),
        ("Not delivered yet when waiting ended", words::count(totals.undelivered)),
        ("Duplicates", words::count(totals.duplicates)),
        ("Repeated after a reconnect", words::count(totals.repeated)),
        ("Out of order", words::count(totals.out_of_order)),
        ("Delivered though never acknowledged", words::count(totals.unaccepted)),
        ("Foreign or unreadable", words::count(totals.foreign)),
        ("Refused with a reason", words::count(totals.refused)),
        ("Waiting at the end", words::count(waiting_at_end(run))),
        ("Delivered afterwards", words::drain(run)),
        ("Due and not sent", words::count(totals.unsent)),
        ("Sent and not there in the end", words::count(totals.outstanding)),
    ];
    let shares = [
        ("Latency p50", latency.p50),
        ("Latency p90", latency.p90),
        ("Latency p99", latency.p99),
        ("Latency p99.9", latency.p999),
        ("Latency max", latency.max),
    ];
    if latency.count > 0 {
        rows.extend(shares.map(|(name, value)| (name, words::quantity(value, "ms"))));
    }
    rows.extend(run.withheld.map(|withheld| ("Withheld as told", words::restraint(&withheld))));
    for (name, title) in CONTROL {
        let instead = words::instead(name, std::slice::from_ref(run)).map(str::to_owned);
        rows.extend(value(run, name).map(words::figure).or(instead).map(|words| (title, words)));
    }
    let connections = format!(
        "{}, {} failed, {} broken, in {}",
        words::count(totals.connects),
        words::count(totals.failed_connects),
        words::count(totals.disconnects),
        words::duration(run.connect_seconds)
    );
    rows.push(("Connections", connections));
    if !run.farewells.is_empty() {
        let reasons = run.farewells.iter().map(finding::reason).collect::<Vec<_>>();
        rows.push(("Connections ended by the broker", reasons.join(", ")));
    }
    rows.push(("Broker used", run.broker_use.as_ref().map_or_else(|| "not known".to_owned(), used)));
    rows.push(("Generator used", used(&run.generator_use)));
    rows
}

fn figures(run: &Run) -> String {
    let mut out = String::from("<table class=\"figures pairs\">\n<tbody>\n");
    for (name, value) in rows(run) {
        put(&mut out, format_args!("<tr><th scope=\"row\">{name}</th><td>{}</td></tr>\n", escape(&value)));
    }
    out.push_str("</tbody>\n</table>\n");
    out
}

fn plots(run: &Run) -> String {
    let over_time = |title: &str, unit, least, values: &[Value]| {
        let line = |(name, value): &Value| Series { name: (*name).to_owned(), points: timeline(run, value) };
        let series = values.iter().map(line).collect();
        let across = Across::Seconds { measured: run.duration };
        Plot { title: title.to_owned(), unit, across, least, series }.figure()
    };
    let rates: &[Value] = &[
        ("sent", |i| per_second(i.sent, i)),
        ("accepted", |i| per_second(i.accepted, i)),
        ("delivered", |i| per_second(i.delivered, i)),
        ("right", |i| i.limit),
    ];
    let clients: &[Value] =
        &[("devices", |i| Some(f64::from(i.devices))), ("consumers", |i| Some(f64::from(i.consumers)))];
    let mut out = String::from("<section>\n<h2>Over time</h2>\n<div class=\"plots\">\n");
    out.push_str(&over_time("Rates", "messages/s", None, rates));
    out.push_str(&over_time(
        "Waiting",
        "messages owed to consumers",
        None,
        &[("waiting", |i| Some(i.waiting as f64))],
    ));
    let delays: &[Value] = &[("p50", |i| i.p50), ("p99", |i| i.p99), ("max", |i| i.max)];
    out.push_str(&over_time("Delay", "ms", Some(0.01), delays));
    let waits: &[Value] = &[("p50", |i| i.wait_p50), ("p99", |i| i.wait_p99)];
    out.push_str(&over_time("Queueing delay", "ms", Some(1.0), waits));
    out.push_str(&distribution(vec![Series { name: run.broker.name.clone(), points: percentiles(run) }]));
    out.push_str(&over_time("Connected", "clients", Some(1.0), clients));
    out.push_str(&over_time(
        "Rate that following devices use",
        "messages/s each",
        None,
        &[("rate", |i| i.rate)],
    ));
    let processors: &[Value] = &[("broker", |i| i.broker_cpu), ("generator", |i| Some(i.generator_cpu))];
    out.push_str(&over_time("Processors used", "", None, processors));
    let memory: &[Value] = &[("broker", |i| i.broker_rss.map(|rss| rss as f64 / 1e6))];
    out.push_str(&over_time("Memory of the broker", "MB", None, memory));
    out.push_str("</div>\n<p class=\"remark\">In the shaded parts nothing is measured: the generator warms up or waits for the rest, and curves may leave the scale.</p>\n</section>\n");
    out
}

fn classes(classes: &[ClassTotals]) -> String {
    // one class says nothing that the totals don't
    if classes.len() < 2 {
        return String::new();
    }
    let heads = [
        "Class",
        "Devices",
        "Sent",
        "Accepted",
        "Accepted a second",
        "Refused",
        "Lost",
        "Latency p99",
        "Queueing p99",
        "Fairness",
    ];
    let mut out =
        String::from("<section>\n<h2>Classes of devices</h2>\n<table class=\"figures\">\n<thead><tr>");
    heads.iter().for_each(|head| put(&mut out, format_args!("<th scope=\"col\">{head}</th>")));
    out.push_str("</tr></thead>\n<tbody>\n");
    for class in classes {
        let cells = [
            words::count(u64::from(class.devices)),
            words::count(class.sent),
            words::count(class.accepted),
            words::quantity(class.rate, "/s"),
            words::count(class.refused),
            words::count(class.lost),
            words::quantity(class.latency.p99, "ms"),
            words::quantity(class.queue_wait.p99, "ms"),
            class.fairness.map_or_else(|| "not known".to_owned(), words::figure),
        ];
        put(&mut out, format_args!("<tr><th scope=\"row\">{}</th>", escape(&class.name)));
        for (head, cell) in heads.iter().skip(1).zip(cells) {
            put(&mut out, format_args!("<td data-of=\"{head}\">{}</td>", escape(&cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
    out
}
