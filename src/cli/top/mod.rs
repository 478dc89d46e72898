//! `tidegate top`: the queues of a running gateway in a table.

mod fetch;
mod live;
mod table;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use clap::Args;

use self::fetch::{Address, FetchError};
use self::table::{Order, Queue};

/// Watch the queues of a running gateway
#[derive(Debug, Args)]
pub(super) struct Top {
    /// The gateway's admin endpoint
    #[arg(long, default_value = "http://127.0.0.1:9464")]
    url: String,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// Print one plain table and end
    #[arg(long)]
    once: bool,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The gateway did not answer as expected.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}; `tidegate top --once` prints a plain table")]
    Terminal(io::Error),
    /// The table could not be printed.
    #[error("cannot print the table: {0}")]
    Print(io::Error),
}

impl Top {
    /// Shows the table until somebody quits, or prints it once.
    pub(super) fn run(&self, out: &mut impl Write) -> Result<(), TopError> {
        let address = Address::parse(&self.url)?;
        if self.once {
            let queues = fetch::queues(&address)?;
            return print(&queues, out);
        }
        live::run(address, Duration::from_secs(self.interval.into())).map_err(TopError::Terminal)
    }
}

/// Prints all queues, the longest delay first.
fn print(queues: &[Queue], out: &mut impl Write) -> Result<(), TopError> {
    let mut queues = queues.to_vec();
    Order::default().sort(&mut queues);
    match out.write_all(table::plain(&queues).as_bytes()).and_then(|()| out.flush()) {
        // who reads only the first lines of a pipe has what it wanted
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(TopError::Print),
    }
}
