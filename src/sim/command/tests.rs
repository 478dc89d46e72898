#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use std::fs;

fn scenarios() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/scenarios");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn sim_args(file: PathBuf) -> SimArgs {
    SimArgs { file, seed: None, json: None, plot: None }
}

/// A directory of this test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-sim-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SMALL: &str = r#"
name = "small"
duration = 20.0
workload = { pattern = "constant" }
class = [{ name = "a", devices = 10, rate = 2.0 }]
consumers = { instances = 2, rate = 5.5 }
controller = { kind = "drain" }
"#;

#[test]
fn every_scenario_of_the_house_is_sound_and_does_what_it_expects() {
    let files = scenarios();
    assert!(files.len() >= 10);
    for file in files {
        let scenario = Scenario::load(&file).unwrap_or_else(|error| panic!("{error}"));
        assert!(!scenario.expect.is_empty(), "{} expects nothing", file.display());
        let messages: f64 =
            scenario.classes.iter().map(|c| f64::from(c.devices) * c.rate * scenario.duration).sum();
        if messages > 1e6 {
            // The large ones are for `tidegate sim` itself; a test build would take minutes.
            continue;
        }
        let mut out = Vec::new();
        run_sim(&sim_args(file.clone()), &mut out)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", file.display(), String::from_utf8_lossy(&out)));
    }
}

#[test]
fn a_run_gives_a_table_json_and_a_picture_and_the_same_seed_the_same_bytes() {
    let scratch = Scratch::new("outputs");
    let file = scratch.file("small.toml", SMALL);
    let output = |name: &str, seed| {
        let (json, plot) = (scratch.0.join(format!("{name}.json")), scratch.0.join(format!("{name}.svg")));
        let mut out = Vec::new();
        let args =
            SimArgs { seed, json: Some(json.clone()), plot: Some(plot.clone()), ..sim_args(file.clone()) };
        run_sim(&args, &mut out).unwrap();
        (out, fs::read(json).unwrap(), fs::read(plot).unwrap())
    };
    let first = output("first", None);
    assert_eq!(first, output("second", Some(1)));
    assert_ne!(first, output("third", Some(2)));
    let table = String::from_utf8(first.0).unwrap();
    assert!(table.contains("processed_share") && table.contains("class.a.held_rate"), "{table}");
    let json: serde_json::Value = serde_json::from_slice(&first.1).unwrap();
    assert_eq!(json["series"].as_array().unwrap().len(), 40);
    assert!(first.2.starts_with(b"<svg"));
}

#[test]
fn json_can_go_to_the_standard_output_alone() {
    let scratch = Scratch::new("stdout");
    let args = SimArgs { json: Some("-".into()), ..sim_args(scratch.file("small.toml", SMALL)) };
    let mut out = Vec::new();
    run_sim(&args, &mut out).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(json["scenario"], "small");
}

#[test]
fn a_failed_expectation_is_an_error_after_the_table() {
    let scratch = Scratch::new("failed");
    let file = scratch.file("small.toml", &format!("{SMALL}\n[expect]\nprocessed = [1, 2]\n"));
    let mut out = Vec::new();
    let error = run_sim(&sim_args(file), &mut out).unwrap_err();
    assert!(matches!(error, SimError::Expectation(1)));
    assert!(String::from_utf8(out).unwrap().contains("NOT as expected, 1 to 2"));
}

#[test]
fn mistakes_in_a_scenario_name_the_key_and_what_would_be_right() {
    let scratch = Scratch::new("mistakes");
    let mistakes = [
        (SMALL.replace("duration = 20.0", "duration = nan"), "duration = NaN is refused"),
        (SMALL.replace("duration = 20.0", "duration = -1"), "must be from 0.001"),
        (SMALL.replace("duration", "duratoin"), "unknown field `duratoin`"),
        (SMALL.replace("\"constant\"", "\"wavy\""), "it must be one of constant, case-study"),
        (SMALL.replace("{ pattern = \"constant\" }", "{}"), "either pattern or points"),
        (SMALL.replace("{ pattern = \"constant\" }", "{ points = [[0.5, 2.0]] }"), "from 0 to 1"),
        (SMALL.replace("devices = 10", "devices = 4_000_000_000"), "the number of devices"),
        (SMALL.replace("devices = 10", "devices = -10"), "invalid value"),
        (SMALL.replace("rate = 2.0", "rate = inf"), "class \"a\": rate = inf is refused"),
        (
            SMALL.replace("rate = 2.0", "rate = 2.0, floor = 3.0"),
            "floor = 3 is refused: it must be from 0 to 2",
        ),
        (
            SMALL.replace("rate = 2.0", "rate = 2.0, ceiling = 0.0"),
            "class \"a\": ceiling = 0 is refused: it must be from 0.000001",
        ),
        (SMALL.replace("rate = 5.5", "rate = 5.5, speed = [[0.5, 0.0]]"), "a speed = 0"),
        (SMALL.replace("\"drain\"", "\"drain\", floor = 2"), "floor = 2 is refused"),
        (SMALL.replace("\"drain\"", "\"drain\", target_delay = -1"), "target_delay"),
        (SMALL.replace("\"drain\"", "\"drain\", protect = 1"), "unknown field `protect`"),
        (SMALL.replace("\"drain\"", "\"phase\", threshold_depth = 1, threshold_delay = 1"), "not both"),
        (SMALL.replace("\"drain\"", "\"fuzzy\""), "unknown variant `fuzzy`"),
        (format!("{SMALL}\n[expect]\nprocesed = [1, 2]"), "it must be one of offered, limit"),
        (format!("{SMALL}\n[expect]\nprocessed = [2, 1]"), "must be [low, high]"),
        (format!("{SMALL}\n[autoscale]\nmin = 3"), "max = 2 is refused: it must be at least min"),
        (format!("{SMALL}\n[loop]\nperiod = 0"), "loop.period = 0 is refused"),
        (format!("{SMALL}\n[loop]\nperiod = 21"), "loop.period = 21 is refused: it must be from 0.001 to 20"),
        (SMALL.replace("\"drain\"", "\"none\", target_delay = 1"), "unknown field `target_delay`"),
        (
            SMALL.replace("rate = 2.0 }", "rate = 2.0 }, { name = \"a\", devices = 1, rate = 1.0 }"),
            "class \"a\" is there twice",
        ),
        ("name = [".to_owned(), "mistake.toml"),
    ];
    for (text, expected) in mistakes {
        let file = scratch.file("mistake.toml", &text);
        let start = format!("{}: ", file.display());
        let error = run_sim(&sim_args(file), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        assert!(error.starts_with(&start), "{error:?} does not name its file");
    }
    let missing = run_sim(&sim_args("no/such/file.toml".into()), &mut Vec::new()).unwrap_err();
    assert!(missing.to_string().starts_with("no/such/file.toml: "));
}

fn reproduce_args(paper: &str) -> ReproduceArgs {
    ReproduceArgs { paper: paper.to_owned(), runs: Some(1), seed: 1, json: None, plot: None }
}

#[test]
fn reproduce_prints_a_table_writes_rows_and_draws_figures() {
    let scratch = Scratch::new("reproduce");
    let json = scratch.0.join("rows.json");
    let args = ReproduceArgs {
        json: Some(json.clone()),
        plot: Some(scratch.0.join("plots")),
        ..reproduce_args("002")
    };
    let mut out = Vec::new();
    run_reproduce(&args, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.contains("overload protection") && text.contains("agrees") && text.contains("Note: "),
        "{text}"
    );
    let rows: Vec<Row> = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert!(rows.iter().any(|row| row.table == "1" && row.printed == Some(5855.0)));
    assert_eq!(fs::read_dir(scratch.0.join("plots")).unwrap().count(), 3);
}

#[test]
fn one_run_is_never_all_that_a_band_rests_on() {
    let mut out = Vec::new();
    run_reproduce(&reproduce_args("003"), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("100 runs behind each figure"), "{text}");
    let odd = text.lines().filter(|line| line.contains("NO:")).count();
    assert!(odd <= 4, "{text}");
}

#[test]
fn a_paper_that_nobody_knows_is_an_error() {
    let error = run_reproduce(&reproduce_args("005"), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("there is no paper \"005\""));
}
