//! Measures what this crate promises, against the real gateway in a process of its own, and says whether it holds.
//!
//! `cargo run -p tidegate-client --example must_show -- [fleet|lossy|herd|restart|cable]...`; all of them without a name.
//! Each takes one to three minutes, on an otherwise idle machine. With `quick` as the first word they hold to the same bounds in
//! less time: `fleet`, `lossy` and `herd` within about a minute, `restart` in its usual half a minute, `cable` in seconds, and
//! that one on a busy machine too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod cable;
mod fleet;
mod gateway;
mod herd;
mod lossy;
#[path = "../../tests/client/lossy.rs"]
mod lossy_relay;
#[path = "../../tests/client/relay.rs"]
mod relay;
mod restart;

use std::time::Duration;

use tidegate_client::Connection;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.first().is_some_and(|name| name == gateway::COMMAND) {
        return gateway::serve(&names[1..]);
    }
    let (quick, names) = match names.split_first() {
        Some((first, rest)) if first == "quick" => (true, rest.to_vec()),
        _ => (false, names),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let mut failed = 0;
    for name in ["fleet", "lossy", "herd", "restart", "cable"].into_iter().filter(|name| wanted(name)) {
        println!("{name}");
        let shown = match name {
            "fleet" => runtime.block_on(fleet::run(quick)),
            "lossy" => runtime.block_on(lossy::run(quick)),
            "herd" => runtime.block_on(herd::run(quick)),
            "restart" => runtime.block_on(restart::run()),
            _ => runtime.block_on(cable::run(quick)),
        };
        failed += shown.failed;
    }
    if failed > 0 {
        println!("{failed} do not hold");
        #[allow(clippy::disallowed_methods)]
        std::process::exit(1);
    }
}

/// What was measured.
#[derive(Default)]
pub(crate) struct Shown {
    failed: u32,
}

impl Shown {
    /// Prints a figure and whether it is as promised.
    pub(crate) fn show(&mut self, what: &str, figure: impl std::fmt::Display, holds: bool) {
        let word = if holds { "holds" } else { "DOES NOT HOLD" };
        println!("  {word:<14} {what}: {figure}");
        self.failed += u32::from(!holds);
    }
}

/// A client with the gateway's own prefix.
pub(crate) fn connection(url: &str, client: &str) -> Connection {
    Connection::new(url, client).unwrap()
}

/// Waits until something is so; fails after two minutes.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// The most that fall into any window of so many seconds; the times are in order.
pub(crate) fn peak(times: &[f64], window: f64) -> usize {
    let from = |(place, start): (usize, &f64)| times[place..].partition_point(|time| *time < start + window);
    times.iter().enumerate().map(from).max().unwrap_or(0)
}
