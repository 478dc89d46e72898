//! Drives chromium: one start for each answer, in a profile of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Long enough for a slow machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(180);
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
];

/// A folder with pages, looked at by a browser.
pub struct Browser {
    folder: TempDir,
}

impl Browser {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The document after its scripts ran.
    pub fn document(&self, html: &str) -> String {
        let page = self.page("document.html", html);
        let out = self.path("document.txt");
        self.run(&["--virtual-time-budget=10000", "--dump-dom", &page], Some(&out));
        fs::read_to_string(out).unwrap()
    }

    /// A picture of the page in a window of this size.
    pub fn picture(&self, html: &str, width: u32, height: u32) -> Picture {
        let page = self.page("picture.html", html);
        let out = self.path("picture.png");
        let (size, file) =
            (format!("--window-size={width},{height}"), format!("--screenshot={}", out.display()));
        self.run(&[&size, &file, &page], None);
        keep(&out, &format!("report-{width}.png"));
        Picture::read(&out)
    }

    /// The page as it is printed.
    pub fn print(&self, html: &str) -> Vec<u8> {
        let page = self.page("print.html", html);
        let out = self.path("print.pdf");
        let file = format!("--print-to-pdf={}", out.display());
        self.run(&["--no-pdf-header-footer", &file, &page], None);
        keep(&out, "report.pdf");
        fs::read(out).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn page(&self, name: &str, html: &str) -> String {
        let path = self.path(name);
        fs::write(&path, html).unwrap();
        format!("file://{}", path.display())
    }

    fn run(&self, arguments: &[&str], output: Option<&Path>) {
        let profile = tempfile::tempdir().unwrap();
        let output = output.map_or_else(Stdio::null, |path| fs::File::create(path).unwrap().into());
        let errors = self.path("errors.txt");
        let mut command = Command::new(program());
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display())).args(arguments);
        command.stdin(Stdio::null()).stdout(output).stderr(fs::File::create(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        let fine = wait(&mut child);
        assert!(fine, "{command:?}: {}", fs::read_to_string(errors).unwrap_or_default());
    }
}

/// Whether it ended well in time; it has ended in any case.
fn wait(child: &mut Child) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

fn program() -> &'static str {
    let path = std::env::var("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found =
        names.into_iter().find(|name| path.split(':').any(|folder| Path::new(folder).join(name).exists()));
    found.expect("`chromium` is missing. Install it: apt-get install chromium (or run ./test, which does)")
}

/// For people who want to see what the test saw.
fn keep(file: &Path, name: &str) {
    fs::copy(file, Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)).unwrap();
}

/// A picture.
pub struct Picture {
    pub width: usize,
    pub height: usize,
    rgb: Vec<[u8; 3]>,
}

/// A rectangle in a picture, in pixels from the upper left corner.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
pub struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Picture {
    fn read(path: &Path) -> Self {
        let file = std::io::BufReader::new(fs::File::open(path).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let rgb = bytes[..info.buffer_size()].chunks(info.color_type.samples());
        let rgb = rgb.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
        Self { width: info.width as usize, height: info.height as usize, rgb }
    }

    /// Where in an area a colour is, from the upper left corner of the picture.
    pub fn places(&self, area: Area, colour: [u8; 3]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for y in area.y.max(0.0) as usize..((area.y + area.height) as usize).min(self.height) {
            for x in area.x.max(0.0) as usize..((area.x + area.width) as usize).min(self.width) {
                if self.rgb[y * self.width + x] == colour {
                    found.push((x, y));
                }
            }
        }
        found
    }

    /// The whole of it.
    pub fn area(&self) -> Area {
        Area { x: 0.0, y: 0.0, width: self.width as f64, height: self.height as f64 }
    }
}
