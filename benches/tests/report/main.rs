//! The reports: what they say, that nothing from outside becomes markup, and how the page looks in a real browser.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixture;

use tidegate_bench::report;

#[test]
fn write() {
    std::fs::write("/tmp/report-look/compare.html", report::html(&fixture::comparison())).unwrap();
    std::fs::write("/tmp/report-look/run.html", report::run_html(&fixture::run())).unwrap();
    std::fs::write("/tmp/report-look/compare.md", report::markdown(&fixture::comparison())).unwrap();
    std::fs::write("/tmp/report-look/run.md", report::run_markdown(&fixture::run())).unwrap();
}
