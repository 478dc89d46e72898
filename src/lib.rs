//! Tidegate: an MQTT broker that keeps an IoT system fast when its consumers cannot keep up.
//!
//! Most people run the `tidegate` command. This crate is for those who build a binary of their own around the same
//! gateway, mostly to add a plugin, which is written against [`plugin`]. [`serve_with`] does all that the command does:
//!
//! ```no_run
//! use tidegate::config::{Sources, load};
//! # struct MyPlugin;
//! # impl tidegate::plugin::Plugin for MyPlugin { fn name(&self) -> &'static str { "mine" } }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let loaded = load(&Sources::of_process(None, Vec::new()))?; // as without --config and --set
//! tidegate::serve_with(&loaded, vec![Box::new(MyPlugin)])?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/own_plugin.rs` is a whole program. Those who want less than that put the parts together themselves:
//! [`config`] reads settings, [`listen`] accepts clients, a [`gateway::Gateway`] serves them.
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
//! gateway. Metrics, signals and the banner belong to [`serve_with`] too. `ARCHITECTURE.md` explains how the parts work
//! together.

pub mod admin;
pub mod broker;
pub mod chain;
pub mod cli;
pub mod config;
pub mod gateway;
mod hold;
mod ledger;
pub mod listen;
pub mod proxy;
pub mod sim;
pub mod wire;

pub use cli::serve_with;
/// What a plugin is written against.
pub use tidegate_plugin as plugin;
