//! Tidegate: an MQTT broker and proxy that keeps an IoT system fast when its consumers cannot keep up.

pub mod config;
pub mod sim;
pub mod wire;
