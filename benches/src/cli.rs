//! The command line.

mod text;

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use crate::compare::{self, MEASURES};
use crate::peers::{self, Kind};
use crate::record::Run;
use crate::run::{Target, interrupt, is_interrupted, run};
use crate::scenario::{BUILT_IN, Loaded, Scenario};
use crate::sink::Sink;
use crate::{process, report};

const EXAMPLES: &str = "\
Examples:
  tidegate-bench run fan-in                             start Tidegate and run a scenario against it
  tidegate-bench run flood --target broker.local:1883   the same against any MQTT broker
  tidegate-bench run mine.toml --json out.json          a scenario of your own, with all figures
  tidegate-bench run flood@qos0 --broker mosquitto      a variant of a scenario, against Mosquitto
  tidegate-bench compare flood,fan-in --with mosquitto,nats,rumqttd --html report.html
  tidegate-bench list                                   the scenarios that come with the program
  tidegate-bench sink --port 1883 &                     how fast is the generator itself?
  tidegate-bench run flood@qos0 --target 127.0.0.1:1883";

/// An MQTT load generator that checks what it measures, and compares brokers.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench", version, after_help = EXAMPLES, disable_help_subcommand = true)]
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
    /// The broker to start: tidegate, mosquitto, nats, rumqttd
    #[arg(long, value_name = "NAME", default_value = "tidegate")]
    broker: String,
    /// The target's process, to see what it uses
    #[arg(long, requires = "target")]
    pid: Option<u32>,
    /// Write all figures as JSON; - is the standard output
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write a page with the plots
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Write a table
    #[arg(long, value_name = "OUT")]
    markdown: Option<PathBuf>,
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
    let mut target = match &arguments.target {
        Some(target) => reach(target, arguments.pid)?,
        None => Kind::named(&arguments.broker)?.start(&loaded.scenario).await?,
    };
    let result = run(&loaded, &mut target, 1).await;
    if let Some(peer) = target.peer {
        peer.stop().await;
    }
    if arguments.json.as_deref() != Some(Path::new("-")) {
        print(&text::run(&result))?;
    }
    write_json(arguments.json.as_deref(), &result)?;
    write(arguments.html.as_deref(), || report::run_html(&result))?;
    write(arguments.markdown.as_deref(), || report::run_markdown(&result))?;
    judge(&loaded, &result)
}

async fn run_compare(arguments: &CompareArgs) -> anyhow::Result<()> {
    let scenarios: Vec<Loaded> =
        arguments.scenarios.iter().map(|name| Scenario::load(name)).collect::<Result<_, _>>()?;
    let mut kinds = vec![Kind::Tidegate];
    for name in &arguments.with {
        let kind = Kind::named(name)?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    // What the comparison is for must be there.
    Kind::Tidegate.program()?;
    let quiet = arguments.json.as_deref() == Some(Path::new("-"));
    let mut tell = |line: &str| {
        // A comparison that nobody watches is still worth finishing.
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    let comparison = compare::compare(&scenarios, &kinds, arguments.runs, &mut tell).await;
    if !quiet {
        print(&text::comparison(&comparison))?;
    }
    write_json(arguments.json.as_deref(), &comparison)?;
    write(arguments.html.as_deref(), || report::html(&comparison))?;
    write(arguments.markdown.as_deref(), || report::markdown(&comparison))
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

fn reach(target: &str, pid: Option<u32>) -> anyhow::Result<Target> {
    let Some((host, _)) = target.rsplit_once(':') else {
        bail!("--target {target}: must be host:port, such as 127.0.0.1:1883");
    };
    let mut addresses = target.to_socket_addrs().with_context(|| format!("--target {target}"))?;
    let address = addresses.next().with_context(|| format!("--target {target}: it has no address"))?;
    Ok(Target::there(address, host.trim_matches(['[', ']']), pid))
}

/// A run that was cut short or is out of its bands is a failure.
fn judge(loaded: &Loaded, result: &Run) -> anyhow::Result<()> {
    if let Some(error) = &result.error {
        bail!("{error}; the results until then were kept");
    }
    let mut outside = Vec::new();
    for (name, [low, high]) in &loaded.scenario.expect {
        let measure = MEASURES.iter().find(|measure| measure.name == name);
        let value = measure.and_then(|measure| (measure.read)(result));
        if !value.is_some_and(|value| (*low..=*high).contains(&value)) {
            let value = value.map_or("unknown".to_owned(), |value| value.to_string());
            outside.push(format!("{name} is {value}, expected {low} to {high}"));
        }
    }
    if outside.is_empty() { Ok(()) } else { bail!("{}", outside.join("; ")) }
}

fn write_json(path: Option<&Path>, value: &impl Serialize) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value)? + "\n";
    if path == Path::new("-") {
        print(&text)
    } else {
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, text()).with_context(|| path.display().to_string())
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
