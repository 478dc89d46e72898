//! Conformance: tests built from the normative statements of MQTT 3.1.1 and MQTT 5.0.
//!
//! Each test names the statements that it checks, such as `[MQTT-3.1.0-2]`. A test for both versions takes
//! the version and stands in its file's `both_versions!` list; where the numbers differ, the one of 3.1.1
//! comes first.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

/// Makes two tests of each function, one for each protocol version.
macro_rules! both_versions {
    ($($test:ident),* $(,)?) => {
        mod v311 {
            $(#[test] fn $test() { super::$test(crate::common::packet::Version::V311) })*
        }
        mod v5 {
            $(#[test] fn $test() { super::$test(crate::common::packet::Version::V5) })*
        }
    };
}

mod access;
mod alias;
mod connect;
mod connect_properties;
mod expiry;
mod flow;
mod keep_alive;
mod malformed;
mod properties;
mod publish;
mod qos;
mod redelivery;
mod retained;
mod session;
mod shared;
mod subscribe;
mod subscribe_options;
mod sys;
mod through_proxy;
mod topics;
mod unsubscribe;
mod websocket;
mod will;
mod will_delay;

use std::sync::OnceLock;

use common::client::Client;
use common::packet::Version;
use common::server::{Server, Setup};

/// The server that all tests of this binary share: defaults, and `test/nosubscribe` denied.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start("conformance", &Setup { deny_nosubscribe: true, ..Setup::default() }))
}

/// A connected client with an identifier of its own.
fn client(version: Version) -> Client {
    server().client(version)
}
