//! Tidegate: an MQTT broker and proxy that keeps an IoT system fast when its consumers cannot keep up.

pub mod admin;
pub mod broker;
pub mod chain;
pub mod cli;
pub mod config;
pub mod gateway;
pub mod listen;
pub mod sim;
pub mod wire;
