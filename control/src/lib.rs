//! Every algorithm of Tidegate as pure code: no clock, no I/O, no logging, no async.
//!
//! Time and random numbers are arguments and decisions are return values, so the gateway, the client and the
//! simulator drive the same objects and a seeded run gives the same bytes every time.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod active;
pub mod allocate;
pub mod announce;
pub mod autoscale;
pub mod backoff;
pub mod balance;
pub mod demand;
pub mod flow;
mod invalid;
pub mod overload;
pub mod pacing;
pub mod random;
pub mod spread;
pub mod time;
pub mod topic;

pub use invalid::Invalid;
