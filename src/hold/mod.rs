//! Holding publishers where a queue is over its bound, in the broker and in the proxy: each has a gate, and those who have
//! something to send stand in line.

mod gate;
mod line;

pub use gate::{Gate, Gates, Held};
pub use line::{HeldGates, Line, Released, Room};
