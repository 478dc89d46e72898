//! The companion crate for publishers and consumers.
