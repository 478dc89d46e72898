//! The `tidegate` command.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use tidegate::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "tidegate: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
