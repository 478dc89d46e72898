//! Patterns in which `*` stands for any text.

/// Whether `text` matches `pattern`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, others)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let (middle, last) = others.rsplit_once('*').unwrap_or(("", others));
    for part in middle.split('*') {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether a text that may not be there matches a pattern that may not be given; what is not given matches all.
pub(crate) fn fits(pattern: Option<&str>, text: Option<&str>) -> bool {
    match (pattern, text) {
        (None, _) => true,
        (Some(pattern), Some(text)) => matches(pattern, text),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("dev*", "dev1", true),
            ("*7", "dev17", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("a*b", "ab", true),
            ("ab*b", "ab", false),
            ("a**b", "ab", true),
            ("a*bc*c", "abc", false),
            ("dev", "dev1", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_not_given_matches_all() {
        assert!(fits(None, None) && fits(None, Some("x")) && fits(Some("x*"), Some("xy")));
        assert!(!fits(Some("*"), None));
    }
}
