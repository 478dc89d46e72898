//! A paper's picture as data, ready to be drawn.

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What the legend says.
    pub name: String,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// One picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Unique among all figures, and good as a file name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What the horizontal axis shows.
    pub x: String,
    /// What the vertical axis shows.
    pub y: String,
    /// The curves.
    pub lines: Vec<Line>,
}

impl Figure {
    /// An empty picture with its axes.
    pub fn new(name: &str, title: &str, [x, y]: [&str; 2]) -> Self {
        let [name, title, x, y] = [name, title, x, y].map(str::to_owned);
        Self { name, title, x, y, lines: Vec::new() }
    }

    /// The same picture with one more curve.
    pub fn line(mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.lines.push(Line { name: name.to_owned(), points: points.into_iter().collect() });
        self
    }
}
