//! The same tests once more, through the proxy with Mosquitto behind it.

use std::process::Command;

/// What Mosquitto 2.0 does not pass when it is asked directly, so that a proxy before it need not.
const NOT_MOSQUITTO: &str = include_str!("mosquitto.txt");

/// Every test that Mosquitto passes directly passes through Tidegate.
#[test]
fn what_mosquitto_passes_passes_through_the_proxy() {
    if std::env::var_os("TIDEGATE_TEST_SERVER").is_some() {
        return;
    }
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    tests.env("TIDEGATE_TEST_SERVER", "proxy").args(["--exact", "--test-threads=8"]);
    for name in NOT_MOSQUITTO.lines().filter(|line| !line.starts_with('#')) {
        tests.args(["--skip", name]);
    }
    let output = tests.output().expect("the tests");
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = text.lines().filter(|line| line.ends_with("FAILED")).collect();
    assert!(output.status.success(), "{failed:#?}\n{text}{}", String::from_utf8_lossy(&output.stderr));
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with("... ok")).count();
    assert!(passed > 300, "only {passed} tests ran");
}
