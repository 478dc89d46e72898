//! What is shown of each queue, and in which order.

use std::cmp::Ordering;

use serde_json::Value;

/// A queue as the gateway describes it. What it does not say is not known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queue {
    /// Its name, fit for a terminal.
    pub name: String,
    /// What its controller does.
    pub phase: String,
    /// The numbers, one for each column that has them.
    numbers: [Option<f64>; Column::ALL.len()],
}

/// What there is to see, the more important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    Name,
    Phase,
    Depth,
    Delay,
    Arriving,
    Processed,
    Announced,
    Publishers,
    Consumers,
    InFlight,
    Held,
    Dropped,
    Lost,
    Gated,
    Refused,
}

impl Column {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Name,
        Self::Phase,
        Self::Depth,
        Self::Delay,
        Self::Arriving,
        Self::Processed,
        Self::Announced,
        Self::Publishers,
        Self::Consumers,
        Self::InFlight,
        Self::Held,
        Self::Dropped,
        Self::Lost,
        Self::Gated,
        Self::Refused,
    ];

    /// What stands above it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Name => "QUEUE",
            Self::Phase => "PHASE",
            Self::Depth => "DEPTH",
            Self::Delay => "DELAY",
            Self::Arriving => "IN/S",
            Self::Processed => "OUT/S",
            Self::Announced => "RATE/S",
            Self::Publishers => "PUBS",
            Self::Consumers => "CONS",
            Self::InFlight => "FLIGHT",
            Self::Held => "HELD",
            Self::Dropped => "DROPPED",
            Self::Lost => "LOST",
            Self::Gated => "GATED",
            Self::Refused => "REFUSED",
        }
    }

    /// The name of its number in the gateway's answer.
    fn key(self) -> &'static str {
        match self {
            Self::Name => "queue",
            Self::Phase => "phase",
            Self::Depth => "depth",
            Self::Delay => "delay_ms",
            Self::Arriving => "arrival_rate",
            Self::Processed => "processing_rate",
            Self::Announced => "announced_rate",
            Self::Publishers => "publishers",
            Self::Consumers => "consumers",
            Self::InFlight => "in_flight",
            Self::Held => "held",
            Self::Dropped => "dropped",
            Self::Lost => "lost",
            Self::Gated => "gate_held",
            Self::Refused => "refused",
        }
    }
}

impl Queue {
    /// Reads one entry of the gateway's answer; what is missing or of another kind is not known.
    pub fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().map(printable).filter(|text| !text.is_empty());
        let from_parts = || Some(format!("{}:{}", text("group")?, text("filter")?));
        Self {
            name: text("queue").or_else(from_parts).unwrap_or_else(|| "?".into()),
            phase: text("phase").unwrap_or_else(|| "-".into()),
            numbers: Column::ALL
                .map(|column| value[column.key()].as_f64().filter(|number| number.is_finite())),
        }
    }

    /// What stands in a column.
    pub fn cell(&self, column: Column) -> String {
        let number = self.numbers[column as usize];
        match column {
            Column::Name => self.name.clone(),
            Column::Phase => self.phase.clone(),
            Column::Delay => number.map_or_else(unknown, delay),
            Column::Arriving | Column::Processed | Column::Announced => number.map_or_else(unknown, rate),
            _ => number.map_or_else(unknown, count),
        }
    }
}

/// By which column, and which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The column.
    pub by: Column,
    /// Whether the smallest is first.
    pub rising: bool,
}

impl Default for Order {
    fn default() -> Self {
        Self { by: Column::Delay, rising: false }
    }
}

impl Order {
    /// Sorts queues; what is equal, by name; what is not known, last.
    pub fn sort(self, queues: &mut [Queue]) {
        queues.sort_by(|a, b| self.compare(a, b).then_with(|| a.name.cmp(&b.name)));
    }

    /// The order by the next column, or by the one before.
    pub fn next(self, forward: bool) -> Self {
        let count = Column::ALL.len();
        let at = (self.by as usize + if forward { 1 } else { count - 1 }) % count;
        let by = Column::ALL[at];
        // names from A on, numbers from the largest on
        Self { by, rising: matches!(by, Column::Name | Column::Phase) }
    }

    fn compare(self, a: &Queue, b: &Queue) -> Ordering {
        let way = |order: Ordering| if self.rising { order } else { order.reverse() };
        let at = self.by as usize;
        match self.by {
            Column::Name => way(a.name.cmp(&b.name)),
            Column::Phase => way(a.phase.cmp(&b.phase)),
            _ => match (a.numbers[at], b.numbers[at]) {
                (Some(a), Some(b)) => way(a.total_cmp(&b)),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        }
    }
}

/// All queues as text, a line each.
pub fn plain(queues: &[Queue]) -> String {
    if queues.is_empty() {
        return "no queues\n".into();
    }
    let titles = Column::ALL.map(|column| column.title().to_owned());
    let rows: Vec<_> = std::iter::once(titles)
        .chain(queues.iter().map(|queue| Column::ALL.map(|column| queue.cell(column))))
        .collect();
    let widths = Column::ALL
        .map(|column| rows.iter().map(|row| row[column as usize].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; Column::ALL.len()]| {
        let cells = Column::ALL.map(|column| {
            let (text, width) = (&row[column as usize], widths[column as usize]);
            if column <= Column::Phase { format!("{text:<width$}") } else { format!("{text:>width$}") }
        });
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Names come from clients: nothing in them may steer a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_bidi(c) { '\u{fffd}' } else { c }).take(512).collect()
}

/// Marks that turn the direction of what follows.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn unknown() -> String {
    "-".into()
}

fn delay(millis: f64) -> String {
    if millis < 9_999.5 { format!("{millis:.0} ms") } else { format!("{} s", short(millis / 1000.0, 1)) }
}

fn rate(per_second: f64) -> String {
    short(per_second, if per_second < 10.0 { 2 } else { 1 })
}

fn count(number: f64) -> String {
    short(number, 0)
}

/// At most six characters up to a trillion.
fn short(number: f64, decimals: usize) -> String {
    match number {
        n if n < 9_999.5 => format!("{n:.decimals$}"),
        n if n < 999_950.0 => format!("{:.1}k", n / 1e3),
        n if n < 999_950_000.0 => format!("{:.1}M", n / 1e6),
        n => format!("{:.1}G", n / 1e9),
    }
}
