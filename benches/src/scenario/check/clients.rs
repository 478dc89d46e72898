//! Two clients of the same name would throw each other out: what was measured then would be a quarrel.

use std::collections::HashSet;

use super::Problem;
use crate::scenario::Scenario;

/// Clients with the same beginning of their identifier, which goes on with a number.
struct Group<'a> {
    words: String,
    before: &'a str,
    count: u32,
}

/// Refuses a scenario in which two clients would have the same identifier, or two kinds the same name.
pub(super) fn check(scenario: &Scenario) -> Result<(), Problem> {
    let mut names = HashSet::new();
    if let Some(class) = scenario.classes.iter().find(|class| !names.insert(&class.name)) {
        return Err(("class.name".to_owned(), format!("= {:?} is refused: two classes have it", class.name)));
    }
    let classes = scenario.classes.iter().map(|class| Group {
        words: format!("class {:?}", class.name),
        before: class.client.as_ref().unwrap_or(&class.name),
        count: class.devices,
    });
    let consumers = scenario.consumers.iter().map(|consumers| Group {
        words: format!("consumers {:?}", consumers.name),
        before: &consumers.name,
        count: consumers.instances,
    });
    let groups: Vec<Group> = classes.chain(consumers).collect();
    for (index, one) in groups.iter().enumerate() {
        for other in &groups[index + 1..] {
            if let Some(id) = shared(one, other).or_else(|| shared(other, one)) {
                let why = format!("and {} would both have the client identifier {id:?}", other.words);
                return Err((one.words.clone(), format!("{why}: give one of them another name or `client`")));
            }
        }
    }
    Ok(())
}

/// An identifier that a client of each would have: `a` and `a1` share `a10` once `a` has eleven clients.
fn shared(short: &Group, long: &Group) -> Option<String> {
    let first = format!("{}0", long.before);
    let number = first.strip_prefix(short.before)?;
    let is_number =
        number.bytes().all(|byte| byte.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
    let taken = long.count > 0 && number.parse().is_ok_and(|number: u32| number < short.count);
    (is_number && taken).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(before: &str, count: u32) -> Group<'_> {
        Group { words: String::new(), before, count }
    }

    #[test]
    fn numbers_make_different_beginnings_the_same() {
        let id = |a: &Group, b: &Group| shared(a, b).or_else(|| shared(b, a));
        assert_eq!(id(&group("a", 1), &group("a", 1)).as_deref(), Some("a0"));
        assert_eq!(id(&group("a", 11), &group("a1", 1)).as_deref(), Some("a10"));
        assert_eq!(id(&group("a1", 1), &group("a", 11)).as_deref(), Some("a10"));
        assert_eq!(id(&group("a", 10), &group("a1", 500)), None, "a stops at a9, a1 begins with a10");
        assert_eq!(id(&group("a", 1000), &group("a0", 500)), None, "a number has no 0 in front");
        assert_eq!(id(&group("a", 1000), &group("b", 1000)), None);
        assert_eq!(id(&group("a", 0), &group("a", 9)), None, "nobody quarrels with nobody");
        assert_eq!(id(&group("a", 9), &group("a99999999999999999999", 9)), None);
    }
}
