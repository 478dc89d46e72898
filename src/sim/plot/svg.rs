//! Pieces of SVG.

use std::fmt::Write;

use super::axis::Axis;

/// Points of a curve that are drawn in each column of pixels at most.
const POINTS_PER_PIXEL: f64 = 2.0;

/// A straight line.
pub fn line(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    put(
        out,
        format_args!(
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{colour}\"/>\n",
            from.0, from.1, to.0, to.1
        ),
    );
}

/// Words at a place.
pub fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, style: &str, words: &str) {
    put(
        out,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{}</text>\n",
            escape(words)
        ),
    );
}

/// Appends to a string.
pub fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string can't fail.
    let _ = out.write_fmt(arguments);
}

/// Words from outside, made harmless in markup, also as the value of an attribute.
pub fn escape(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Keeps the lowest and the highest of the points that would fall on the same pixel.
pub fn thin(points: &[(f64, f64)], x: &Axis) -> Vec<(f64, f64)> {
    let columns = x.length().max(1.0);
    if points.len() as f64 <= columns * POINTS_PER_PIXEL {
        return points.to_vec();
    }
    let mut kept = Vec::new();
    for column in points.chunk_by(|a, b| x.place(a.0).floor() == x.place(b.0).floor()) {
        let low = column.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
        let high = column.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut ends: Vec<(f64, f64)> = low.into_iter().chain(high).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        kept.extend(ends);
    }
    kept
}

/// The way along some points, for the `d` of a path.
pub fn path(points: &[(f64, f64)]) -> String {
    let mut way = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        put(&mut way, format_args!("{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' }));
    }
    way
}
