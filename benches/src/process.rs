//! What processes and the machine use, as Linux tells it under /proc; nothing elsewhere.

use std::fs;

use crate::record::Machine;

/// What a process has used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Processor time since its start, in seconds.
    pub cpu: f64,
    /// Memory in bytes.
    pub rss: u64,
}

/// What a process has used; none if there is no such process.
pub fn usage(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let per_second = rustix::param::clock_ticks_per_second().max(1) as f64;
    let pages = ticks(21)?;
    Some(Usage {
        cpu: (ticks(11)? + ticks(12)?) as f64 / per_second,
        rss: pages * rustix::param::page_size() as u64,
    })
}

/// Processor time that was left over on the whole machine since its start, in seconds; none if it is unknown.
pub fn idle() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let ticks: u64 = stat.lines().next()?.split_whitespace().nth(4)?.parse().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// This machine.
pub fn machine() -> Machine {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let memory = field("/proc/meminfo", "MemTotal");
    let kilobytes: u64 = memory.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0);
    Machine {
        processor: field("/proc/cpuinfo", "model name"),
        cores: cores() as u32,
        memory: kilobytes * 1024,
        system: format!(
            "{} {}",
            std::env::consts::OS,
            fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim()
        ),
    }
}

/// The version of this program with the commit that it was built from.
pub fn generator() -> &'static str {
    static WORDS: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let commit = option_env!("TIDEGATE_BENCH_COMMIT").unwrap_or("commit unknown");
        let debug = if cfg!(debug_assertions) { ", debug build" } else { "" };
        format!("{} ({commit}{debug})", env!("CARGO_PKG_VERSION"))
    });
    &WORDS
}

/// Processors that may be used.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Seconds since 1970, and the same as text.
pub fn wall_clock() -> (u64, String) {
    // The time of day is what a reader wants to know; nothing is measured with it.
    #[allow(clippy::disallowed_methods)]
    let now = std::time::SystemTime::now();
    let seconds = now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    (seconds, as_text(seconds))
}

/// Raises the limit of open files as far as it goes; returns it.
pub fn raise_file_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A day is named by counting from 0000-03-01: the leap day is then the last day of its year.
fn as_text(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn days_have_their_names() {
        assert_eq!(as_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(as_text(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(as_text(1_735_689_599), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn the_generator_says_where_it_comes_from() {
        let (version, rest) = generator().split_once(" (").unwrap();
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        let commit = rest.trim_end_matches(')').split(", ").next().unwrap();
        assert!(commit == "commit unknown" || commit.len() >= 7, "{commit}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_something() {
        assert!(usage(std::process::id()).unwrap().rss > 100_000);
        assert!(usage(u32::MAX).is_none());
        assert!(idle().is_some());
    }
}
