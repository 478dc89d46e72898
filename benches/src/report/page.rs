//! What all pages have: their frame, where it ran, warnings, configurations.

use tidegate::sim::plot::svg::{escape, put};

use super::words;
use crate::record::{Broker, Machine, NoteKind, Run};

const STYLE: &str = include_str!("page.css");

/// A whole page.
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(title)
    )
}

/// Pairs of a name and what there is to say about it.
pub fn facts(pairs: &[(&str, String)]) -> String {
    let mut out = String::from("<dl class=\"facts\">\n");
    for (name, words) in pairs.iter().filter(|(_, words)| !words.is_empty()) {
        put(&mut out, format_args!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(words)));
    }
    out.push_str("</dl>\n");
    out
}

/// A computer in a line.
pub fn machine(machine: &Machine) -> String {
    let cores = words::plural(machine.cores as usize, "processor");
    let parts = [
        machine.processor.clone(),
        format!("{cores} shared by generator and broker"),
        format!("{} of memory", words::memory(machine.memory)),
        machine.system.clone(),
    ];
    let known: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    known.join("; ")
}

/// A paragraph that can't be overlooked: its heading, what it means, and where it applies.
pub struct Warning {
    /// In a few words.
    pub heading: String,
    /// What it means.
    pub meaning: String,
    /// Where it was seen.
    pub places: Vec<String>,
}

/// What must be known before any figure is read; nothing if there is nothing.
pub fn warnings(warnings: &[Warning]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section class=\"warnings\" aria-label=\"Warnings\">\n<h2>Read this first</h2>\n<ul>\n",
    );
    for warning in warnings {
        put(&mut out, format_args!("<li><b>{}.</b> {}", escape(&warning.heading), escape(&warning.meaning)));
        if !warning.places.is_empty() {
            put(&mut out, format_args!(" <span>{}.</span>", escape(&warning.places.join("; "))));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n</section>\n");
    out
}

/// The kinds of notes that are warnings, the gravest first.
const GRAVE: [NoteKind; 3] = [NoteKind::GeneratorLimited, NoteKind::Check, NoteKind::MachineSaturated];

/// The warnings of some runs, each with the name of where it belongs: one for each kind.
pub fn warnings_of<'a>(runs: impl Iterator<Item = (String, &'a Run)>) -> Vec<Warning> {
    let runs: Vec<(String, &Run)> = runs.collect();
    let cut = |(place, run): &(String, &Run)| {
        let error = run.error.as_ref()?;
        Some(format!("{place}, after {}: {}", words::duration(run.duration), error.trim_end_matches('.')))
    };
    let cut = Warning {
        heading: "Cut short".to_owned(),
        meaning: "The figures of these runs are those until then.".to_owned(),
        places: runs.iter().filter_map(cut).collect(),
    };
    let noted = |kind: NoteKind| {
        let (heading, meaning) = words::warning(kind)?;
        let with = runs.iter().filter(|(_, run)| run.notes.iter().any(|note| note.kind == kind));
        let places = tally(with.map(|(place, _)| place.clone()));
        let places =
            places.into_iter().map(|(place, runs)| format!("{place} ({})", words::plural(runs, "run")));
        Some(Warning { heading: heading.to_owned(), meaning: meaning.to_owned(), places: places.collect() })
    };
    let all = std::iter::once(cut).chain(GRAVE.into_iter().filter_map(noted));
    all.filter(|warning| !warning.places.is_empty()).collect()
}

/// The notes of some runs, each text once.
pub fn notes<'a>(runs: impl Iterator<Item = (String, &'a Run)>) -> String {
    let texts = |(place, run): (String, &'a Run)| {
        run.notes.iter().map(move |note| (place.clone(), note.text.as_str()))
    };
    let seen = tally(runs.flat_map(texts));
    if seen.is_empty() {
        return String::new();
    }
    let mut out = String::from("<ul class=\"notes\">\n");
    for ((place, text), runs) in seen {
        let runs = if runs > 1 { format!(" ({runs} runs)") } else { String::new() };
        put(&mut out, format_args!("<li><b>{}</b>{runs}: {}</li>\n", escape(&place), escape(text)));
    }
    out.push_str("</ul>\n");
    out
}

/// How often each thing comes, in the order in which they first come.
fn tally<T: PartialEq>(things: impl Iterator<Item = T>) -> Vec<(T, usize)> {
    let mut seen: Vec<(T, usize)> = Vec::new();
    for thing in things {
        match seen.iter_mut().find(|(known, _)| *known == thing) {
            Some((_, count)) => *count += 1,
            None => seen.push((thing, 1)),
        }
    }
    seen
}

/// How a broker was set up, folded.
pub fn configuration(broker: &Broker) -> String {
    let summary = match broker.version.as_str() {
        "" => format!("{}, version unknown", broker.name),
        version => format!("{} {version}", broker.name),
    };
    let text = match broker.configuration.as_str() {
        "" => "Not known: it was running before.",
        text => text,
    };
    folded(&summary, &format!("<pre>{}</pre>\n", escape(text)))
}

/// Something that is shown when asked for, and in print.
pub fn folded(summary: &str, inside: &str) -> String {
    format!("<details>\n<summary>{}</summary>\n{inside}</details>\n", escape(summary))
}
