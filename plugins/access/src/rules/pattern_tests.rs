#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

/// MQTT's matching, written as the specification words it and independent of [`covers`].
fn matches(filter: &[&str], topic: &[&str], first: bool) -> bool {
    if first && topic[0].starts_with('$') && matches!(filter[0], "+" | "#") {
        return false;
    }
    match filter {
        [] => topic.is_empty(),
        ["#"] => true,
        [level, filter @ ..] => match topic {
            [] => false,
            [name, topic @ ..] => (*level == "+" || level == name) && matches(filter, topic, false),
        },
    }
}

/// All sequences of one to `depth` of these levels, joined, without the empty topic.
fn sequences(levels: &[&'static str], depth: usize) -> Vec<Vec<&'static str>> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    let mut longest: Vec<Vec<&str>> = vec![vec![]];
    for _ in 0..depth {
        longest = longest
            .iter()
            .flat_map(|begin| levels.iter().map(|level| [begin.as_slice(), &[*level]].concat()))
            .collect();
        all.extend(longest.iter().cloned());
    }
    all.retain(|levels| levels != &[""]);
    all
}

#[test]
fn covers_is_containment_of_the_matched_topics() {
    // One level name and one depth more than filters have tells `+` from all names, and `#` from all depths.
    let topics = sequences(&["a", "b", "", "$a", "z"], 4);
    let mut filters = sequences(&["a", "b", "", "$a", "+"], 3);
    let parents = sequences(&["a", "b", "", "$a", "+"], 2);
    filters.extend(parents.into_iter().map(|parent| [parent.as_slice(), &["#"]].concat()));
    filters.push(vec!["#"]);
    filters.push(vec!["", "#"]);
    let matched: Vec<Vec<bool>> = filters
        .iter()
        .map(|filter| topics.iter().map(|topic| matches(filter, topic, true)).collect())
        .collect();
    let mut covered = 0;
    for (pattern, wide) in filters.iter().zip(&matched) {
        for (filter, narrow) in filters.iter().zip(&matched) {
            let contained = narrow.iter().zip(wide).all(|(narrow, wide)| !narrow || *wide);
            let (pattern, filter) = (pattern.join("/"), filter.join("/"));
            assert_eq!(covers(&pattern, &filter), contained, "{pattern} covers {filter}");
            covered += usize::from(contained);
        }
        for (topic, matches) in topics.iter().zip(wide) {
            let (pattern, topic) = (pattern.join("/"), topic.join("/"));
            assert_eq!(covers(&pattern, &topic), *matches, "{pattern} matches {topic}");
        }
    }
    assert!(covered > filters.len(), "the test compares more than each filter with itself");
}

#[test]
fn examples_of_covering() {
    let yes = [
        ("a/#", "a/#"),
        ("#", "a/#"),
        ("#", "#"),
        ("a/#", "a"),
        ("a/#", "a/+/b"),
        ("+/#", "a/#"),
        ("+/#", "#"),
        ("$SYS/#", "$SYS/#"),
        ("$SYS/+", "$SYS/load"),
        ("+/+", "/"),
        ("+", "a"),
        ("a/+", "a/"),
    ];
    let no = [
        ("a/+", "a/#"),
        ("a/b", "a/+"),
        ("a/+/#", "a/#"),
        ("#", "$SYS/#"),
        ("+/a", "$SYS/a"),
        ("a", "a/#"),
        ("$SYS/#", "#"),
        ("a", "a/"),
        ("+", "/"),
        ("a/#", "ab"),
        ("+", "#"),
        ("A", "a"),
    ];
    for (pattern, filter) in yes {
        assert!(covers(pattern, filter), "{pattern} covers {filter}");
    }
    for (pattern, filter) in no {
        assert!(!covers(pattern, filter), "{pattern} does not cover {filter}");
    }
}

fn fill(text: &str, effect: Effect, client: &str, user: Option<&str>) -> Option<String> {
    Template::parse(text).unwrap().fill(effect, client, user).map(String::from)
}

#[test]
fn names_are_filled_in() {
    let filled = |text| fill(text, Effect::Allow, "c1", Some("alice"));
    assert_eq!(filled("sensors/%c/#").unwrap(), "sensors/c1/#");
    assert_eq!(filled("%u/%c-%u/100%%/+").unwrap(), "alice/c1-alice/100%/+");
    assert_eq!(filled("%%c/%%%c").unwrap(), "%c/%c1");
    assert_eq!(fill("a/%u", Effect::Allow, "c1", None), None);
    assert_eq!(fill("a/%u", Effect::Deny, "c1", None), None);
    assert_eq!(fill("ä/%c", Effect::Allow, "é", None).unwrap(), "ä/é");
    // A name is not filled in again.
    assert_eq!(fill("%c/x", Effect::Allow, "%u", Some("alice")).unwrap(), "%u/x");
}

#[test]
fn names_never_widen_a_pattern() {
    for name in ["+", "#", "a/b", "/", "a+", "#a", "+/#"] {
        assert_eq!(fill("s/%c/x", Effect::Allow, name, None), None, "{name}");
        assert_eq!(fill("s/%u/x", Effect::Allow, "c", Some(name)), None, "{name}");
        assert_eq!(fill("s/p-%c/x", Effect::Deny, name, None).unwrap(), "s/#", "{name}");
        assert_eq!(fill("%u", Effect::Deny, "c", Some(name)).unwrap(), "#", "{name}");
    }
    assert_eq!(fill("%c/#", Effect::Allow, "$SYS", None), None);
    assert_eq!(fill("%c/#", Effect::Deny, "$SYS", None).unwrap(), "$SYS/#");
    assert_eq!(fill("$SYS/%c", Effect::Allow, "$x", None).unwrap(), "$SYS/$x");
    assert_eq!(fill("a/%c", Effect::Allow, "$x", None).unwrap(), "a/$x");
}

/// Whether a pattern allows a topic, told without filling in: a name level equals the name, or does not match.
fn allowed(template: &[&str], topic: &[&str], client: &str, user: &str) -> bool {
    let literal = |level: &str| match level {
        "%c" => client.to_owned(),
        "%u" => user.to_owned(),
        "d-%c" => format!("d-{client}"),
        other => other.to_owned(),
    };
    let wildcards = topic[0].starts_with('$') && !template[0].starts_with('$');
    !wildcards
        && match template {
            [begin @ .., "#"] => {
                topic.len() >= begin.len()
                    && begin.iter().zip(topic).all(|(a, b)| *a == "+" || literal(a) == *b)
            }
            _ => {
                topic.len() == template.len()
                    && template.iter().zip(topic).all(|(a, b)| *a == "+" || literal(a) == *b)
            }
        }
}

proptest! {
    #[test]
    fn filled_patterns_allow_what_the_template_means(
        mut template in prop::collection::vec(prop::sample::select(vec!["%c", "%u", "d-%c", "+", "a", "$a"]), 1..4),
        deep in any::<bool>(),
        client in "[ab/+#$%cu]{1,3}",
        user in "[ab/+#$%cu]{1,3}",
        topic in prop::collection::vec("[ab$%cu]{0,2}|d-[ab]", 1..5),
        echo in any::<bool>(),
    ) {
        if deep {
            template.push("#");
        }
        let mut topic: Vec<&str> = topic.iter().map(String::as_str).collect();
        if echo {
            // The topic an attacker would like: the pattern with the names put in as text.
            topic = template.iter().map(|level| match *level {
                "%c" => client.as_str(),
                "%u" => user.as_str(),
                other => other,
            }).collect();
            prop_assume!(!topic.concat().contains(['+', '#', '/']));
        }
        prop_assume!(topic != [""]);
        let filled = fill(&template.join("/"), Effect::Allow, &client, Some(&user));
        let got = filled.is_some_and(|filled| covers(&filled, &topic.join("/")));
        prop_assert_eq!(got, allowed(&template, &topic, &client, &user));
    }

    #[test]
    fn an_allow_line_never_covers_more_for_a_hostile_name(client in "\\PC{1,6}", filter in "[ab+#/$]{1,6}") {
        // Whatever the name: a line about one level below `own` covers no more than that level.
        if let Some(filled) = fill("own/%c", Effect::Allow, &client, None) {
            let own = format!("own/{client}");
            for filter in [filter.as_str(), "own/+", "own/#", "#", "+/+"] {
                prop_assert!(!covers(&filled, filter) || filter == own, "{} covers {}", filled, filter);
            }
            prop_assert!(covers(&filled, &own));
        }
    }
}
