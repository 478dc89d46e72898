//! The picture of a run: rates, depth, delay, instances and phases over time.

use super::outcome::{Outcome, Point};
use super::plot::{Chart, Curve, Panel, Shade, Style};

/// Draws what happened over time.
pub fn picture(outcome: &Outcome) -> Chart {
    let mut panels = vec![rates(outcome), depth(outcome), delay(outcome), told(outcome)];
    let instances = outcome.series.first().map(|point| point.instances);
    if outcome.series.iter().any(|point| Some(point.instances) != instances) {
        panels.push(panel(
            "instances",
            80.0,
            vec![curve(outcome, "instances", Style::Area, |p| p.instances.into())],
        ));
    }
    Chart {
        title: outcome.scenario.clone(),
        subtitle: subtitle(outcome),
        x: "time, s".to_owned(),
        panels,
        shades: shades(&outcome.series),
    }
}

fn subtitle(outcome: &Outcome) -> String {
    let measure = |name| outcome.measure(name).unwrap_or(0.0);
    format!(
        "{:.0} messages processed, {:.3} of what is possible without a queue; mean wait {:.3} s, 99% under {:.2} s; seed {}",
        measure("processed"),
        measure("processed_share"),
        measure("mean_wait"),
        measure("p99_wait"),
        outcome.seed
    )
}

fn rates(outcome: &Outcome) -> Panel {
    panel(
        "messages/s",
        200.0,
        vec![
            curve(outcome, "demand", Style::Dashed, |p| p.demand),
            curve(outcome, "capacity", Style::Line, |p| p.capacity),
            curve(outcome, "arrivals", Style::Line, |p| p.arrivals),
            curve(outcome, "departures", Style::Line, |p| p.departures),
        ],
    )
}

fn depth(outcome: &Outcome) -> Panel {
    panel("queue depth", 110.0, vec![curve(outcome, "depth", Style::Area, |p| p.depth as f64)])
}

fn delay(outcome: &Outcome) -> Panel {
    panel("delay, s", 110.0, vec![curve(outcome, "delay at the head", Style::Area, |p| p.delay)])
}

fn told(outcome: &Outcome) -> Panel {
    let curves = outcome.classes.iter().enumerate();
    let curves = curves.map(|(index, name)| curve(outcome, name, Style::Line, |point| point.rates[index]));
    panel("rate told, 1/s", 110.0, curves.collect())
}

/// The stretches in which devices were held back.
fn shades(series: &[Point]) -> Vec<Shade> {
    let mut shades = Vec::new();
    for (index, run) in series.chunk_by(|a, b| a.phase == b.phase).enumerate() {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let colour = match first.phase {
            "protect" => "#fbe3e1",
            "recover" => "#fdf3d3",
            _ => continue,
        };
        // A phase lasts until the next one begins.
        let end = series.iter().find(|point| point.time > last.time).map_or(last.time, |next| next.time);
        let from = if index == 0 { 0.0 } else { first.time };
        shades.push(Shade { from, to: end, name: first.phase, colour });
    }
    shades
}

fn panel(y: &str, height: f64, curves: Vec<Curve>) -> Panel {
    Panel { y: y.to_owned(), height, curves }
}

fn curve(outcome: &Outcome, name: &str, style: Style, value: impl Fn(&Point) -> f64) -> Curve {
    Curve::new(name, style, outcome.series.iter().map(|point| (point.time, value(point))))
}
