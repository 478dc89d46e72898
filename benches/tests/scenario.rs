//! What a scenario file can say, and what is refused before anything runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tidegate_bench::codec::Version;
use tidegate_bench::scenario::{Action, BUILT_IN, CouplingName, Scenario, Service};

const GOOD: &str = r#"
    name = "good"
    duration = 5.0
    # more
    [[class]]
    name = "sensor"
    devices = 20
    topic = "t/%i"
    # class
    [[consumers]]
    name = "worker"
    instances = 2
    filter = "t/#"
    # consumers
"#;

/// The mistake in the file after this change.
fn mistake(at: &str, more: &str) -> String {
    let text = GOOD.replacen(at, &format!("{more}\n{at}"), 1);
    assert_ne!(text, GOOD);
    match Scenario::parse("mine.toml", &text, None) {
        Ok(_) => panic!("{more} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_without_mistakes_is_taken() {
    Scenario::parse("mine.toml", GOOD, None).unwrap();
}

#[test]
fn clients_of_the_same_name_are_refused() {
    let class =
        |name: &str, more: &str| format!("[[class]]\nname = \"{name}\"\ndevices = 5\ntopic = \"u\"\n{more}");
    for (text, id) in [
        (class("sensor", "client = \"other\""), "two classes"),
        (class("other", "client = \"sensor\""), "\"sensor0\""),
        (class("sensor1", ""), "\"sensor10\""),
        (class("worker", ""), "\"worker0\""),
        ("[[consumers]]\nname = \"worker\"\ninstances = 1\nfilter = \"u\"".to_owned(), "\"worker0\""),
        ("[[consumers]]\nname = \"sensor\"\ninstances = 1\nfilter = \"u\"".to_owned(), "\"sensor0\""),
    ] {
        let error = mistake("# consumers", &text);
        assert!(error.contains(id) && error.contains("mine.toml"), "{text}: {error}");
    }
    let fine = GOOD.replace("# consumers", &class("sensor2", ""));
    Scenario::parse("mine.toml", &fine, None).expect("sensor has no device 20");
}

#[test]
fn events_that_could_not_happen_are_refused() {
    let event = |words: &str| format!("[[event]]\nat = 0.5\n{words}");
    for (words, parts) in [
        ("do = \"drop-devices\"\nwho = \"senzor\"", &["event.who", "senzor", "sensor"][..]),
        ("do = \"drop-devices\"\nwho = \"worker\"", &["event.who", "worker", "sensor"]),
        ("do = \"drop-consumers\"\nwho = \"sensor\"", &["event.who", "sensor", "worker"]),
        ("do = \"stop-relay\"", &["event.do", "[relay]"]),
        ("do = \"resume-relay\"", &["event.do", "[relay]"]),
        ("do = \"restart-broker\"\nwho = \"worker\"", &["who"]),
        ("do = \"restart-broker\"\nshare = 0.5", &["share"]),
        ("do = \"drop-devices\"\nshare = 1.5", &["event.share", "1.5"]),
    ] {
        let error = mistake("# consumers", &event(words));
        assert!(parts.iter().all(|part| error.contains(part)), "{words}: {error}");
    }
    let alone = GOOD.split("[[consumers]]").next().unwrap();
    let error = Scenario::parse("x", &format!("{alone}{}", event("do = \"drop-consumers\"")), None);
    assert!(error.unwrap_err().to_string().contains("nobody"));
    for words in ["do = \"drop-devices\"\nwho = \"sensor\"", "do = \"drop-consumers\"\nwho = \"worker\""] {
        Scenario::parse("x", &GOOD.replace("# consumers", &event(words)), None).unwrap();
    }
}

#[test]
fn sizes_without_bounds_are_refused() {
    let long = "x".repeat(300);
    let many = (0..1001).map(|_| "[0.5, 1.0]").collect::<Vec<_>>().join(",");
    for (at, more, part) in [
        ("# more", "autoscale = { start_delay = inf }".to_owned(), "autoscale.start_delay"),
        ("# more", "autoscale = { start_delay = nan }".to_owned(), "autoscale.start_delay"),
        ("# more", "autoscale = { start_delay = -1.0 }".to_owned(), "autoscale.start_delay"),
        ("# more", "autoscale = { interval = inf }".to_owned(), "autoscale.interval"),
        ("# more", "warmup = inf".to_owned(), "warmup"),
        ("# more", "patience = inf".to_owned(), "patience"),
        ("# more", "drain = 3600.0\ninterval = 0.01".to_owned(), "interval"),
        ("# more", format!("connect = {{ login = [\"{}\", \"\"] }}", "x".repeat(1001)), "user"),
        ("# more", format!("workload = {{ points = [{many}] }}"), "workload.points"),
        ("# more", "expect = { p99 = [0.0, nan] }".to_owned(), "expect.p99"),
        ("# class", format!("client = \"{long}\""), "client"),
        ("# class", "client = \"\"".to_owned(), "client"),
        ("# class", "client = \"a\\nb\"".to_owned(), "client"),
        ("# class", "payload = 2000000".to_owned(), "payload"),
        (
            "# class",
            "[[class]]\nname = \"x\"\ndevices = 2000\npayload = 1000000\ntopic = \"u\"".to_owned(),
            "payload",
        ),
        (
            "# class",
            "[[class]]\nname = \"x\"\ndevices = 100000\ntopic = \"u\"\n\
          [[consumers]]\nname = \"y\"\ninstances = 1000\nfilter = \"u\""
                .to_owned(),
            "recipients",
        ),
        ("# consumers", "receive_buffer = 1".to_owned(), "receive_buffer"),
        ("# consumers", "receive_maximum = 0".to_owned(), "receive_maximum"),
        ("# consumers", "group = \"a/b\"".to_owned(), "group"),
        ("# consumers", "group = \"\"".to_owned(), "group"),
        ("# consumers", "schedule = [[0.0, 1.5]]".to_owned(), "schedule"),
        ("# consumers", "schedule = [[0.0, 3.0]]".to_owned(), "schedule"),
        ("# consumers", format!("speed = [{many}]"), "speed"),
        ("# class", "fair_with = \"nobody\"".to_owned(), "fair_with"),
        ("# class", "batch = 0".to_owned(), "batch"),
        ("# more", "broker = { kind = \"hivemq\" }".to_owned(), "broker.kind"),
        ("# more", "expect = { \"class.nobody.p99\" = [0, 1] }".to_owned(), "class.nobody.p99"),
        ("# consumers", "[variant.base]\nseed = 2".to_owned(), "base"),
        ("# more", "study = [\"x\"]\nvariant = { y = { seed = 2 } }".to_owned(), "study"),
        (
            "# more",
            "reference = { name = \"r\", values = { y = { nonsense = 1.0 } } }\nvariant = { y = { seed = 2 } }"
                .to_owned(),
            "reference.values.y.nonsense",
        ),
    ] {
        let error = mistake(at, &more);
        let short: String = more.chars().take(80).collect();
        assert!(error.contains(part) && error.len() < 2000, "{short}: {error}");
    }
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{GOOD}#{}", "x".repeat(1_000_000))).unwrap();
    let error = Scenario::load(file.path().to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("1000000 bytes"), "{error}");
}

/// All that the experiments on overload control need: a pattern, several classes, some of which follow, an auto-scaler.
const CASE_STUDY: &str = r#"
    name = "case-study"
    about = "Devices come and go in a day; an auto-scaler adds workers; some devices do as they are told."
    duration = 300.0
    interval = 1.0
    version = "5"

    [workload]
    pattern = "case-study"

    [[class]]
    name = "legacy"
    devices = 60
    rate = 2.0
    qos = 1
    version = "3.1.1"
    topic = "case/legacy/%i"

    [[class]]
    name = "following"
    devices = 200
    rate = 2.0
    qos = 1
    follows = true
    deaf = 0.05
    jitter = 0.1
    topic = "case/following/%i"

    [[class]]
    name = "alarm"
    devices = 5
    rate = 0.5
    qos = 2
    patterned = false
    topic = "case/alarm/%i"

    [[consumers]]
    name = "worker"
    instances = 8
    group = "workers"
    filter = "case/#"
    qos = 1
    rate = 50.0
    service = "exponential"
    receive_maximum = 20

    [autoscale]
    min = 1
    upper = 10
    lower = 0
    interval = 2.0
    start_delay = 2.0
    coupling = "state-aware"

    [[event]]
    at = 0.5
    do = "drop-devices"
    who = "following"
    share = 0.2

    [relay]
    side = "devices"
    drop = 0.01

    [broker]
    tidegate = ["overload.enabled=true"]

    [expect]
    lost_share = [0.0, 2.0]

    [variant.demand-aware]
    about = "The same with an auto-scaler that knows what is held back."
    autoscale = { coupling = "demand-aware", utilisation = 0.8 }

    [variant.own-day]
    about = "The same with a day of one's own."
    workload = { points = [[0.0, 0.1], [0.5, 1.0], [1.0, 0.2]] }
"#;

#[test]
fn the_format_carries_the_case_study() {
    let scenario = Scenario::parse("case-study.toml", CASE_STUDY, None).unwrap();
    let [legacy, following, alarm] = &scenario.classes[..] else { panic!("{:?}", scenario.classes) };
    assert!(!legacy.follows && legacy.version == Some(Version::V311));
    assert!(following.follows && following.deaf == 0.05 && following.patterned);
    assert!(!alarm.patterned && alarm.qos == 2);
    let pattern = scenario.pattern().unwrap();
    let shares: Vec<f64> = (0..=10).map(|tenth| pattern.share(f64::from(tenth) / 10.0)).collect();
    assert!(shares.iter().any(|share| *share != shares[0]), "devices come and go: {shares:?}");
    assert_eq!(scenario.consumers[0].service, Service::Exponential);
    let scaler = scenario.scaler_config().unwrap();
    assert_eq!((scaler.min, scaler.max, scaler.upper), (1, 8, 10), "it may start all instances");
    assert_eq!(scenario.events[0].action, Action::DropDevices);
    assert_eq!(scenario.relay.unwrap().drop, 0.01);
    let other = Scenario::parse("case-study.toml", CASE_STUDY, Some("demand-aware")).unwrap();
    let settings = other.autoscale.unwrap();
    assert_eq!((settings.coupling, settings.min, settings.upper), (CouplingName::DemandAware, 1, 10));
}

#[test]
fn a_variant_can_replace_the_pattern_by_points() {
    let scenario = Scenario::parse("case-study.toml", CASE_STUDY, Some("own-day")).unwrap();
    assert_eq!(scenario.pattern().unwrap().share(0.25), 0.55);
    let both = CASE_STUDY.replacen("pattern =", "points = [[0.0, 1.0]]\npattern =", 1);
    let error = Scenario::parse("case-study.toml", &both, None).unwrap_err().to_string();
    assert!(error.contains("either pattern or points"), "{error}");
}

#[test]
fn every_scenario_and_every_variant_that_comes_with_the_program_can_be_run() {
    for (name, _) in BUILT_IN {
        let scenario = Scenario::load(name).unwrap().scenario;
        for variant in scenario.variants.keys() {
            Scenario::load(&format!("{name}@{variant}")).unwrap();
        }
        let study = Scenario::load_study(name).unwrap();
        assert!(!study.is_empty(), "{name}");
        for (_, loaded) in study {
            loaded.scenario.broker_kind().unwrap();
        }
    }
}

#[test]
fn a_study_has_the_columns_that_its_file_names_in_their_order() {
    let labels = |text: &str| -> Vec<Option<String>> { Scenario::parse("x", text, None).unwrap().columns() };
    let variants = "[variant.b]\nseed = 2\n[variant.a]\nseed = 3\n[variant.c]\nseed = 4";
    let all = GOOD.replace("# consumers", variants);
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(labels(&all), [None, named("a"), named("b"), named("c")]);
    let some = all.replace("# more", "study = [\"c\", \"base\"]");
    assert_eq!(labels(&some), [named("c"), None]);
}

#[test]
fn a_variant_can_take_a_band_away() {
    let text = GOOD.replace("# more", "expect = { lost = [0, 0], p99 = [0, 5] }");
    let text = text.replace("# consumers", "[variant.a]\nexpect = { p99 = [] }");
    let expect =
        |variant| Scenario::parse("x", &text, variant).unwrap().expect.into_keys().collect::<Vec<_>>();
    assert_eq!(expect(None), ["lost", "p99"]);
    assert_eq!(expect(Some("a")), ["lost"]);
}
