#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::CommandFactory;
use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_plugin::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::serve::{Gateway, Running};
use super::signals::{Signal, Signals};
use super::*;
use crate::config::Settings;
use crate::listen::Stream;

fn parse(arguments: &[&str]) -> Cli {
    Cli::try_parse_from([&["tidegate"], arguments].concat()).unwrap()
}

fn loaded(set: &[&str]) -> Loaded {
    let set = set.iter().map(ToString::to_string).collect();
    load(&Sources { set, ..Sources::default() }).unwrap()
}

mod arguments {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serving_is_the_default() {
        let cli = parse(&["--config", "a.toml", "--set", "x=1", "--set", "y=2"]);
        assert!(cli.command.is_none());
        assert_eq!(cli.configuration.config, Some("a.toml".into()));
        assert_eq!(cli.configuration.set, ["x=1", "y=2"]);
        assert!(matches!(parse(&["serve", "--set", "x=1"]).command, Some(Command::Serve(_))));
        assert!(matches!(parse(&["check"]).command, Some(Command::Check(_))));
        assert!(matches!(parse(&["passwd", "f", "u", "--delete"]).command, Some(Command::Passwd(_))));
    }

    #[test]
    fn help_has_examples_and_the_version_is_told() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("tidegate check --config tidegate.toml"), "{help}");
        let version = Cli::try_parse_from(["tidegate", "--version"]).unwrap_err().to_string();
        assert_eq!(version.trim(), format!("tidegate {}", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn a_refused_configuration_exits_with_2() {
        let error = parse(&["check", "--set", "listen.mqt=1"]).run().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(
            error.to_string().starts_with("the configuration is refused:\n  --set listen.mqt=1: "),
            "{error}"
        );
        assert_eq!(parse(&["check", "--config", "/nowhere"]).run().unwrap_err().exit_code(), 2);
    }
}

mod telling {
    use super::*;

    #[test]
    fn check_says_what_would_listen() {
        let mut out = Vec::new();
        check::check(
            &loaded(&["listen.ws=0.0.0.0:8080", "access.rules=config/examples/rules.txt"]),
            &mut out,
        )
        .unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "configuration ok\nTidegate {version}, broker mode\n  configuration  built-in defaults\n  \
             mqtt           127.0.0.1:1883\n  ws             0.0.0.0:8080\n  \
             admin          http://127.0.0.1:9464/metrics\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn check_warns_too() {
        let mut out = Vec::new();
        check::check(&loaded(&["listen.mqtt=0.0.0.0:1883"]), &mut out).unwrap();
        assert!(
            String::from_utf8(out).unwrap().contains("\nWARNING: everybody who can reach 0.0.0.0:1883 may")
        );
    }

    fn warnings(set: &[&str]) -> Vec<String> {
        banner::warnings(&loaded(set).settings)
    }

    #[test]
    fn loopback_needs_no_warning() {
        assert!(warnings(&[]).is_empty());
        assert!(warnings(&["listen.mqtt=[::1]:1883, 127.9.9.9:1883"]).is_empty());
    }

    #[test]
    fn an_open_door_gets_a_warning() {
        for open in ["listen.mqtt=0.0.0.0:1883", "listen.ws=[::]:80", "listen.mqtt=10.0.0.1:1883"] {
            let found = warnings(&[open]);
            assert!(found.len() == 1 && found[0].contains("set access.users"), "{open}: {found:?}");
        }
    }

    #[test]
    fn users_do_not_help_while_everybody_may_be_anonymous() {
        let open = ["listen.mqtt=0.0.0.0:1883", "access.users=config/examples/users.txt"];
        assert!(warnings(&open)[0].contains("set access.anonymous = false"));
        let closed = [open[0], open[1], "access.anonymous=false"];
        assert!(warnings(&closed).is_empty());
        assert!(warnings(&[open[0], "access.rules=config/examples/rules.txt"]).is_empty());
    }

    #[test]
    fn required_certificates_close_the_door() {
        let mut settings = Settings::default();
        settings.listen.mqtts = vec!["0.0.0.0:8883".parse().unwrap()];
        assert_eq!(banner::warnings(&settings).len(), 1);
        settings.tls.require_client_certificate = true;
        assert!(banner::warnings(&settings).is_empty());
    }

    #[test]
    fn a_target_that_cannot_be_gets_a_warning() {
        let rule = "overload.protect=[{filter=\"a/*\"},{filter=\"b/*\",target_delay_ms=500}]";
        let found = warnings(&[rule]);
        assert!(
            found.len() == 1 && found[0].contains("overload.protect.1.target_delay_ms = 500"),
            "{found:?}"
        );
        assert!(found[0].contains("no more than 60 counts"), "{found:?}");
        assert!(warnings(&[rule, "queue.max_delay_ms=1000"]).is_empty());
        assert!(warnings(&[rule, "plugins=[\"access\"]"]).is_empty());
    }

    #[test]
    fn a_gate_without_rates_gets_a_warning() {
        let found = warnings(&["plugins=[\"access\",\"gate\"]"]);
        assert!(found.len() == 1 && found[0].contains("add \"overload\" to plugins"), "{found:?}");
        assert!(warnings(&["plugins=[\"access\",\"overload\"]"]).is_empty());
        assert!(warnings(&["plugins=[\"overload\",\"gate\"]"]).is_empty());
    }

    #[test]
    fn an_open_admin_endpoint_gets_a_warning() {
        assert!(
            warnings(&["admin.listen=0.0.0.0:9464"])[0].starts_with("the admin endpoint on 0.0.0.0:9464")
        );
    }
}

mod serving {
    use super::*;

    /// Echoes until it is told to drain.
    #[derive(Clone)]
    struct Echo {
        draining: watch::Sender<bool>,
        reloads: Arc<AtomicUsize>,
    }

    impl Echo {
        fn new() -> Self {
            Self { draining: watch::Sender::new(false), reloads: Arc::default() }
        }
    }

    impl Gateway for Echo {
        async fn serve(self, mut stream: Stream) {
            let mut draining = self.draining.subscribe();
            let mut buffer = [0; 100];
            loop {
                tokio::select! {
                    read = stream.read(&mut buffer) => match read {
                        Ok(0) | Err(_) => return,
                        Ok(length) => stream.write_all(&buffer[..length]).await.unwrap(),
                    },
                    () = async { drop(draining.wait_for(|draining| *draining).await) } => {
                        stream.write_all(b"bye").await.unwrap();
                        return;
                    }
                }
            }
        }

        fn drain(&self) {
            self.draining.send_replace(true);
        }

        fn reload(&self) -> Vec<String> {
            self.reloads.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        }

        fn refresh_metrics(&self) {
            metrics::counter!("refreshed_total").increment(1);
        }

        fn request(&self, _: &Request<'_>) -> Option<Response> {
            None
        }
    }

    fn anywhere() -> Loaded {
        loaded(&["listen.mqtt=127.0.0.1:0", "listen.ws=127.0.0.1:0", "admin.listen=127.0.0.1:0"])
    }

    /// The address in the banner's line for this.
    fn address(banner: &str, name: &str) -> String {
        let line = banner.lines().find(|line| line.trim_start().starts_with(name)).expect(name);
        let address = line.split_whitespace().last().unwrap();
        address.trim_start_matches("http://").trim_end_matches("/metrics").to_owned()
    }

    async fn get(address: &str, path: &str) -> String {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        rest(&mut client).await
    }

    async fn rest(client: &mut TcpStream) -> String {
        let mut text = String::new();
        let reading = client.read_to_string(&mut text);
        tokio::time::timeout(Duration::from_secs(30), reading).await.expect("no answer within 30 s").unwrap();
        text
    }

    #[tokio::test]
    async fn clients_are_served_and_counted() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let running = Running::start(&anywhere(), Echo::new(), recorder.handle()).unwrap();
        let mut client = TcpStream::connect(address(&running.banner, "mqtt")).await.unwrap();
        client.write_all(b"hi").await.unwrap();
        client.read_exact(&mut [0; 2]).await.unwrap();
        let admin = address(&running.banner, "admin");
        assert!(get(&admin, "/readyz").await.starts_with("HTTP/1.1 200 "));
        let metrics = get(&admin, "/metrics").await;
        for line in [
            "refreshed_total 1",
            "# HELP tidegate_connections_open Connections now",
            "tidegate_connections_open 1",
            "tidegate_connections_accepted_total 1",
            "tidegate_connections_refused_total{reason=\"limit\"} 0",
        ] {
            assert!(metrics.contains(line), "{line} is not in\n{metrics}");
        }
    }

    #[tokio::test]
    async fn draining_lets_clients_say_good_bye() {
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let mut running = Running::start(&anywhere(), Echo::new(), metrics).unwrap();
        let (mqtt, admin) = (address(&running.banner, "mqtt"), address(&running.banner, "admin"));
        let mut client = TcpStream::connect(&mqtt).await.unwrap();
        client.write_all(b"hi").await.unwrap();
        client.read_exact(&mut [0; 2]).await.unwrap();
        tokio::time::timeout(Duration::from_secs(30), running.drain()).await.expect("drains within 30 s");
        assert_eq!(rest(&mut client).await, "bye");
        assert!(TcpStream::connect(&mqtt).await.is_err());
        assert!(TcpStream::connect(&admin).await.is_err());
    }

    #[tokio::test]
    async fn nothing_starts_if_an_address_is_taken() {
        let metrics = || PrometheusBuilder::new().build_recorder().handle();
        let running = Running::start(&anywhere(), Echo::new(), metrics()).unwrap();
        let taken = address(&running.banner, "admin");
        let set = ["listen.mqtt=127.0.0.1:0", &format!("admin.listen={taken}")];
        let error = Running::start(&loaded(&set), Echo::new(), metrics()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("(`admin.listen`)"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }

    /// The only test that sends signals: they reach every `Signals` in this process.
    #[tokio::test]
    async fn signals_reload_and_drain() {
        use rustix::process::{Signal as Os, getpid, kill_process};
        let mut seen = Signals::new().unwrap();
        for (os, expected) in
            [(Os::HUP, Signal::Reload), (Os::TERM, Signal::Shutdown), (Os::INT, Signal::Shutdown)]
        {
            kill_process(getpid(), os).unwrap();
            assert_eq!(seen.next().await, expected);
        }

        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let gateway = Echo::new();
        let mut running = Running::start(&anywhere(), gateway.clone(), metrics).unwrap();
        let signals = Signals::new().unwrap();
        let serving = tokio::spawn(async move { running.until_shutdown(signals).await });
        kill_process(getpid(), Os::HUP).unwrap();
        while gateway.reloads.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        kill_process(getpid(), Os::TERM).unwrap();
        tokio::time::timeout(Duration::from_secs(30), serving).await.expect("stops within 30 s").unwrap();
        assert!(*gateway.draining.borrow());
    }
}
