//! Authentication and topic rules.

mod text;
pub mod users;
