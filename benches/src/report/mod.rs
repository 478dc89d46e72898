//! Reports for people: markdown and one self-contained HTML page.
//!
//! A page needs no script and nothing from elsewhere. Everything that comes from a result is escaped.

mod chart;
pub(crate) mod finding;
pub(crate) mod grid;
mod markdown;
mod page;
mod side_by_side;
mod single;
pub(crate) mod words;

pub use markdown::{markdown, run_markdown};
pub use side_by_side::html;
pub use single::run_html;
