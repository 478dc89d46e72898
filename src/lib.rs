//! Tidegate: an MQTT broker that keeps an IoT system fast when its consumers cannot keep up.
//!
//! Most people run the `tidegate` command. This crate is for those who build a binary of their own around the same
//! gateway, mostly to add a plugin. [`config`] reads settings, [`listen`] accepts clients, a [`gateway::Gateway`]
//! serves them. `tidegate-plugin` is what a plugin is written against, `tidegate-access` the plugin for users and rules.
//!
//! ```no_run
//! use tidegate::config::Settings;
//! use tidegate::gateway::Gateway;
//! use tidegate::listen::Listeners;
//! use tidegate_access::{Access, AccessConfig};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut settings = Settings::default();
//! settings.listen.mqtt = vec!["127.0.0.1:1884".parse()?];
//! let access = AccessConfig { anonymous: false, users: Some("users.txt".into()), rules: None };
//! let gateway = Gateway::builder(settings.clone())
//!     .plugin(Box::new(Access::load(access)?)) // plugins are asked in this order
//!     .build()?;
//! let listeners = Listeners::bind(&settings.listen, None, settings.session.max_packet_size)?;
//! let interrupted = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
//! listeners.run(move |stream| gateway.clone().serve(stream), interrupted).await;
//! # Ok(())
//! # }
//! ```
//!
//! Without the `access` plugin everybody may do everything: the settings under `access` are read by it, not by the
//! gateway. Metrics, signals and the banner belong to the command too. `examples/own_plugin.rs` is a whole program
//! with a plugin of its own, and `ARCHITECTURE.md` explains how the parts work together.

pub mod admin;
pub mod broker;
pub mod chain;
pub mod cli;
pub mod config;
pub mod gateway;
mod ledger;
pub mod listen;
pub mod sim;
pub mod wire;
