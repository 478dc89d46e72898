//! Every algorithm of Tidegate as pure code: no clock, no I/O, no logging, no async.
#![no_std]
