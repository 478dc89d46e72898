//! The command line.

mod output;
mod text;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use self::output::{Output, print};
use crate::compare::{self, Outcome};
use crate::peers::{self, Kind};
use crate::record::{Comparison, Run};
use crate::run::{Target, interrupt, is_interrupted, run};
use crate::scenario::{Action, BUILT_IN, Loaded, Scenario};
use crate::sink::Sink;
use crate::{process, report};

const EXAMPLES: &str = "\
Examples:
  tidegate-bench run fan-in                             start Tidegate and run a scenario against it
  tidegate-bench run flood --target broker.local:1883   the same against any MQTT broker
  tidegate-bench run mine.toml --json out.json          a scenario of your own, with all figures
  tidegate-bench run flood@qos0 --broker mosquitto      a variant of a scenario, against Mosquitto
  tidegate-bench compare flood,fan-in --with mosquitto,nats,rumqttd --html report.html
  tidegate-bench study case-study-002 --html report.html   all variants of a scenario side by side
  tidegate-bench list                                   the scenarios that come with the program
  tidegate-bench sink --port 1883 &                     how fast is the generator itself?
  tidegate-bench run flood@qos0 --target 127.0.0.1:1883";

/// How long an address may take to answer.
const REACH: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const MOST_ADDRESSES: usize = 16;
const NOT_OPTIMISED: &str = "warning: this is a debug build, and its figures mean little: \
                             build both with `cargo build --release -p tidegate -p tidegate-bench`";

/// An MQTT load generator that checks what it measures, and compares brokers.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench", version = process::generator(), after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario once
    Run(RunArgs),
    /// Run scenarios against several brokers in turn
    Compare(CompareArgs),
    /// Run all variants of a scenario one after another, and put them side by side
    Study(StudyArgs),
    /// List the scenarios that come with the program
    List,
    /// Take messages and forget them: what the generator can send at most
    Sink(SinkArgs),
    /// Run the server of the crate rumqttd, as a peer to compare with
    Rumqttd(RumqttdArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// A name, a file, or either with @VARIANT
    scenario: String,
    /// A broker that runs already; without it one is started
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "broker")]
    target: Option<String>,
    /// The broker to start: tidegate, tidegate+mosquitto, mosquitto, nats, rumqttd; unless given the scenario's, or tidegate
    #[arg(long, value_name = "NAME")]
    broker: Option<String>,
    /// The target's process, to see what it uses
    #[arg(long, requires = "target")]
    pid: Option<u32>,
    #[command(flatten)]
    outputs: OutputArgs,
    /// Another seed than the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// Scenarios, with commas between them
    #[arg(value_delimiter = ',', required = true)]
    scenarios: Vec<String>,
    /// Brokers to compare Tidegate with, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "mosquitto,nats,rumqttd")]
    with: Vec<String>,
    /// How often each broker runs each scenario
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Another seed than the scenarios'
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    outputs: OutputArgs,
}

#[derive(Debug, Args)]
struct StudyArgs {
    /// A name or a file
    scenario: String,
    /// Only these variants, with commas between them; `base` is the scenario without a variant
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Brokers that run the first of them too, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    with: Vec<String>,
    /// How often each variant is run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Another seed than the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    outputs: OutputArgs,
}

/// Where results go besides the terminal.
#[derive(Debug, Args)]
struct OutputArgs {
    /// Write all figures as JSON; - is the standard output
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write a page with the plots
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Write tables
    #[arg(long, value_name = "OUT")]
    markdown: Option<PathBuf>,
}

impl OutputArgs {
    /// Opens them, before anything is run.
    fn open(&self) -> anyhow::Result<[Output; 3]> {
        output::open([
            ("--json", self.json.as_deref()),
            ("--html", self.html.as_deref()),
            ("--markdown", self.markdown.as_deref()),
        ])
    }
}

#[derive(Debug, Args)]
struct SinkArgs {
    /// Where to listen on the loopback interface
    #[arg(long, default_value_t = 0)]
    port: u16,
}

#[derive(Debug, Args)]
struct RumqttdArgs {
    /// Where to listen for MQTT 3.1.1 on the loopback interface
    #[arg(long, required_unless_present = "config")]
    port: Option<u16>,
    /// Its configuration file instead
    #[arg(long, value_name = "FILE", conflicts_with = "port")]
    config: Option<PathBuf>,
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> anyhow::Result<()> {
        if let Command::Rumqttd(arguments) = &self.command {
            return serve_rumqttd(arguments);
        }
        process::raise_file_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let done = runtime.block_on(async {
            tokio::select! {
                done = self.dispatch() => done,
                () = twice_interrupted() => Err(anyhow::anyhow!("interrupted")),
            }
        });
        // A thread that sleeps in a broken socket must not keep the program.
        runtime.shutdown_timeout(Duration::from_secs(1));
        done
    }

    async fn dispatch(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(arguments) => run_once(&arguments).await,
            Command::Compare(arguments) => run_compare(&arguments).await,
            Command::Study(arguments) => run_study(&arguments).await,
            Command::List => list(),
            Command::Sink(arguments) => run_sink(arguments.port).await,
            Command::Rumqttd(arguments) => serve_rumqttd(&arguments),
        }
    }
}

/// The first time, runs are cut short and their results written; the second time all ends at once.
async fn twice_interrupted() {
    for _ in 0..2 {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        interrupt();
    }
}

async fn run_once(arguments: &RunArgs) -> anyhow::Result<()> {
    let mut loaded = Scenario::load(&arguments.scenario)?;
    if let Some(seed) = arguments.seed {
        loaded.scenario.seed = seed;
    }
    let [json, html, markdown] = arguments.outputs.open()?;
    let mut target = match &arguments.target {
        Some(target) => reach(target, arguments.pid, &loaded.scenario).await?,
        None => {
            let named = arguments.broker.as_deref().map(Kind::named).transpose()?;
            let kind = named.map_or_else(|| loaded.scenario.broker_kind(), Ok)?;
            kind.start(&loaded.scenario).await?
        }
    };
    let result = run(&loaded, &mut target, 1).await;
    if let Some(peer) = target.peer {
        peer.stop().await;
    }
    let quiet = [&json, &html, &markdown].into_iter().any(Output::is_standard);
    html.write(|| Ok(report::run_html(&result)))?;
    markdown.write(|| Ok(report::run_markdown(&result)))?;
    json.write(|| as_json(&result))?;
    if !quiet {
        print(&text::run(&result))?;
    }
    judge(&loaded, &result)
}

async fn run_compare(arguments: &CompareArgs) -> anyhow::Result<()> {
    let mut scenarios: Vec<Loaded> =
        arguments.scenarios.iter().map(|name| Scenario::load(name)).collect::<Result<_, _>>()?;
    if let Some(seed) = arguments.seed {
        scenarios.iter_mut().for_each(|loaded| loaded.scenario.seed = seed);
    }
    let mut kinds = vec![Kind::Tidegate];
    for name in &arguments.with {
        let kind = Kind::named(name)?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    // What the comparison is for must be there.
    let program = Kind::Tidegate.program()?;
    let outputs = arguments.outputs.open()?;
    warn_of_debug_build(&program);
    let outcome = compare::compare(&scenarios, &kinds, arguments.runs, &mut say).await;
    write_up(&outcome, outputs, text::comparison)
}

async fn run_study(arguments: &StudyArgs) -> anyhow::Result<()> {
    let mut variants = Scenario::load_study(&arguments.scenario)?;
    if let Some(name) = arguments.only.iter().find(|name| !variants.iter().any(|(known, _)| known == *name)) {
        let known: Vec<&str> = variants.iter().map(|(name, _)| name.as_str()).collect();
        bail!("--only {name}: it must be one of {}", known.join(", "));
    }
    variants.retain(|(name, _)| arguments.only.is_empty() || arguments.only.contains(name));
    leave_out_comparisons(&mut variants);
    if let Some(seed) = arguments.seed {
        variants.iter_mut().for_each(|(_, loaded)| loaded.scenario.seed = seed);
    }
    let with = arguments.with.iter().map(|name| Kind::named(name)).collect::<Result<Vec<_>, _>>()?;
    let program = Kind::Tidegate.program()?;
    let outputs = arguments.outputs.open()?;
    warn_of_debug_build(&program);
    let outcome = compare::study(&variants, &with, arguments.repeat, &mut say).await?;
    write_up(&outcome, outputs, text::study)
}

/// What is not run can't be compared with.
fn leave_out_comparisons(variants: &mut [(String, Loaded)]) {
    let names: Vec<String> = variants.iter().map(|(name, _)| name.clone()).collect();
    for (name, loaded) in variants {
        loaded.scenario.against.retain(|other, _| {
            let runs = names.contains(other);
            if !runs {
                say(&format!("{name} is not held against {other}, which is not run"));
            }
            runs
        });
    }
}

/// Says something to those who watch; a study that nobody watches is still worth finishing.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn warn_of_debug_build(program: &std::path::Path) {
    if cfg!(debug_assertions) || program.components().any(|part| part.as_os_str() == "debug") {
        say(NOT_OPTIMISED);
    }
}

/// Writes results where they are wanted; what was not as it should be is an error.
fn write_up(outcome: &Outcome, outputs: [Output; 3], text: fn(&Comparison) -> String) -> anyhow::Result<()> {
    let Outcome { comparison, failures } = outcome;
    let quiet = outputs.iter().any(Output::is_standard);
    let [json, html, markdown] = outputs;
    html.write(|| Ok(report::html(comparison)))?;
    markdown.write(|| Ok(report::markdown(comparison)))?;
    json.write(|| as_json(comparison))?;
    if !quiet {
        print(&text(comparison))?;
    }
    if failures.is_empty() { Ok(()) } else { bail!("{}; the results were kept", failures.join("; ")) }
}

fn list() -> anyhow::Result<()> {
    for (name, _) in BUILT_IN {
        let scenario = Scenario::load(name)?.scenario;
        print(&format!("{name:<16} {}\n", scenario.about))?;
        for variant in scenario.variants.keys() {
            let varied = Scenario::load(&format!("{name}@{variant}"))?.scenario;
            print(&format!("{:<16} {}\n", format!("  @{variant}"), varied.about))?;
        }
    }
    Ok(())
}

async fn run_sink(port: u16) -> anyhow::Result<()> {
    let sink = Sink::bind(SocketAddr::from(([127, 0, 0, 1], port))).await.context("cannot listen")?;
    print(&format!("taking messages on {}\n", sink.address))?;
    let taken = sink.taken.clone();
    tokio::spawn(sink.run());
    let mut before = 0;
    while !is_interrupted() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = taken.load(Relaxed);
        if now > before {
            print(&format!("{} messages in a second\n", now - before))?;
        }
        before = now;
    }
    Ok(())
}

fn serve_rumqttd(arguments: &RumqttdArgs) -> anyhow::Result<()> {
    match (&arguments.config, arguments.port) {
        (Some(file), _) => peers::rumqttd::serve(file),
        (None, Some(port)) => peers::rumqttd::serve_on(port),
        (None, None) => bail!("--port or --config is needed"),
    }
}

/// A broker that runs already.
async fn reach(target: &str, pid: Option<u32>, scenario: &Scenario) -> anyhow::Result<Target> {
    let Some((host, _)) = target.rsplit_once(':') else {
        bail!("--target {target}: must be host:port, such as 127.0.0.1:1883");
    };
    if scenario.events.iter().any(|event| event.action == Action::RestartBroker) {
        bail!(
            "--target {target}: the scenario restarts the broker, which only works with one that is started here"
        );
    }
    let found = tokio::time::timeout(REACH, tokio::net::lookup_host(target)).await;
    let found =
        found.with_context(|| format!("--target {target}: its name could not be looked up in time"))?;
    let addresses: Vec<SocketAddr> = found.with_context(|| format!("--target {target}"))?.collect();
    let first = addresses.first().with_context(|| format!("--target {target}: it has no address"))?;
    // If none answers, the run says what is wrong with the first one.
    let address = first_open(&addresses).await.unwrap_or(*first);
    Ok(Target::there(address, host.trim_matches(['[', ']']), pid))
}

/// The first address that takes a connection: a name may stand for several, and not all of them for a broker.
async fn first_open(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    for address in addresses.iter().take(MOST_ADDRESSES) {
        let connected = tokio::time::timeout(REACH, tokio::net::TcpStream::connect(address)).await;
        if matches!(connected, Ok(Ok(_))) {
            return Some(*address);
        }
    }
    None
}

/// A run that was cut short or is out of its bands is a failure.
fn judge(loaded: &Loaded, result: &Run) -> anyhow::Result<()> {
    if let Some(error) = &result.error {
        bail!("{error}; the results until then were kept");
    }
    let outside = compare::outside(&loaded.scenario, result);
    if outside.is_empty() { Ok(()) } else { bail!("{}", outside.join("; ")) }
}

fn as_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[tokio::test]
    async fn the_first_address_that_answers_is_used() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert_eq!(first_open(&[closed, open]).await, Some(open));
        assert_eq!(first_open(&[closed]).await, None);
        assert_eq!(first_open(&[]).await, None);
    }
}
