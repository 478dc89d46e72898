//! Finding and running the clients that are programs of their own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::PATIENCE;

/// A program of the system; where it is missing, the test fails and says what to do.
pub(crate) fn program(name: &str, package: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut folders = path.split(':').chain(["/usr/sbin", "/usr/local/bin"]);
    assert!(
        folders.any(|folder| Path::new(folder).join(name).exists()),
        "`{name}` is missing. Install it: apt-get install {package} (or run ./test, which does)"
    );
    name.into()
}

/// A file that `./test` installs under `target/peers`.
pub(crate) fn installed(path: &str, command: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let file = target.join("peers").join(path);
    assert!(
        file.exists(),
        "{} is missing. Install it: {command} (or run ./test, which does)",
        file.display()
    );
    file
}

/// A program that runs in the background and whose lines are read as they come.
pub(crate) struct Background {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Background {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// The rest of the next line that starts like this.
    pub(crate) fn line(&mut self, start: &str) -> String {
        self.line_within(start, PATIENCE)
            .unwrap_or_else(|| panic!("no line `{start}...` in {:#?}", self.seen))
    }

    /// The same, if it comes in time.
    pub(crate) fn line_within(&mut self, start: &str, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            if let Some(rest) = line.strip_prefix(start) {
                return Some(rest.to_owned());
            }
            self.seen.push(line);
        }
    }

    /// Ends it at once, without a word to the server.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a program to its end, which must be a success and come in time; what it wrote.
pub(crate) fn run(command: &mut Command) -> String {
    let (success, text) = run_any(command);
    assert!(success, "{command:?} failed:\n{text}");
    text
}

/// Runs a program to its end, which must come in time; whether it succeeded, and what it wrote.
pub(crate) fn run_any(command: &mut Command) -> (bool, String) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let id = child.id().to_string();
    let (sender, done) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = done.recv_timeout(PATIENCE * 4) else {
        let _ = Command::new("kill").args(["-9", &id]).status();
        panic!("{command:?} does not end");
    };
    let output = output.expect("the output of a program");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
