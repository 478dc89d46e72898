//! The session layer, in process: any order of packets, and what is delivered across reconnects.
//!
//! The gateway runs on threads of its own; clients are one end of an in-memory stream. What the gateway sends is
//! read by the strict decoder of `tests/common`, which knows nothing of `src/wire`. `TIDEGATE_TEST_SEED` changes
//! the random numbers, `TIDEGATE_TEST_CASES` their amount.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "../common/mod.rs"]
mod common;

mod any_order;
mod defects;
mod delivery;
mod house;
mod peer;
mod plugins;
mod shared;
