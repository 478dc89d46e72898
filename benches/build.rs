//! Tells the program which commit it was built from, so that every result can say it.

use std::process::Command;

fn main() {
    // Sources beside the commit: what is built from changed files is not what was committed.
    for path in ["build.rs", "src", "scenarios", "../src", "../control", "../plugins", "../Cargo.lock"] {
        println!("cargo:rerun-if-changed={path}");
    }
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    // Without git, or outside of a repository, nothing is said.
    if let Some(commit) = git(&["describe", "--always", "--dirty", "--abbrev=12"]) {
        println!("cargo:rustc-env=TIDEGATE_BENCH_COMMIT={commit}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty() && !text.contains('\n')).then_some(text)
}
