//! The same tests once more, through the proxy with Mosquitto behind it.

use std::process::Command;

/// What Mosquitto 2.0.11 does not pass when it is asked directly, so that a proxy before it need not. Other versions may
/// pass other tests: what is judged is what the one that is here does.
const NOT_MOSQUITTO: &str = include_str!("mosquitto.txt");

/// Every test that Mosquitto passes directly passes through Tidegate.
#[test]
fn what_mosquitto_passes_passes_through_the_proxy() {
    if std::env::var_os("TIDEGATE_TEST_SERVER").is_some() {
        return;
    }
    let left_out: Vec<&str> = NOT_MOSQUITTO.lines().filter(|line| !line.starts_with('#')).collect();
    let mut skips = vec!["--exact", "--test-threads=8"];
    skips.extend(left_out.iter().flat_map(|name| ["--skip", name]));
    let (through, directly) = std::thread::scope(|scope| {
        let directly = scope.spawn(|| run_named("mosquitto", &left_out));
        (run("proxy", &skips), directly.join().expect("the tests"))
    });
    assert!(ended(&through, "ok").len() > 300, "{through}");
    // this Mosquitto may pass what another one did not, and the other way round
    let more = ended(&directly, "ok");
    let more_through = run_named("proxy", &more);
    assert_eq!(
        ended(&more_through, "ok").len(),
        more.len(),
        "{more:?} pass without the proxy\n{more_through}"
    );
    let less = ended(&through, "FAILED");
    let less_directly = run_named("mosquitto", &less);
    let broken = ended(&less_directly, "ok");
    assert!(broken.is_empty(), "{broken:?} pass without the proxy\n{through}");
    let all = ended(&directly, "FAILED").len() + more.len();
    assert_eq!(all, left_out.len(), "mosquitto.txt names what is no test");
}

/// Runs these tests with another server: what they say.
fn run_named(server: &str, names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    // most of them wait for what never comes, so that all together take no longer than one
    let threads = format!("--test-threads={}", names.len());
    let arguments: Vec<&str> = ["--exact", &*threads].into_iter().chain(names.iter().copied()).collect();
    run(server, &arguments)
}

/// Runs tests of this program with another server: what they say.
fn run(server: &str, arguments: &[&str]) -> String {
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    let output = tests.env("TIDEGATE_TEST_SERVER", server).args(arguments).output().expect("the tests");
    let both = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The names of the tests that ended so.
fn ended<'a>(text: &'a str, how: &str) -> Vec<&'a str> {
    let name = |line: &'a str| line.strip_prefix("test ")?.strip_suffix(how)?.strip_suffix(" ... ");
    text.lines().filter_map(name).collect()
}
