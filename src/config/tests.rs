#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn set(texts: &[&str]) -> Sources {
    Sources { set: texts.iter().map(ToString::to_string).collect(), ..Sources::default() }
}

fn refusal(sources: &Sources) -> String {
    load(sources).expect_err("must be refused").to_string()
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

fn with_file(path: &Path) -> Sources {
    Sources { file: Some(path.to_owned()), ..Sources::default() }
}

mod precedence {
    use super::*;

    #[test]
    fn defaults_alone_are_fine() {
        let loaded = load(&Sources::default()).unwrap();
        assert_eq!(loaded, Loaded { settings: Settings::default(), file: None });
        assert_eq!(loaded.settings.listen.mqtt, ["127.0.0.1:1883".parse().unwrap()]);
        assert_eq!(loaded.settings.admin.listen, ["127.0.0.1:9464".parse().unwrap()]);
    }

    #[test]
    fn set_beats_environment_beats_file_beats_defaults() {
        let home = Home::new();
        let file = home.write(
            "t.toml",
            "[session]\nmax_keep_alive = 1\nmax_inflight = 1\nreceive_maximum = 1\n[listen]\nmqtt = '127.0.0.1:1'",
        );
        let sources = Sources {
            environment: environment(&[
                ("TIDEGATE_SESSION__MAX_KEEP_ALIVE", "2"),
                ("TIDEGATE_SESSION__MAX_INFLIGHT", "2"),
            ]),
            set: vec!["session.max_keep_alive=3".into()],
            ..with_file(&file)
        };
        let session = load(&sources).unwrap().settings.session;
        assert_eq!(
            (session.max_keep_alive, session.max_inflight, session.receive_maximum, session.max_client_id),
            (3, 2, 1, SessionSettings::default().max_client_id)
        );
    }

    #[test]
    fn the_last_set_wins() {
        let loaded = load(&set(&["session.max_inflight=5", "session.max_inflight=6"])).unwrap();
        assert_eq!(loaded.settings.session.max_inflight, 6);
    }

    #[test]
    fn a_list_replaces_a_list() {
        let loaded = load(&set(&["listen.mqtt=[\"0.0.0.0:1\", \"[::]:1\"]"])).unwrap();
        assert_eq!(loaded.settings.listen.mqtt.len(), 2);
    }

    #[test]
    fn the_first_usual_file_that_exists_is_read() {
        let home = Home::new();
        let second = home.write("second.toml", "[session]\nmax_inflight = 7\n");
        let third = home.write("third.toml", "[session]\nmax_inflight = 8\n");
        let usual_files = vec![home.0.path().join("first.toml"), second.clone(), third];
        let loaded = load(&Sources { usual_files, ..Sources::default() }).unwrap();
        assert_eq!((loaded.settings.session.max_inflight, loaded.file), (7, Some(second)));
    }
}

mod values {
    use super::*;

    #[test]
    fn text_needs_no_quotes() {
        let loaded = load(&set(&[
            "listen.mqtt=[::1]:1883",
            "listen.ws=127.0.0.1:8080, 127.0.0.1:8081",
            "log.level=info,tidegate=debug",
            "log.format=json",
        ]))
        .unwrap();
        assert_eq!(loaded.settings.listen.mqtt, ["[::1]:1883".parse().unwrap()]);
        assert_eq!(loaded.settings.listen.ws.len(), 2);
        assert_eq!(loaded.settings.log.level, "info,tidegate=debug");
        assert_eq!(loaded.settings.log.format, LogFormat::Json);
    }

    #[test]
    fn toml_values_work_too() {
        let loaded = load(&set(&[
            "log.level=\"warn\"",
            "queue.never_hold=[{ client = \"debug-*\" }]",
            "admin.listen=[]",
            "session.max_packet_size=1_000_000",
        ]))
        .unwrap();
        assert_eq!(loaded.settings.queue.never_hold[0].client.as_deref(), Some("debug-*"));
        assert!(loaded.settings.admin.listen.is_empty());
        assert_eq!(loaded.settings.session.max_packet_size, 1_000_000);
    }

    #[test]
    fn text_cannot_smuggle_in_other_keys() {
        let loaded = load(&set(&["access.users=", "log.level=info"])).unwrap();
        assert_eq!(loaded.settings.access.users, None);
        assert!(refusal(&set(&["log.level=1\nvalue2 = 2"])).contains("log.level"));
    }

    #[test]
    fn variables_can_be_written_with_one_underscore() {
        let sources = Sources {
            environment: environment(&[
                ("TIDEGATE_LISTEN_MQTT", "127.0.0.1:7"),
                ("TIDEGATE_MODE", "broker"),
                ("TIDEGATE_PORT", "tcp://10.0.0.1:1883"),
                ("TIDE", "5"),
            ]),
            ..Sources::default()
        };
        assert_eq!(load(&sources).unwrap().settings.listen.mqtt, ["127.0.0.1:7".parse().unwrap()]);
    }

    #[test]
    fn paths_in_a_file_are_relative_to_it() {
        let home = Home::new();
        home.write("users.txt", "");
        home.write("rules.txt", "");
        let file = home.write("t.toml", "[access]\nusers = \"users.txt\"\nrules = \"rules.txt\"\n");
        let absolute = home.0.path().join("rules.txt");
        let sources =
            Sources { set: vec![format!("access.rules={}", absolute.display())], ..with_file(&file) };
        let access = load(&sources).unwrap().settings.access;
        assert_eq!(access.users, Some(home.0.path().join("users.txt")));
        assert_eq!(access.rules, Some(absolute));
    }

    #[test]
    fn paths_from_elsewhere_are_relative_to_the_working_directory() {
        let loaded = load(&set(&["access.users=Cargo.toml"])).unwrap();
        assert_eq!(loaded.settings.access.users, Some("Cargo.toml".into()));
    }
}

mod refusals {
    use super::*;

    #[test]
    fn a_missing_file_is_named() {
        let error = refusal(&with_file(Path::new("/nowhere/t.toml")));
        assert!(error.contains("no configuration file /nowhere/t.toml"), "{error}");
    }

    #[test]
    fn a_directory_is_no_file() {
        let home = Home::new();
        let error = refusal(&with_file(home.0.path()));
        assert!(error.starts_with("cannot read the configuration file"), "{error}");
    }

    #[test]
    fn broken_toml_names_file_and_line() {
        let home = Home::new();
        let file = home.write("t.toml", "mode = \"broker\"\n[listen\n");
        let error = refusal(&with_file(&file));
        assert!(error.contains("t.toml is not proper TOML") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn an_unknown_key_names_its_file_and_the_right_one() {
        let home = Home::new();
        let file = home.write("t.toml", "[listen]\nmax_conections = 5\n");
        let expected = format!(
            "{}: listen.max_conections = 5: unknown key; did you mean listen.max_connections?",
            file.display()
        );
        assert_eq!(refusal(&with_file(&file)), expected);
    }

    #[test]
    fn an_unknown_table_names_the_keys_in_it() {
        let home = Home::new();
        let file = home.write("t.toml", "[listn]\nmqtt = \"127.0.0.1:1\"\n");
        let error = refusal(&with_file(&file));
        assert!(
            error.contains("listn.mqtt = \"127.0.0.1:1\": unknown key; did you mean listen.mqtt?"),
            "{error}"
        );
    }

    #[test]
    fn all_unknown_keys_are_told_at_once() {
        let error = refusal(&set(&["colour=red", "listen.mqt=1"]));
        assert_eq!(error.lines().count(), 2, "{error}");
        assert!(
            error.contains("--set colour=red: colour = \"red\": unknown key; config/tidegate.toml lists")
        );
    }

    #[test]
    fn an_unknown_variable_is_named_as_it_was_written() {
        let sources =
            Sources { environment: environment(&[("TIDEGATE_LISTEN__MQT", "x")]), ..Sources::default() };
        assert_eq!(
            refusal(&sources),
            "environment variable TIDEGATE_LISTEN__MQT: listen.mqt = \"x\": unknown key; \
             did you mean TIDEGATE_LISTEN__MQTT?"
        );
    }

    #[test]
    fn a_set_must_have_key_and_value() {
        for text in ["listen.mqtt", "=5", "listen..mqtt=5", ".=1"] {
            let error = refusal(&set(&[text]));
            assert!(error.starts_with(&format!("--set {text}: must be key=value")), "{error}");
        }
    }

    /// Each wrong setting, and what its error must say.
    const WRONG: &[(&str, &str)] = &[
        ("session.max_keep_alive=70000", "= 70000: must be a whole number from 0 to 65535"),
        ("session.max_keep_alive=-1", "= -1: must be a whole number from 0 to 65535"),
        ("queue.max_messages=1.5", "= 1.5: must be a whole number, 0 or more"),
        ("queue.max_bytes=nan", "queue.max_bytes = NaN: must be a whole number"),
        ("queue.max_messages=many", "= \"many\": must be a whole number, 0 or more"),
        ("access.anonymous=yes", "= \"yes\": must be true or false"),
        ("access.users=5", "= 5: must be a path, in quotes"),
        ("listen=5", "listen = 5: must be a table with keys of its own"),
        ("mode=brokr", "= \"brokr\": must be \"broker\" or \"proxy\""),
        ("mode=proxy", "= \"proxy\": needs proxy.upstream, the broker's address"),
        ("proxy.upstream=broker", "\"broker\" is not a host and a port"),
        ("proxy.upstream=5", "= 5: must be a text such as \"broker:1883\""),
        ("proxy.timeout_ms=1", "= 1: must be at least 100"),
        ("proxy.max_retry_ms=1", "= 1: must be at least 200"),
        ("proxy.max_inflight=0", "= 0: must be at least 1"),
        ("proxy.tls=true", "needs proxy.ca, the authorities that sign the broker's certificate"),
        ("proxy.server_name=broker", "would not count, since proxy.tls is off"),
        ("log.format=jsn", "must be \"text\" or \"json\"; did you mean \"json\"?"),
        ("listen.mqtt=1883", "= 1883: must be an address such as \"127.0.0.1:1883\""),
        ("listen.mqtt=localhost:1883", "\"localhost:1883\" is not a numeric address and a port"),
        (
            "queue.never_hold=[{ usr = \"x\" }]",
            "queue.never_hold.0.usr = \"x\": unknown key; did you mean user?",
        ),
        ("queue.never_hold=[{}]", "would match every consumer"),
        ("listen.max_connections=0", "= 0: must be at least 1"),
        ("listen.connect_timeout=0", "= 0: must be at least 1"),
        ("listen.max_buffer=0", "= 0: must be at least 1"),
        ("session.receive_maximum=0", "= 0: must be at least 1"),
        ("session.max_packet_size=0", "= 0: must be at least 64"),
        ("session.max_packet_size=300000000", "must be at most 268435460"),
        ("session.max_client_id=22", "must be at least 23"),
        ("queue.max_bytes=0", "= 0: must be at least 1"),
        ("queue.max_delay_ms=0", "= 0: must be at least 1"),
        ("queue.progress_timeout=0", "= 0: must be at least 1"),
        ("overload.prefix=tide/v1", "= \"tide/v1\": must be a topic that starts with \"$tide/\""),
        ("overload.algorithm=drian", "must be \"drain\" or \"phase\"; did you mean \"drain\"?"),
        ("overload.target_delay_ms=0", "= 0: must be at least 1"),
        ("overload.default_rate=-1", "= -1: must be a number above 0, or 0 where it is not known"),
        ("overload.window=0", "= 0: must be at least 1"),
        ("overload.ttl_ms=10", "= 10: must be at least 1000"),
        ("overload.classes=[{ name = \"a\" }]", "overload.classes.0.name = \"a\": needs a pattern"),
        (
            "overload.classes=[{ name = \"a\", client = \"x*\", weight = 0 }]",
            "overload.classes.0.weight = 0: must be a number above 0",
        ),
        (
            "overload.classes=[{ name = \"a\", clent = \"x*\" }]",
            "overload.classes.0.clent = \"x*\": unknown key; did you mean client?",
        ),
        (
            "overload.source=[{ kind = \"rabbitmq\", url = \"http://a:1\" }]",
            "would not count: only mode = \"proxy\" has a broker behind it to ask",
        ),
        (
            "overload.source=[{ kind = \"nats\", url = \"nats:8222\" }]",
            "must be http://, a host and a port, such as \"http://127.0.0.1:15672\"",
        ),
        (
            "overload.source=[{ kind = \"nats\", url = \"http://a:1\", interval_ms = 1 }]",
            "must be at least 100",
        ),
        ("overload.protect=[{ min_qos = 3 }]", "overload.protect.0.min_qos = 3: must be 0, 1 or 2"),
        (
            "plugins=[\"overlod\"]",
            "there is no plugin \"overlod\", only access, autoscale, check, gate, overload; did you mean \"overload\"?",
        ),
        ("listen.mqtt=[]", "nobody could connect; set one of listen.mqtt"),
        (
            "listen.mqtts=127.0.0.1:8883",
            "listen.mqtts = \"127.0.0.1:8883\": needs tls.certificate and tls.key",
        ),
        ("listen.wss=127.0.0.1:8883", "listen.wss = \"127.0.0.1:8883\": needs tls.certificate and tls.key"),
        ("tls.certificate=Cargo.toml", "tls.certificate = \"Cargo.toml\": needs tls.key beside it"),
        ("tls.key=Cargo.toml", "tls.key = \"Cargo.toml\": needs tls.certificate beside it"),
        ("tls.require_client_certificate=true", "= true: needs tls.client_ca"),
        ("admin.listen=127.0.0.1:1883", "127.0.0.1:1883 collides with 127.0.0.1:1883 of listen.mqtt"),
        ("listen.ws=0.0.0.0:1883", "0.0.0.0:1883 collides with 127.0.0.1:1883 of listen.mqtt"),
        ("access.anonymous=false", "nobody could connect; set access.users"),
        ("access.users=/nowhere/users", "cannot use the file /nowhere/users: No such file"),
        ("access.rules=src", "src is not a file"),
        ("plugins=[\"gaet\"]", "did you mean \"gate\"?"),
        ("plugins=[\"gate\",\"overload\"]", "must come after \"overload\""),
        ("gate.excess=refsue", "must be \"delay\" or \"refuse\" or \"close\"; did you mean \"refuse\"?"),
        ("gate.qos0=keep", "= \"keep\": must be \"wait\" or \"drop\""),
        ("gate.slack=nan", "gate.slack = NaN: must be a number from 0 to 10"),
        ("gate.slack=-0.1", "must be a number from 0 to 10"),
        ("gate.slack=much", "= \"much\": must be a number"),
        ("gate.burst=0", "= 0: must be at least 1"),
        ("gate.burst_ms=19", "= 19: must be at least 20"),
        ("gate.close_after=0", "= 0: must be at least 1"),
        ("check.track=[\"a/#/b\"]", "\"a/#/b\" is not a topic filter"),
        ("check.max_rate=0.5", "= 0.5: must be a number from 1 to 1000000"),
        ("check.max_updates=0", "= 0: must be at least 1"),
        ("check.max_looks=0", "= 0: must be at least 1"),
        ("check.max_waiting=0", "= 0: must be at least 1"),
        ("check.max_waiting_bytes=1000", "must be at least 16 times check.max_check"),
        ("check.max_bytes=1000", "must be at least 16 times check.max_payload"),
        ("check.max_answer_bytes=1000", "must be at least check.max_payload"),
        ("check.max_check=999999999", "must be at most"),
        ("check.max_topic=5", "did you mean check.max_topics?"),
        ("autoscale.coupling=demandaware", "did you mean \"demand-aware\"?"),
        ("autoscale.state_ttl=0", "= 0: must be at least 1"),
        ("autoscale.utilisation=0", "must be a number from 0.01 to 1"),
        ("log.level=inof", "= \"inof\": must be one of off, error"),
        ("log.level=inof", "did you mean \"info\"?"),
        ("log.level=tidegate=loud", "is not a log filter"),
        ("log.level=", "must be one of off, error"),
    ];

    #[test]
    fn wrong_values_say_source_key_value_and_what_would_be_right() {
        for (text, expected) in WRONG {
            let error = refusal(&set(&[text]));
            assert!(error.contains(expected), "--set {text} gives:\n  {error}\nbut must hold:\n  {expected}");
            assert!(error.contains(&format!("--set {text}")), "the source is missing in:\n  {error}");
        }
    }

    #[test]
    fn families_and_free_ports_do_not_collide() {
        load(&set(&[
            "listen.mqtt=0.0.0.0:1883, [::]:1883",
            "listen.ws=127.0.0.1:0",
            "admin.listen=127.0.0.1:0",
        ]))
        .unwrap();
    }

    #[test]
    fn several_wrong_values_are_told_at_once() {
        let error = refusal(&set(&["queue.max_bytes=0", "listen.max_buffer=0"]));
        assert_eq!(error.lines().count(), 2, "{error}");
    }
}

/// Everything in `config/`.
mod files {
    use std::collections::HashSet;

    use super::*;
    use crate::listen::Tls;

    const DEFAULT: &str = include_str!("../../config/tidegate.toml");

    fn directory() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("config")
    }

    #[test]
    fn the_default_file_says_what_is_built_in() {
        let file = directory().join("tidegate.toml");
        let expected = Loaded { settings: Settings::default(), file: Some(file.clone()) };
        assert_eq!(load(&with_file(&file)).unwrap(), expected);
    }

    /// Reads `key = ...` and `# key = ...`, with the section before it.
    #[test]
    fn the_default_file_has_every_key() {
        let mut section = "";
        let mut written = HashSet::new();
        for line in DEFAULT.lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']');
            }
            let (key, _) = line.trim_start_matches("# ").split_once(" = ").unwrap_or_default();
            if key.chars().all(|c| c.is_ascii_lowercase() || "_0".contains(c)) {
                written.insert(format!("{section}.{key}").trim_matches('.').to_owned());
            }
        }
        let missing: Vec<_> = keys::all().iter().filter(|key| !written.contains(*key)).collect();
        assert!(missing.is_empty(), "not in config/tidegate.toml: {missing:?}");
    }

    #[test]
    fn commented_keys_are_right_as_well() {
        let home = Home::new();
        let names = ["server.pem", "server.key", "clients.pem", "users.txt", "rules.txt"];
        names.iter().for_each(|name| drop(home.write(name, "")));
        let uncommented: Vec<_> = DEFAULT
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if names.iter().any(|name| rest.ends_with(&format!(" = \"{name}\""))) => rest,
                _ => line,
            })
            .collect();
        let settings = load(&with_file(&home.write("t.toml", &uncommented.join("\n")))).unwrap().settings;
        let given = |path: Option<PathBuf>| path.is_some_and(|path| path.starts_with(home.0.path()));
        assert!(
            given(settings.tls.client_ca) && given(settings.access.users) && given(settings.access.rules)
        );
    }

    /// The examples name certificates that operators make themselves; here they are made beside a copy.
    #[test]
    fn every_file_loads() {
        let home = Home::new();
        make_certificates(&home.0.path().join("certificates"));
        let mut seen = 0;
        for directory in [directory(), directory().join("examples")] {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    fs::copy(&path, home.0.path().join(path.file_name().unwrap())).unwrap();
                }
            }
        }
        for entry in fs::read_dir(home.0.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let loaded = load(&with_file(&path)).unwrap_or_else(|error| panic!("{error}"));
                Tls::load(&loaded.settings.tls).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                seen += 1;
            }
        }
        assert!(seen >= 5, "only {seen} files");
    }

    fn make_certificates(directory: &Path) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap().pem();
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("server.pem"), &certificate).unwrap();
        fs::write(directory.join("clients.pem"), &certificate).unwrap();
        fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
    }
}
