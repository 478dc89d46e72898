//! Charts for the page, drawn for about the size at which they are shown, in colours that the page's style sets.

use tidegate::sim::plot::axis::{Axis, number};
use tidegate::sim::plot::svg::{escape, path, put, thin};

/// A phone's width, so that the text keeps its size there.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 212.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 38.0;
/// Colours that the style knows.
const COLOURS: usize = 6;
/// Marks on a line, which tell the lines apart where colours don't.
const MARKS: usize = 5;
/// Lines whose peaks are further apart than this need a logarithmic scale.
const FAR_APART: f64 = 30.0;

/// One line.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// What the horizontal axis shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Across {
    /// Seconds; what lies before 0 or after the measured part is shaded.
    Seconds {
        /// The length of the measured part.
        measured: f64,
    },
    /// A percentile p as 1/(1-p), so that each further nine takes the same room.
    Share,
}

/// Lines over a common axis.
#[derive(Debug, Clone)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// Its unit.
    pub unit: &'static str,
    /// The horizontal axis.
    pub across: Across,
    /// The least number worth telling from 0 if a logarithmic scale helps; none for a linear scale.
    pub least: Option<f64>,
    /// The lines; the same place has the same colour in every plot.
    pub series: Vec<Series>,
}

impl Plot {
    /// The plot with its caption and legend; nothing if there is nothing to show.
    pub fn figure(&self) -> String {
        if self.series.iter().all(|line| line.points.is_empty()) {
            return String::new();
        }
        let logarithmic = self.least.filter(|least| far_apart(&self.series, *least));
        let scale = if logarithmic.is_some() { ", log scale" } else { "" };
        let mut out = String::from("<figure class=\"plot\">\n<figcaption>");
        put(
            &mut out,
            format_args!("<b>{}</b> <span>{}{scale}</span>", escape(&self.title), escape(self.unit)),
        );
        out.push_str(&legend(&self.series));
        out.push_str("</figcaption>\n");
        out.push_str(&self.svg(logarithmic));
        out.push_str("</figure>\n");
        out
    }

    fn svg(&self, logarithmic: Option<f64>) -> String {
        let values = || self.series.iter().flat_map(|line| &line.points);
        let x = match self.across {
            Across::Seconds { .. } => Axis::over(values().map(|point| point.0), false),
            Across::Share => Axis::logarithmic(values().map(|point| point.0), 1.0),
        };
        // what happens outside the measured part must not squeeze what happens in it
        let inside = |point: &&(f64, f64)| match self.across {
            Across::Seconds { measured } => (0.0..=measured + 1e-6).contains(&point.0),
            Across::Share => true,
        };
        let some = values().any(|point| inside(&point));
        let heights = values().filter(|point| !some || inside(point)).map(|point| point.1);
        let y = match logarithmic {
            Some(least) => Axis::logarithmic(heights, least),
            None => Axis::over(heights, true),
        };
        let (x, y) = (x.onto(LEFT, WIDTH - RIGHT), y.onto(HEIGHT - BOTTOM, TOP));
        let mut out = open(HEIGHT, &format!("{}: {}", self.title, names(&self.series)));
        self.paper(&mut out, &x, &y);
        // all marks over all lines, so that lines on top of each other still show whose they are
        let mut marks = String::new();
        for (place, line) in self.series.iter().enumerate() {
            let points = placed(line, &x, &y);
            put(
                &mut out,
                format_args!("<path class=\"line s{}\" d=\"{}\"/>\n", place % COLOURS, path(&points)),
            );
            mark_along(&mut marks, &points, place, self.series.len());
        }
        out.push_str(&marks);
        out.push_str("</svg>\n");
        out
    }

    /// Everything behind the lines.
    fn paper(&self, out: &mut String, x: &Axis, y: &Axis) {
        let base = HEIGHT - BOTTOM;
        if let Across::Seconds { measured } = self.across {
            let ends = (x.place(f64::MAX), x.place(f64::MIN));
            aside(out, ends.1, x.place(0.0));
            aside(out, x.place(measured), ends.0);
        }
        for tick in y.ticks(4) {
            let at = y.place(tick);
            let right = WIDTH - RIGHT;
            put(out, format_args!("<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>\n"));
            // what is less than a logarithmic axis can show lies on its lower end
            let under = tick == y.low() && self.lowest() < tick;
            label(
                out,
                (LEFT - 6.0, at + 4.0),
                "end",
                &format!("{}{}", if under { "≤" } else { "" }, number(tick)),
            );
        }
        put(out, format_args!("<path class=\"base\" d=\"M{LEFT} {base}H{}\"/>\n", WIDTH - RIGHT));
        let (ticks, name) = self.ticks(x);
        for (tick, words) in ticks {
            let at = x.place(tick);
            // a long label at the edge would be cut
            let anchor = if at + 18.0 > WIDTH { "end" } else { "middle" };
            label(out, (if anchor == "end" { WIDTH } else { at }, base + 15.0), anchor, &words);
        }
        label(out, ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0), "middle", name);
    }

    fn lowest(&self) -> f64 {
        self.series.iter().flat_map(|line| &line.points).map(|point| point.1).fold(f64::INFINITY, f64::min)
    }

    fn ticks(&self, x: &Axis) -> (Vec<(f64, String)>, &'static str) {
        match self.across {
            Across::Seconds { .. } => {
                (x.ticks(6).into_iter().map(|tick| (tick, number(tick))).collect(), "seconds")
            }
            Across::Share => {
                let far =
                    self.series.iter().flat_map(|line| &line.points).map(|point| point.0).fold(1.0, f64::max);
                let shares = [0.5, 0.9, 0.99, 0.999, 0.9999];
                let places = shares.into_iter().map(|share| (1.0 / (1.0 - share), share));
                // rounded, since 1 - 0.99999 is not quite what it says
                let labels = places.filter(|(tick, _): &(f64, f64)| tick.round() <= far.max(10.0) * 1.001);
                let words = |share: f64| format!("{}%", number((share * 1e7).round() / 1e5));
                (
                    labels.map(|(tick, share)| (tick, words(share))).collect(),
                    "share of messages, the slowest to the right",
                )
            }
        }
    }
}

/// One bar.
#[derive(Debug, Clone, Default)]
pub struct Bar {
    /// Whose it is.
    pub name: String,
    /// The place of its colour, the same as that of its lines.
    pub place: usize,
    /// Its length.
    pub value: f64,
    /// The least and the largest of the repetitions.
    pub range: (f64, f64),
    /// What is written beside it.
    pub words: String,
}

/// Bars under each other, with the range of the repetitions as a thin line; nothing if there is nothing to show.
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    const ROW: f64 = 44.0;
    let height = TOP + ROW * bars.len() as f64;
    let longest = bars.iter().flat_map(|bar| [bar.value, bar.range.1]).filter(|value| value.is_finite());
    let longest = longest.fold(0.0, f64::max);
    if longest <= 0.0 {
        return String::new();
    }
    let x = Axis::over([0.0, longest].into_iter(), false).onto(4.0, WIDTH - RIGHT);
    let mut out = String::from("<figure class=\"plot\">\n<figcaption>");
    put(&mut out, format_args!("<b>{}</b> <span>{}</span></figcaption>\n", escape(title), escape(unit)));
    let words: Vec<String> = bars.iter().map(|bar| format!("{} {}", bar.name, bar.words)).collect();
    out.push_str(&open(height, &format!("{title}: {}", words.join("; "))));
    for (row, bar) in bars.iter().enumerate() {
        let top = TOP + ROW * row as f64;
        let (start, end) = (x.place(0.0), x.place(bar.value));
        let middle = top + 24.0;
        name(&mut out, (start, top + 11.0), &bar.name);
        label(&mut out, (WIDTH - RIGHT, top + 11.0), "end", &bar.words);
        put(
            &mut out,
            format_args!(
                "<rect class=\"fill f{}\" x=\"{start}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\"/>\n",
                bar.place % COLOURS,
                middle - 7.0,
                (end - start).max(1.0)
            ),
        );
        let (low, high) = (x.place(bar.range.0), x.place(bar.range.1));
        put(
            &mut out,
            format_args!(
                "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v8M{high:.1} {:.1}v8\"/>\n",
                middle - 4.0,
                middle - 4.0
            ),
        );
    }
    out.push_str("</svg>\n</figure>\n");
    out
}

/// The names with the mark and colour of their lines.
fn legend(series: &[Series]) -> String {
    let mut out = String::from("<span class=\"legend\">");
    for (place, line) in series.iter().enumerate().filter(|(_, line)| !line.points.is_empty()) {
        let colour = place % COLOURS;
        put(
            &mut out,
            format_args!(
                "<span class=\"key\"><svg width=\"22\" height=\"10\" viewBox=\"0 0 22 10\" aria-hidden=\"true\">\
                 <path class=\"line s{colour}\" d=\"M0 5H22\"/>{}</svg>{}</span> ",
                mark(place, 11.0, 5.0),
                escape(&line.name)
            ),
        );
    }
    out.push_str("</span>");
    out
}

/// The points on the paper, those left out that can't be drawn.
fn placed(line: &Series, x: &Axis, y: &Axis) -> Vec<(f64, f64)> {
    let finite: Vec<_> = line.points.iter().copied().filter(|p| p.0.is_finite() && p.1.is_finite()).collect();
    thin(&finite, x).into_iter().map(|(px, py)| (x.place(px), y.place(py))).collect()
}

/// Marks on a line, at other places than those of the other lines.
fn mark_along(out: &mut String, points: &[(f64, f64)], place: usize, of: usize) {
    let shift = (place as f64 + 0.5) / of.max(1) as f64;
    let step = (WIDTH - RIGHT - LEFT) / MARKS as f64;
    for index in 0..MARKS {
        let at = LEFT + (index as f64 + shift) * step;
        let near = points.iter().min_by(|a, b| (a.0 - at).abs().total_cmp(&(b.0 - at).abs()));
        if let Some((x, y)) = near.filter(|near| (near.0 - at).abs() < step) {
            out.push_str(&mark(place, *x, *y));
        }
    }
}

fn mark(place: usize, x: f64, y: f64) -> String {
    let colour = place % COLOURS;
    let shape = match place % 4 {
        0 => return format!("<circle class=\"mark f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"),
        1 => "m-3.2 -3.2h6.4v6.4h-6.4z",
        2 => "m0 -4.2l4 7h-8z",
        _ => "m0 -4.4l4.4 4.4l-4.4 4.4l-4.4 -4.4z",
    };
    format!("<path class=\"mark f{colour}\" d=\"M{x:.1} {y:.1}{shape}\"/>")
}

fn far_apart(series: &[Series], least: f64) -> bool {
    let peak = |line: &Series| line.points.iter().map(|point| point.1).fold(0.0, f64::max).max(least);
    let peaks = || series.iter().filter(|line| !line.points.is_empty()).map(peak);
    peaks().fold(0.0, f64::max) > FAR_APART * peaks().fold(f64::INFINITY, f64::min)
}

fn names(series: &[Series]) -> String {
    series.iter().map(|line| line.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn open(height: f64, description: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n", escape(description))
}

fn aside(out: &mut String, from: f64, to: f64) {
    if to - from > 0.5 {
        let height = HEIGHT - BOTTOM - TOP;
        put(
            out,
            format_args!(
                "<rect class=\"aside\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{height}\"/>\n",
                to - from
            ),
        );
    }
}

fn label(out: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    put(
        out,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", escape(words)),
    );
}

/// A name that leaves room for a figure on the same line.
fn name(out: &mut String, (x, y): (f64, f64), words: &str) {
    const MOST: usize = 20;
    let mut short: String = words.chars().take(MOST).collect();
    if short.len() < words.len() {
        short.push('…');
    }
    put(out, format_args!("<text class=\"name\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", escape(&short)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: Vec<Vec<(f64, f64)>>) -> Plot {
        let series = values.into_iter().map(|points| Series { name: "<b>".to_owned(), points }).collect();
        let across = Across::Seconds { measured: 2.0 };
        Plot { title: "delay".to_owned(), unit: "ms", across, least: Some(0.1), series }
    }

    #[test]
    fn names_are_escaped_and_odd_numbers_left_out() {
        let figure =
            plot(vec![vec![(0.0, 1.0), (1.0, f64::NAN), (f64::INFINITY, 2.0), (2.0, 1e308)]]).figure();
        assert!(figure.contains("&lt;b&gt;") && !figure.contains("<b><"));
        assert!(!figure.contains("NaN") && !figure.contains("inf"), "{figure}");
    }

    #[test]
    fn lines_far_apart_get_a_logarithmic_scale() {
        let near = plot(vec![vec![(0.0, 1.0), (1.0, 2.0)], vec![(0.0, 1.0), (1.0, 9.0)]]);
        assert!(!near.figure().contains("log scale"));
        let far = plot(vec![vec![(0.0, 1.0), (1.0, 2.0)], vec![(0.0, 1.0), (1.0, 9_000.0)]]);
        assert!(far.figure().contains("log scale"));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(plot(vec![vec![], vec![]]).figure(), "");
        assert_eq!(bars("delivered", "/s", &[Bar::default()]), "");
    }
}
