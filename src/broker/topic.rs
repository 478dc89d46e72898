//! Topic names and filters: what is valid, what matches.

pub use tidegate_control::topic::{is_filter as valid_filter, matches, split_share};

/// Levels of a filter. Each may cost a node of the topic tree, which is a hundred times as large as a `/`.
const MAX_LEVELS: usize = 200;

/// The group and the filter of what a client subscribes to; `None` when it is malformed or has too many levels.
pub fn parse_subscription(path: &str) -> Option<(Option<&str>, &str)> {
    let (group, filter) = match split_share(path).ok()? {
        Some((group, filter)) => (Some(group), filter),
        None => (None, path),
    };
    let levels = filter.bytes().filter(|byte| *byte == b'/').count() + 1;
    (levels <= MAX_LEVELS && valid_filter(filter)).then_some((group, filter))
}

/// The part of a filter before its first wildcard, cut at a level's border: every match starts with it.
pub fn literal_prefix(filter: &str) -> &str {
    match filter.find(['+', '#']) {
        None => filter,
        Some(at) => filter[..at].trim_end_matches('/'),
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    // `split` yields at least one part
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("dev*", "dev1", true),
            ("*7", "dev17", true),
            ("a*b*c", "aXbYc", true),
            ("a*b", "ab", true),
            ("ab*b", "ab", false),
            ("dev", "dev1", false),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
