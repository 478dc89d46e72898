//! How the table looks in a terminal.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};

use super::table::{Column, Order, Queue};

/// What the keys do.
const HELP: &str = " ←→ sort by   r reverse   ↑↓ PgUp PgDn scroll   q quit";
/// The width of a number's column.
const NUMBER: u16 = 8;
/// The width of a phase.
const PHASE: u16 = 8;
/// A name gets at least this much, and what is left.
const NAME: u16 = 20;

/// What is shown.
#[derive(Debug, Default)]
pub struct Model {
    /// Where the gateway is.
    pub authority: String,
    /// The queues, in order.
    pub queues: Vec<Queue>,
    /// Their order.
    pub order: Order,
    /// Queues above the first line.
    pub above: usize,
    /// What went wrong last.
    pub problem: Option<String>,
    /// Whether there was an answer yet.
    pub answered: bool,
}

impl Model {
    /// Takes in what the gateway says; after an error the last queues stay.
    pub fn on_answer<E: std::fmt::Display>(&mut self, answer: Result<Vec<Queue>, E>) {
        match answer {
            Ok(queues) => {
                (self.queues, self.problem, self.answered) = (queues, None, true);
                self.order.sort(&mut self.queues);
            }
            Err(error) => self.problem = Some(error.to_string()),
        }
    }

    /// Sorts in another order.
    pub fn sort(&mut self, order: Order) {
        self.order = order;
        order.sort(&mut self.queues);
    }

    /// Scrolls by so many lines.
    pub fn scroll(&mut self, lines: isize) {
        self.above = self.above.saturating_add_signed(lines).min(self.queues.len().saturating_sub(1));
    }
}

/// Draws everything.
pub fn draw(model: &Model, frame: &mut Frame<'_>) {
    let trouble = u16::from(model.problem.is_some()) * 2;
    let parts =
        [Constraint::Length(1), Constraint::Length(trouble), Constraint::Min(1), Constraint::Length(1)];
    let [top, problem, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(headline(model)), top);
    if let Some(text) = &model.problem {
        let red = Style::new().fg(Color::Red);
        frame.render_widget(Paragraph::new(text.as_str()).style(red).wrap(Wrap { trim: true }), problem);
    }
    frame.render_widget(table(model, middle), middle);
    frame.render_widget(Paragraph::new(HELP).style(Style::new().add_modifier(Modifier::DIM)), bottom);
}

fn headline(model: &Model) -> Line<'_> {
    let held = model.queues.iter().filter(|queue| queue.phase == "protect").count();
    let counts = match (model.answered, model.queues.len()) {
        (false, _) => "waiting for the gateway".into(),
        (true, 1) => format!("1 queue, {held} in overload"),
        (true, count) => format!("{count} queues, {held} in overload"),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::styled(format!(" tidegate top   http://{}   {counts}", model.authority), bold)
}

fn table(model: &Model, area: Rect) -> Table<'_> {
    let columns = fitting(area.width);
    let title = |column: &Column| {
        let sorted = *column == model.order.by;
        let arrow = if !sorted {
            ""
        } else if model.order.rising {
            "↑"
        } else {
            "↓"
        };
        let style = if sorted { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        cell(*column, format!("{}{arrow}", column.title())).style(style)
    };
    let header = Row::new(columns.iter().map(title)).style(Style::new().add_modifier(Modifier::REVERSED));
    let shown = model.queues.iter().skip(model.above).take(area.height.saturating_sub(1).into());
    let rows = shown.map(|queue| {
        let cells = columns.iter().map(|column| cell(*column, queue.cell(*column)));
        Row::new(cells).style(phase_style(&queue.phase))
    });
    Table::new(rows, columns.iter().map(width)).header(header).column_spacing(1)
}

/// The columns that there is room for.
fn fitting(width: u16) -> &'static [Column] {
    let numbers = width.saturating_sub(NAME + PHASE + 1) / (NUMBER + 1);
    let count = usize::from(numbers) + 2;
    &Column::ALL[..count.min(Column::ALL.len())]
}

fn width(column: &Column) -> Constraint {
    match column {
        Column::Name => Constraint::Min(NAME),
        Column::Phase => Constraint::Length(PHASE),
        _ => Constraint::Length(NUMBER),
    }
}

fn cell(column: Column, text: String) -> Cell<'static> {
    let side = if column <= Column::Phase { Alignment::Left } else { Alignment::Right };
    Cell::new(Text::raw(text).alignment(side))
}

fn phase_style(phase: &str) -> Style {
    match phase {
        "protect" => Style::new().fg(Color::Red),
        "recover" => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}
