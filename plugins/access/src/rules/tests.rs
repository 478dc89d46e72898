#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use Action::{Publish, Subscribe};
use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Rules, RulesError> {
    Rules::parse(text, Path::new("rules"))
}

fn grants(text: &str, client: &str, user: Option<&str>) -> Grants {
    Grants::new(&Arc::new(parse(text).unwrap()), client, user)
}

fn problem(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

const EXAMPLE: &str = "
# who                action      which topics
user alice           publish     sensors/%c/#
client gateway-*     subscribe   commands/%u/+
user *               any         shared/#
anonymous            any         public/#
everyone             subscribe   $SYS/#
  # an indented comment
deny everyone        subscribe   test/nosubscribe
allow everyone       subscribe   test/#
";

#[test]
fn the_documented_example_does_what_it_says() {
    let alice = grants(EXAMPLE, "c1", Some("alice"));
    assert!(alice.may(Publish, "sensors/c1/temperature"));
    assert!(!alice.may(Publish, "sensors/c2/temperature"));
    assert!(!alice.may(Subscribe, "sensors/c1/temperature"));
    assert!(alice.may(Subscribe, "shared/+/x") && alice.may(Publish, "shared/x"));
    assert!(!alice.may(Publish, "public/x"));
    assert!(alice.may(Subscribe, "$SYS/broker/+") && !alice.may(Publish, "$SYS/broker/version"));
    assert!(!alice.may(Subscribe, "test/nosubscribe") && alice.may(Subscribe, "test/other"));
    assert!(!alice.may(Subscribe, "#") && !alice.may(Subscribe, "+/nosubscribe"));

    let gateway = grants(EXAMPLE, "gateway-7", Some("gw"));
    assert!(gateway.may(Subscribe, "commands/gw/+") && gateway.may(Subscribe, "commands/gw/x"));
    assert!(!gateway.may(Subscribe, "commands/gw/#") && !gateway.may(Subscribe, "commands/other/x"));

    let anonymous = grants(EXAMPLE, "gateway-7", None);
    assert!(anonymous.may(Publish, "public/x") && !anonymous.may(Publish, "shared/x"));
    assert!(!anonymous.may(Subscribe, "commands/gw/x"));
}

#[test]
fn a_deny_line_is_no_fence_inside_a_broader_allow_line() {
    // Documented: deliveries are not checked, so this is what an operator has to know.
    let text = "deny everyone subscribe test/nosubscribe\neveryone any #";
    let anyone = grants(text, "c", None);
    assert!(!anyone.may(Subscribe, "test/nosubscribe"));
    assert!(anyone.may(Subscribe, "test/#") && anyone.may(Subscribe, "#"));
    assert!(anyone.may(Publish, "test/nosubscribe"));
    assert!(!anyone.may(Subscribe, "$SYS/#"));
    let fenced = grants("deny everyone subscribe test/#\neveryone any #", "c", None);
    assert!(
        !fenced.may(Subscribe, "test/#")
            && !fenced.may(Subscribe, "test/+")
            && !fenced.may(Subscribe, "test")
    );
}

#[test]
fn the_first_matching_line_decides_whatever_it_is_about() {
    let text =
        "client c publish a\ndeny user u publish a\nclient c2 any b\ndeny everyone any b\nuser u any b";
    assert!(grants(text, "c", Some("u")).may(Publish, "a"));
    assert!(!grants(text, "x", Some("u")).may(Publish, "a"));
    assert!(grants(text, "c2", Some("u")).may(Publish, "b"));
    assert!(!grants(text, "c", Some("u")).may(Subscribe, "b"));
    assert!(!grants("user u any #\ndeny everyone any #", "c", None).may(Publish, "a"));
}

#[test]
fn without_a_matching_line_all_is_denied() {
    assert!(!grants("", "c", None).may(Publish, "a"));
    assert!(!grants("user u any #", "u", None).may(Subscribe, "a"));
    assert!(!grants("client u any #", "c", Some("u")).may(Subscribe, "a"));
    assert!(parse("# nothing\n").unwrap().is_empty());
}

#[test]
fn hostile_names_get_nothing_from_allow_lines_and_lose_what_deny_lines_mean() {
    let text = "deny everyone publish status/%c/locked\nuser * any own/%u/#\neveryone publish status/#";
    for name in ["+", "#", "a/b"] {
        let hostile = grants(text, name, Some(name));
        assert!(!hostile.may(Subscribe, "own/+/#") && !hostile.may(Subscribe, "own/#"), "{name}");
        assert!(!hostile.may(Publish, "own/a/b") && !hostile.may(Publish, "own/x"), "{name}");
        assert!(!hostile.may(Publish, "status/a/b/locked"), "{name}");
    }
    assert!(grants(text, "c", Some("u")).may(Publish, "status/c/open"));
    assert!(!grants(text, "c", Some("u")).may(Publish, "status/c/locked"));
}

#[test]
fn quotes_hold_spaces() {
    let text = "user \"line 4\"  publish \"hall 1/#\"\nclient a\"b any x";
    assert!(grants(text, "c", Some("line 4")).may(Publish, "hall 1/x"));
    assert!(grants(text, "a\"b", None).may(Publish, "x"));
}

#[test]
fn globs() {
    let matching = [
        ("*", ""),
        ("*", "x"),
        ("gw-*", "gw-"),
        ("gw-*", "gw-7/x"),
        ("*-gw", "a-gw"),
        ("a*b*c", "a-b-b-c"),
        ("a*a", "aa"),
        ("**", "x"),
        ("a**b", "ab"),
        ("*b*", "abc"),
        ("é*", "éa"),
        ("a*", "a*"),
    ];
    let other =
        [("a*a", "a"), ("gw-*", "gw"), ("a*b*c", "a-c"), ("*b*b*", "ab"), ("a*b", "abc"), ("a*", "A")];
    for (glob, name) in matching {
        assert!(glob_matches(glob, name), "{glob} {name}");
    }
    for (glob, name) in other {
        assert!(!glob_matches(glob, name), "{glob} {name}");
    }
}

#[test]
fn errors_name_file_line_word_and_remedy() {
    assert_eq!(
        problem("\nuser alice pubish a"),
        "rules file rules, line 2: \"pubish\" is no action: write `publish`, `subscribe` or `any`"
    );
    let cases = [
        ("alice publish a", "\"alice\" is nobody: write `user NAME`"),
        ("deny", "the line ends too early; a rule is"),
        ("user", "the name after `user` is missing"),
        ("client \"\" any a", "the name after `client` is missing"),
        ("everyone", "the action is missing"),
        ("everyone any", "the topics are missing"),
        ("everyone any \"\"", "the topic pattern is empty; `#` means all topics"),
        ("everyone any a/b+", "the level \"b+\" mixes `+`"),
        ("everyone any a/#/b", "the level \"#\" is wrong; `#` stands alone, at the end"),
        ("everyone any a#", "the level \"a#\" is wrong"),
        ("everyone any a/%i", "neither `c` (client id), `u` (user) nor `%`"),
        ("everyone any 100%", "neither `c` (client id)"),
        ("everyone any a/ # all", "\"#\" is too much"),
        ("everyone any \"a", "a double quote has no second one"),
        ("everyone any \"a\"b", "followed by more text"),
        ("everyone any a\u{7}", "control character"),
    ];
    for (text, expected) in cases {
        assert!(problem(text).contains(expected), "{text}: {}", problem(text));
    }
    let missing = Rules::read(Path::new("/nowhere/rules")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read the rules file /nowhere/rules: "), "{missing}");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "(?s).{0,120}") {
        let _ = parse(&text);
    }

    #[test]
    fn nearly_right_lines_neither_panic_nor_parse_by_halves(
        words in prop::collection::vec(prop::sample::select(vec![
            "allow", "deny", "user", "client", "anonymous", "everyone", "publish", "any", "a/%c/#", "%", "*", "\"", "#", "é%u",
        ]), 0..7),
        client in "\\PC{0,5}",
        user in prop::option::of("\\PC{0,5}"),
    ) {
        let text = words.join(" ");
        if let Ok(rules) = parse(&text) {
            prop_assert!(rules.is_empty() == (words.is_empty() || words[0] == "#"), "{}", text);
            let grants = Grants::new(&Arc::new(rules), &client, user.as_deref());
            let _ = grants.may(Publish, &client);
        }
    }

    #[test]
    fn globs_match_like_the_plain_definition(glob in "[ab*]{0,6}", name in "[ab]{0,6}") {
        fn plain(glob: &[u8], name: &[u8]) -> bool {
            match (glob, name) {
                ([], []) => true,
                ([b'*', rest @ ..], _) => plain(rest, name) || (!name.is_empty() && plain(glob, &name[1..])),
                ([a, rest @ ..], [b, others @ ..]) if a == b => plain(rest, others),
                _ => false,
            }
        }
        prop_assert_eq!(glob_matches(&glob, &name), plain(glob.as_bytes(), name.as_bytes()));
    }
}
