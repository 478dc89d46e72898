//! Authentication and topic rules.
