//! Draws curves as SVG: panels above each other that share a time axis.

pub mod axis;
pub mod svg;

use axis::{Axis, number};
use svg::{escape, line, path, put, text, thin};

/// Colours that people with any eyes can tell apart.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#555555"];
const WIDTH: f64 = 960.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 172.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 52.0;
const GAP: f64 = 18.0;

/// A picture.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What else to know about it.
    pub subtitle: String,
    /// What the horizontal axis shows.
    pub x: String,
    /// The panels, from top to bottom.
    pub panels: Vec<Panel>,
    /// Stretches of the horizontal axis that are shaded in all panels.
    pub shades: Vec<Shade>,
}

/// One panel.
#[derive(Debug, Clone, Default)]
pub struct Panel {
    /// What the vertical axis shows.
    pub y: String,
    /// Its height in pixels.
    pub height: f64,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// One curve.
#[derive(Debug, Clone)]
pub struct Curve {
    /// What the legend says.
    pub name: String,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub style: Style,
}

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line.
    Line,
    /// A thin broken line in grey, for what others are compared with.
    Dashed,
    /// A line over a filled area.
    Area,
    /// Marks without a line.
    Dots,
}

/// A shaded stretch.
#[derive(Debug, Clone, PartialEq)]
pub struct Shade {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// What the legend says.
    pub name: &'static str,
    /// Its colour.
    pub colour: &'static str,
}

impl Curve {
    /// A curve of this style.
    pub fn new(name: &str, style: Style, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let finite = |point: &(f64, f64)| point.0.is_finite() && point.1.is_finite();
        Self { name: name.to_owned(), style, points: points.into_iter().filter(finite).collect() }
    }
}

impl Chart {
    /// The picture as an SVG document.
    pub fn svg(&self) -> String {
        let height = TOP + BOTTOM + self.panels.iter().map(|panel| panel.height + GAP).sum::<f64>();
        let mut out = String::new();
        put(
            &mut out,
            format_args!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"'DejaVu Sans', Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
            ),
        );
        text(
            &mut out,
            (LEFT, 28.0),
            "start",
            "font-size=\"18\" font-weight=\"bold\" fill=\"#1a1a1a\"",
            &self.title,
        );
        text(&mut out, (LEFT, 48.0), "start", "fill=\"#666666\"", &self.subtitle);
        let x = Axis::over(
            self.panels.iter().flat_map(|p| &p.curves).flat_map(|c| &c.points).map(|p| p.0),
            false,
        )
        .onto(LEFT, WIDTH - RIGHT);
        let mut top = TOP;
        for panel in &self.panels {
            self.panel(&mut out, panel, &x, top);
            top += panel.height + GAP;
        }
        let base = top - GAP;
        for tick in x.ticks(8) {
            text(&mut out, (x.place(tick), base + 18.0), "middle", "fill=\"#444444\"", &number(tick));
        }
        text(&mut out, ((LEFT + WIDTH - RIGHT) / 2.0, base + 38.0), "middle", "fill=\"#444444\"", &self.x);
        out.push_str("</svg>\n");
        out
    }

    fn panel(&self, out: &mut String, panel: &Panel, x: &Axis, top: f64) {
        let y = Axis::over(panel.curves.iter().flat_map(|c| &c.points).map(|p| p.1), true)
            .onto(top + panel.height, top + 6.0);
        for shade in &self.shades {
            let (from, to) = (x.place(shade.from), x.place(shade.to));
            put(
                out,
                format_args!(
                    "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>\n",
                    (to - from).max(0.0),
                    panel.height,
                    shade.colour
                ),
            );
        }
        for tick in y.ticks(4) {
            let at = y.place(tick);
            line(out, (LEFT, at), (WIDTH - RIGHT, at), "#e3e3e3");
            text(out, (LEFT - 8.0, at + 4.0), "end", "fill=\"#444444\"", &number(tick));
        }
        line(out, (LEFT, top + panel.height), (WIDTH - RIGHT, top + panel.height), "#999999");
        let (label_x, label_y) = (18.0, top + panel.height / 2.0);
        put(
            out,
            format_args!(
                "<text transform=\"translate({label_x:.1} {label_y:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"#444444\">{}</text>\n",
                escape(&panel.y)
            ),
        );
        for (index, curve) in panel.curves.iter().enumerate() {
            draw(out, curve, colour(panel, index), x, &y);
        }
        self.legend(out, panel, top);
    }

    fn legend(&self, out: &mut String, panel: &Panel, top: f64) {
        let (left, mut at) = (WIDTH - RIGHT + 16.0, top + 12.0);
        for (index, curve) in panel.curves.iter().enumerate() {
            let dash = if curve.style == Style::Dashed { " stroke-dasharray=\"5 3\"" } else { "" };
            put(
                out,
                format_args!(
                    "<path d=\"M{left:.1} {at:.1}h22\" stroke=\"{}\" stroke-width=\"2.5\"{dash}/>\n",
                    colour(panel, index)
                ),
            );
            text(out, (left + 28.0, at + 4.0), "start", "fill=\"#333333\"", &curve.name);
            at += 17.0;
        }
        let mut names: Vec<&Shade> = Vec::new();
        // The shades are explained once, beside the first panel.
        for shade in self.shades.iter().filter(|_| top == TOP) {
            if names.iter().all(|known| known.name != shade.name) {
                names.push(shade);
            }
        }
        for shade in names {
            put(
                out,
                format_args!(
                    "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"22\" height=\"11\" fill=\"{}\"/>\n",
                    at - 6.0,
                    shade.colour
                ),
            );
            text(out, (left + 28.0, at + 4.0), "start", "fill=\"#333333\"", shade.name);
            at += 17.0;
        }
    }
}

/// The colour of a panel's curve; curves to compare with are grey and take none away.
fn colour(panel: &Panel, index: usize) -> &'static str {
    if panel.curves[index].style == Style::Dashed {
        return "#8a8a8a";
    }
    let before = panel.curves[..index].iter().filter(|curve| curve.style != Style::Dashed).count();
    COLOURS[before % COLOURS.len()]
}

fn draw(out: &mut String, curve: &Curve, colour: &str, x: &Axis, y: &Axis) {
    let points: Vec<(f64, f64)> =
        thin(&curve.points, x).into_iter().map(|(px, py)| (x.place(px), y.place(py))).collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    if curve.style == Style::Dots {
        for (px, py) in &points {
            put(out, format_args!("<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{colour}\"/>\n"));
        }
        return;
    }
    let path = path(&points);
    if curve.style == Style::Area {
        let (from, to, base) = (first.0, last.0, y.place(y.low()));
        put(
            out,
            format_args!(
                "<path d=\"{path}L{to:.1} {base:.1}L{from:.1} {base:.1}Z\" fill=\"{colour}\" fill-opacity=\"0.18\"/>\n"
            ),
        );
    }
    let extra = if curve.style == Style::Dashed { " stroke-dasharray=\"5 3\"" } else { "" };
    put(
        out,
        format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"{extra}/>\n"
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(curves: Vec<Curve>) -> Chart {
        let panel = Panel { y: "depth".to_owned(), height: 100.0, curves };
        Chart { title: "a < b & c".to_owned(), panels: vec![panel], ..Chart::default() }
    }

    #[test]
    fn names_are_escaped_and_tags_are_closed() {
        let curve = Curve::new("<script>", Style::Area, [(0.0, 1.0), (1.0, 3.0), (2.0, f64::NAN)]);
        let svg = chart(vec![curve]).svg();
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains("&lt;script&gt;") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn nothing_and_one_point_can_be_drawn() {
        for points in [vec![], vec![(5.0, 5.0)], vec![(1.0, 0.0), (2.0, 0.0)]] {
            for style in [Style::Line, Style::Dashed, Style::Area, Style::Dots] {
                let svg = chart(vec![Curve::new("x", style, points.clone())]).svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"));
            }
        }
    }

    #[test]
    fn a_million_points_become_two_for_each_pixel() {
        let points = (0..1_000_000).map(|k| (f64::from(k), f64::from(k % 97)));
        let svg = chart(vec![Curve::new("x", Style::Line, points)]).svg();
        assert!(svg.len() < 100_000, "{}", svg.len());
    }
}
