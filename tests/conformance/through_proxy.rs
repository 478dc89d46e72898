//! The same tests once more, through the proxy with Mosquitto behind it.

use std::process::Command;

/// What Mosquitto 2.0 does not pass when it is asked directly, so that a proxy before it need not.
const NOT_MOSQUITTO: &str = include_str!("mosquitto.txt");

/// Every test that Mosquitto passes directly passes through Tidegate. Those that are left out still fail without it.
#[test]
fn what_mosquitto_passes_passes_through_the_proxy() {
    if std::env::var_os("TIDEGATE_TEST_SERVER").is_some() {
        return;
    }
    let left_out: Vec<&str> = NOT_MOSQUITTO.lines().filter(|line| !line.starts_with('#')).collect();
    // most of them wait for what never comes, so that all together take no longer than one
    let threads = format!("--test-threads={}", left_out.len());
    let mut skips = vec!["--exact", "--test-threads=8"];
    skips.extend(left_out.iter().flat_map(|name| ["--skip", name]));
    let names: Vec<&str> = ["--exact", &*threads].into_iter().chain(left_out.iter().copied()).collect();
    let (through, directly) = std::thread::scope(|scope| {
        let directly = scope.spawn(|| run("mosquitto", &names));
        (run("proxy", &skips), directly.join().expect("the tests"))
    });
    let failed = lines(&through.0, "FAILED");
    assert!(through.1, "{failed:#?}\n{}", through.0);
    let passed = lines(&through.0, "... ok").len();
    assert!(passed > 300, "only {passed} tests ran");
    let passed = lines(&directly.0, "... ok");
    assert!(
        passed.is_empty(),
        "Mosquitto passes them, so that mosquitto.txt must not name them: {passed:#?}"
    );
    assert_eq!(lines(&directly.0, "... FAILED").len(), left_out.len(), "mosquitto.txt names what is no test");
}

/// Runs tests of this program with another server: what they say, and whether all passed.
fn run(server: &str, arguments: &[&str]) -> (String, bool) {
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    let output = tests.env("TIDEGATE_TEST_SERVER", server).args(arguments).output().expect("the tests");
    let both = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&both).into_owned(), output.status.success())
}

fn lines<'a>(text: &'a str, end: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with("test ") && line.ends_with(end)).collect()
}
