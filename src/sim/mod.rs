//! The simulator: the controllers of `tidegate-control` in virtual time, against devices, queues and consumers.

pub mod reproduce;
