//! The page about several brokers.

use tidegate::sim::plot::svg::{escape, put};

use super::chart::{self, Across, Bar, Plot, Series};
use super::page::{self, Warning};
use super::{finding, words};
use crate::compare::{Measure, measures_of};
use crate::record::{Broker, BrokerResult, Comparison, Interval, Run, ScenarioComparison, Summary};

/// A page about several brokers.
pub fn html(comparison: &Comparison) -> String {
    let title = title(comparison);
    let mut body = format!("<header>\n<h1>{}</h1>\n", escape(&title));
    body.push_str(&page::facts(&[
        ("Started", comparison.started.clone()),
        ("Took", words::duration(comparison.seconds)),
        ("Machine", page::machine(&comparison.machine)),
        ("Generator", comparison.generator.clone()),
        (
            "Brokers",
            words::list(&brokers(comparison).iter().map(|broker| titled(broker)).collect::<Vec<_>>()),
        ),
    ]));
    body.push_str("</header>\n");
    body.push_str(&page::warnings(&warnings(comparison)));
    if comparison.scenarios.len() > 1 {
        body.push_str(&overview(comparison));
    }
    let order = brokers(comparison);
    for part in &comparison.scenarios {
        body.push_str(&scenario(part, &order));
    }
    body.push_str(&configurations(comparison));
    page::page(&title, &body)
}

fn title(comparison: &Comparison) -> String {
    let mut names: Vec<String> = brokers(comparison).iter().map(|broker| broker.label()).collect();
    names.dedup();
    match comparison.scenarios.as_slice() {
        [] => "Nothing was run".to_owned(),
        [one] => format!("{} side by side: {}", words::capital(&one.scenario), words::list(&names)),
        _ => format!("Side by side: {}", words::list(&names)),
    }
}

/// Every broker once, in the order of the scenario that has most of them: one that can't run the first scenario keeps
/// its place, and its colour.
fn brokers(comparison: &Comparison) -> Vec<&Broker> {
    let mut parts: Vec<&ScenarioComparison> = comparison.scenarios.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.brokers.len()));
    let mut known: Vec<&Broker> = Vec::new();
    for result in parts.into_iter().flat_map(|part| &part.brokers) {
        if !known.iter().any(|broker| is_same(broker, &result.broker)) {
            known.push(&result.broker);
        }
    }
    known
}

fn is_same(one: &Broker, other: &Broker) -> bool {
    (&one.name, &one.variant, &one.version) == (&other.name, &other.variant, &other.version)
}

fn titled(broker: &Broker) -> String {
    format!("{} {}", broker.label(), broker.version).trim_end().to_owned()
}

fn warnings(comparison: &Comparison) -> Vec<Warning> {
    let unfinished = comparison.unfinished.iter().map(|words| Warning {
        heading: "Not finished".to_owned(),
        meaning: format!("{}.", words::capital(words)),
        places: Vec::new(),
    });
    let missing = comparison.missing.iter().map(|missing| Warning {
        heading: words::missing(missing),
        meaning: missing.reason.clone(),
        places: Vec::new(),
    });
    let runs = comparison.scenarios.iter().flat_map(|part| {
        let named = move |result: &BrokerResult| format!("{} in {}", result.broker.label(), part.scenario);
        part.brokers.iter().flat_map(move |result| result.runs.iter().map(move |run| (named(result), run)))
    });
    let failures = (!comparison.failures.is_empty()).then(|| Warning {
        heading: "Not as expected".to_owned(),
        meaning: "These runs were cut short or are outside of what their scenario expects.".to_owned(),
        places: comparison.failures.clone(),
    });
    unfinished.chain(failures).chain(missing).chain(page::warnings_of(runs)).collect()
}

/// The most important figures of all scenarios.
fn overview(comparison: &Comparison) -> String {
    let names = brokers(comparison);
    let mut out = String::from(
        "<section>\n<h2>In short</h2>\n<table class=\"figures even\">\n<caption>Messages delivered in a second, latency p99, and what became of the messages</caption>\n<thead><tr><th scope=\"col\">Scenario</th>",
    );
    for broker in &names {
        put(&mut out, format_args!("<th scope=\"col\">{}</th>", escape(&broker.label())));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for part in &comparison.scenarios {
        put(&mut out, format_args!("<tr><th scope=\"row\">{}</th>", escape(&part.scenario)));
        for broker in &names {
            let result = part.brokers.iter().find(|result| result.broker.label() == broker.label());
            put(&mut out, format_args!("<td data-of=\"{}\">", escape(&broker.label())));
            out.push_str(&result.map_or_else(|| "–".to_owned(), in_short));
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
    out
}

fn in_short(result: &BrokerResult) -> String {
    let median = |name: &str, unit| {
        result
            .measures
            .get(name)
            .map_or_else(|| "–".to_owned(), |summary| words::quantity(summary.median, unit))
    };
    let finding = finding::finding(&result.runs);
    format!(
        "<span class=\"cell\"><b>{}</b><span>p99 {}</span>{}{}</span>",
        median("delivered", "/s"),
        median("p99", "ms"),
        backlog(result),
        verdict(&finding)
    )
}

/// What waits at the end, if it takes over a second to deliver: nothing is lost, but it is late.
fn backlog(result: &BrokerResult) -> String {
    let median = |name: &str| result.measures.get(name).map_or(0.0, |summary| summary.median);
    if median("waiting") <= median("delivered") {
        return String::new();
    }
    let is_drained = |run: &Run| run.totals.lost == 0 && run.totals.undelivered == 0 && run.error.is_none();
    let drained = match result.runs.iter().all(is_drained) {
        true => format!("drained in {}", words::duration(median("drain"))),
        false => "not drained".to_owned(),
    };
    format!("<span class=\"bad\">{} waiting at the end, {drained}</span>", words::figure(median("waiting")))
}

/// What became of the messages, and what held the figures back.
fn verdict(finding: &finding::Finding) -> String {
    let class = if finding.good { "good" } else { "bad" };
    let mut out = format!("<span class=\"{class}\">{}</span>", escape(&finding.short));
    if let Some(limits) = &finding.limits {
        put(&mut out, format_args!("<span class=\"limit\">{}</span>", escape(limits)));
    }
    out
}

fn scenario(part: &ScenarioComparison, order: &[&Broker]) -> String {
    let mut out = format!("<section>\n<h2>{}</h2>\n<p>{}</p>\n", escape(&part.scenario), escape(&part.about));
    out.push_str("<ul class=\"findings\">\n");
    for result in &part.brokers {
        let finding = finding::finding(&result.runs);
        let class = if finding.good { "good" } else { "bad" };
        put(
            &mut out,
            format_args!(
                "<li class=\"{class}\"><b>{}</b> {}{}</li>\n",
                escape(&result.broker.label()),
                escape(&finding.long),
                finding
                    .limits
                    .map(|limits| format!(" {}.", escape(&words::capital(&limits))))
                    .unwrap_or_default()
            ),
        );
    }
    out.push_str("</ul>\n");
    out.push_str(&plots(part, order));
    out.push_str(&figures(part));
    let runs = || part.brokers.iter().flat_map(|r| r.runs.iter().map(|run| (r.broker.label(), run)));
    out.push_str(&page::notes(runs()));
    out.push_str(&page::folded("Each run", &each_run(part)));
    if let Some((_, run)) = runs().find(|(_, run)| !run.scenario_file.is_empty()) {
        out.push_str(&page::folded("The scenario", &format!("<pre>{}</pre>\n", escape(&run.scenario_file))));
    }
    out.push_str("</section>\n");
    out
}

/// All measures of all brokers.
fn figures(part: &ScenarioComparison) -> String {
    let Some(first) = part.brokers.first() else { return String::new() };
    let runs = part.brokers.iter().map(|result| result.runs.len()).max().unwrap_or(0);
    let mut out = String::from("<table class=\"figures even\">\n");
    let behind = match runs {
        1 => "One run each".to_owned(),
        runs => format!("Medians of {}, with their range", words::plural(runs, "run")),
    };
    put(
        &mut out,
        format_args!(
            "<caption>{behind}; × is the ratio to {}. {}.</caption>\n<thead><tr><th scope=\"col\"></th>",
            escape(&first.broker.label()),
            words::seeds(part)
        ),
    );
    for result in &part.brokers {
        put(&mut out, format_args!("<th scope=\"col\">{}</th>", escape(&result.broker.label())));
    }
    out.push_str("</tr></thead>\n<tbody>\n<tr><th scope=\"row\">Messages</th>");
    for result in &part.brokers {
        let verdict = verdict(&finding::finding(&result.runs));
        let name = escape(&result.broker.label());
        put(&mut out, format_args!("<td data-of=\"{name}\"><span class=\"cell\">{verdict}</span></td>"));
    }
    out.push_str("</tr>\n");
    for measure in &measures_of(part.brokers.iter().flat_map(|result| &result.runs)) {
        let name = measure.name.as_ref();
        let is_told = |result: &BrokerResult| {
            result.measures.contains_key(name) || words::instead(name, &result.runs).is_some()
        };
        if part.brokers.iter().any(is_told) {
            figures_row(&mut out, measure, part, first.measures.get(measure.name.as_ref()));
        }
    }
    out.push_str("</tbody>\n</table>\n");
    if let Some(reference) = part.reference.as_ref().filter(|reference| !reference.about.is_empty()) {
        let (name, about) = (escape(&words::capital(&reference.name)), escape(&reference.about));
        put(&mut out, format_args!("<p class=\"remark\">{name}: {about}</p>\n"));
    }
    if part.brokers.iter().any(|result| finding::withheld(&result.runs).is_some()) {
        out.push_str("<p class=\"remark\">What devices were told not to send has no latency: beside the latency of devices that follow stands what was withheld.</p>\n");
    }
    if part.brokers.iter().any(|result| result.runs.iter().any(|run| run.totals.lost > 0)) {
        out.push_str("<p class=\"remark\">What is lost has no latency: a broker that loses the late messages looks faster than it is. What was due or on its way in the end counts with the time that it had waited.</p>\n");
    }
    out
}

fn figures_row(out: &mut String, measure: &Measure, part: &ScenarioComparison, first: Option<&Summary>) {
    put(out, format_args!("<tr><th scope=\"row\">{}", escape(&words::capital(&measure.title))));
    if !measure.unit.is_empty() {
        put(out, format_args!(" <small>{}</small>", escape(measure.unit)));
    }
    out.push_str("</th>");
    let never = |result: &BrokerResult| {
        result
            .measures
            .get(measure.name.as_ref())
            .is_some_and(|summary| words::median(measure, summary) == "none")
    };
    let known = |result: &BrokerResult| words::known(measure, &result.runs).is_none();
    if part.brokers.len() > 1 && part.brokers.iter().all(|result| never(result) && known(result)) {
        let columns = part.brokers.len();
        put(out, format_args!("<td class=\"all\" colspan=\"{columns}\">none with any broker</td></tr>\n"));
        return;
    }
    for (index, result) in part.brokers.iter().enumerate() {
        put(out, format_args!("<td data-of=\"{}\">", escape(&result.broker.label())));
        match result.measures.get(measure.name.as_ref()) {
            None => {
                let why = words::unknown(measure, &result.runs);
                put(out, format_args!("<span class=\"cell\"><span>{why}</span></span>"));
            }
            Some(summary) => {
                let first = first.filter(|_| index > 0);
                let ground = finding::Ground::of(&result.runs, &part.brokers[0].runs);
                let comparison = finding::comparison(measure, summary, first, ground);
                let known = words::known(measure, &result.runs);
                let reference = words::reference(part, &result.broker, measure);
                let remarks = known.into_iter().chain(reference).chain(comparison);
                out.push_str(&cell(measure, summary, remarks));
            }
        }
        out.push_str("</td>");
    }
    out.push_str("</tr>\n");
}

fn cell(measure: &Measure, summary: &Summary, remarks: impl Iterator<Item = String>) -> String {
    let mut out = format!("<span class=\"cell\"><b>{}</b>", words::median(measure, summary));
    for more in words::range(summary).into_iter().chain(remarks) {
        put(&mut out, format_args!("<span>{}</span>", escape(&more)));
    }
    out.push_str("</span>");
    out
}

/// What happened over time, the distribution of latency, and the delivered messages as bars.
fn plots(part: &ScenarioComparison, order: &[&Broker]) -> String {
    let of = |broker: &&Broker| part.brokers.iter().find(|result| is_same(&result.broker, broker));
    let middle: Vec<(String, Option<&Run>)> =
        order.iter().map(|broker| (broker.label(), of(broker).and_then(middle_run))).collect();
    let measured = middle.iter().filter_map(|(_, run)| *run).map(|run| run.duration).fold(0.0, f64::max);
    let lines = |points: &dyn Fn(&Run) -> Vec<(f64, f64)>| -> Vec<Series> {
        let line = |(name, run): &(String, Option<&Run>)| Series {
            name: name.clone(),
            points: run.map(points).unwrap_or_default(),
        };
        middle.iter().map(line).collect()
    };
    let over_time = |title: &str, unit, least, value: &dyn Fn(&Interval) -> Option<f64>| {
        let series = lines(&|run: &Run| timeline(run, value));
        Plot { title: title.to_owned(), unit, across: Across::Seconds { measured }, least, series }.figure()
    };
    let mut out = String::from("<div class=\"plots\">\n");
    out.push_str(&delivered_bars(part, order));
    out.push_str(&over_time("Delivered", "messages/s", None, &|i| per_second(i.delivered, i)));
    out.push_str(&over_time("Accepted", "messages/s", None, &|i| per_second(i.accepted, i)));
    out.push_str(&over_time("Waiting", "messages owed to consumers", Some(1.0), &|i| Some(i.waiting as f64)));
    out.push_str(&over_time("Delay p99", "ms", Some(0.01), &|i| i.p99));
    out.push_str(&over_time("Queueing delay p99", "ms", Some(1.0), &|i| i.wait_p99));
    if order.iter().any(|broker| !broker.variant.is_empty()) {
        out.push_str(&over_time("Consumers", "connected", None, &|i| Some(f64::from(i.consumers))));
        out.push_str(&over_time("Rate that following devices use", "messages/s each", None, &|i| i.rate));
    }
    out.push_str(&distribution(lines(&|run: &Run| percentiles(run))));
    out.push_str("</div>\n<p class=\"remark\">The curves show the run nearest to the median. In the shaded parts nothing is measured: the generator warms up or waits for the rest, and curves may leave the scale.</p>\n");
    out
}

/// The run that delivered most nearly what the median says.
fn middle_run(result: &BrokerResult) -> Option<&Run> {
    let median = result.measures.get("delivered").map_or(0.0, |summary| summary.median);
    let off = |run: &Run| (run.rates.delivered - median).abs();
    result.runs.iter().min_by(|a, b| off(a).total_cmp(&off(b)))
}

fn delivered_bars(part: &ScenarioComparison, order: &[&Broker]) -> String {
    let bar = |(index, result): (usize, &BrokerResult)| {
        let summary = result.measures.get("delivered").copied().unwrap_or_default();
        let ratio = match (index, summary.ratio) {
            (1.., Some(ratio)) => format!(" ({}×)", words::figure(ratio)),
            _ => String::new(),
        };
        let finding = finding::finding(&result.runs);
        let flaw = if finding.good { String::new() } else { format!(", {}", finding.short) };
        Bar {
            name: result.broker.label(),
            place: order.iter().position(|broker| is_same(broker, &result.broker)).unwrap_or(index),
            value: summary.median,
            range: (summary.low, summary.high),
            words: format!("{}{ratio}{flaw}", words::quantity(summary.median, "/s")),
        }
    };
    let bars: Vec<Bar> = part.brokers.iter().enumerate().map(bar).collect();
    chart::bars("Delivered", "median, with the range of the runs", &bars)
}

/// Latency by share of messages.
pub(super) fn distribution(series: Vec<Series>) -> String {
    let title = "Latency".to_owned();
    Plot { title, unit: "ms", across: Across::Share, least: Some(0.01), series }.figure()
}

/// A distribution on a scale on which each further nine takes the same room.
pub(super) fn percentiles(run: &Run) -> Vec<(f64, f64)> {
    // the last point would lie infinitely far to the right
    let inside = run.percentiles.iter().filter(|point| (0.0..100.0).contains(&point.percentile));
    inside.map(|point| (100.0 / (100.0 - point.percentile), point.latency)).collect()
}

/// Some figure of the intervals of a run.
pub(super) fn timeline(run: &Run, value: impl Fn(&Interval) -> Option<f64>) -> Vec<(f64, f64)> {
    run.intervals.iter().filter_map(|interval| Some((interval.t, value(interval)?))).collect()
}

/// A count of an interval as a rate.
pub(super) fn per_second(count: u64, interval: &Interval) -> Option<f64> {
    (interval.length > 0.0).then(|| count as f64 / interval.length)
}

fn each_run(part: &ScenarioComparison) -> String {
    let mut out = String::from(
        "<table class=\"figures runs\">\n<thead><tr><th scope=\"col\">Run</th><th scope=\"col\">Delivered</th><th scope=\"col\">Latency p99</th><th scope=\"col\">What became of the messages</th></tr></thead>\n<tbody>\n",
    );
    for result in &part.brokers {
        for run in &result.runs {
            let finding = finding::finding(std::slice::from_ref(run));
            put(
                &mut out,
                format_args!(
                    "<tr><th scope=\"row\">{} {}</th><td data-of=\"delivered\">{}</td><td data-of=\"p99\">{}</td><td data-of=\"messages\">{}</td></tr>\n",
                    escape(&result.broker.label()),
                    run.repetition,
                    words::quantity(run.rates.delivered, "/s"),
                    words::quantity(run.latency.p99, "ms"),
                    escape(&finding.long)
                ),
            );
        }
    }
    out.push_str("</tbody>\n</table>\n");
    out
}

/// Every configuration that was used, folded.
fn configurations(comparison: &Comparison) -> String {
    let mut known: Vec<(&Broker, String)> = Vec::new();
    for result in comparison.scenarios.iter().flat_map(|part| &part.brokers) {
        let broker = &result.broker;
        let text = without_port(broker);
        let same = |(other, other_text): &(&Broker, String)| {
            (&other.name, &other.version) == (&broker.name, &broker.version) && *other_text == text
        };
        if !known.iter().any(same) {
            known.push((broker, text));
        }
    }
    let mut out = String::from("<section>\n<h2>Brokers and their configurations</h2>\n");
    known.iter().for_each(|(broker, _)| out.push_str(&page::configuration(broker)));
    out.push_str("</section>\n");
    out
}

/// The configuration without the port, which is another one each time.
fn without_port(broker: &Broker) -> String {
    match broker.address.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() => broker.configuration.replace(port, "PORT"),
        _ => broker.configuration.clone(),
    }
}
