#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::thread;

use proptest::prelude::*;

use super::*;

/// The cheapest hash that argon2 knows, so that tests don't wait.
pub(crate) fn cheap_hash(password: &[u8]) -> String {
    use argon2::password_hash::{PasswordHasher, SaltString};
    let params = argon2::Params::new(8, 1, 1, None).unwrap();
    let salt = SaltString::encode_b64(&password::random::<16>().unwrap()).unwrap();
    argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
        .hash_password(password, &salt)
        .unwrap()
        .to_string()
}

fn parse(text: &str) -> Result<Users, UsersError> {
    Users::parse(text, Path::new("users"))
}

fn problem(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_new_hash_has_the_recommended_cost_and_a_fresh_salt() {
    let (one, two) = (hash_password(b"secret").unwrap(), hash_password(b"secret").unwrap());
    assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
    assert_ne!(one, two);
    let users = parse(&format!("alice:{one}\n")).unwrap();
    let slots = Slots::new(1);
    assert!(users.verify("alice", b"secret", &slots));
    assert!(!users.verify("alice", b"Secret", &slots));
}

#[test]
fn a_hash_of_another_argon2_implementation_is_accepted() {
    // A test vector of the reference implementation.
    let hash = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
    assert!(password::matches(hash, b"password"));
    assert!(!password::matches(hash, b"passwore"));
}

#[test]
fn what_was_right_once_is_remembered_until_the_file_is_read_again() {
    let text = format!("# fleet\n\nalice:{}\r\nbob:{}", cheap_hash(b"a"), cheap_hash(b""));
    let users = parse(&text).unwrap();
    assert_eq!(users.len(), 2);
    let slots = Slots::new(2);
    for _ in 0..1000 {
        assert!(users.verify("alice", b"a", &slots));
    }
    assert_eq!(slots.runs(), 1);
    assert!(users.verify("bob", b"", &slots));
    assert!(parse(&text).unwrap().verify("alice", b"a", &slots));
    assert_eq!(slots.runs(), 3);
}

#[test]
fn wrong_passwords_and_unknown_users_cost_a_run_each_and_are_not_remembered() {
    let users = parse(&format!("ab:{}\na:{}", cheap_hash(b"c"), cheap_hash(b"x"))).unwrap();
    let slots = Slots::new(2);
    assert!(users.verify("ab", b"c", &slots));
    for (user, password) in [("ab", "C"), ("a", "bc"), ("nobody", "c"), ("", ""), ("ab", "")] {
        let before = slots.runs();
        assert!(!users.verify(user, password.as_bytes(), &slots), "{user} {password}");
        assert!(!users.verify(user, password.as_bytes(), &slots), "{user} {password}");
        assert_eq!(slots.runs(), before + 2);
    }
}

#[test]
fn the_decoy_costs_what_the_users_cost() {
    let users = parse(&format!("alice:{}", cheap_hash(b"a"))).unwrap();
    assert!(users.decoy.starts_with("$argon2id$v=19$m=8,t=1,p=1$"), "{}", users.decoy);
    assert!(parse("").unwrap().decoy.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
    password::check(&users.decoy).unwrap();
}

#[test]
fn a_crowd_with_the_same_password_needs_no_more_runs_than_slots() {
    let users = parse(&format!("alice:{}", cheap_hash(b"a"))).unwrap();
    let slots = Slots::new(2);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| assert!(users.verify("alice", b"a", &slots)));
        }
    });
    assert!(slots.runs() <= 2, "{} runs", slots.runs());
}

#[test]
fn errors_name_file_line_and_remedy() {
    let hash = cheap_hash(b"a");
    assert_eq!(
        problem("# x\nalice"),
        "users file users, line 2: \"alice\" has no `:`; an entry is `user:$argon2id$...`, made by `tidegate passwd`"
    );
    assert!(problem("alice:secret").contains("line 1: the hash of user \"alice\" is not `$argon2id$v=19$"));
    assert!(problem("alice:$7$101$abc$def").contains("mosquitto_passwd"));
    assert!(problem(&format!("alice:{}", hash.replace("argon2id", "argon2d"))).contains("not an argon2id"));
    assert!(problem("alice:$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ").contains("cut off"));
    assert!(
        problem("alice:$argon2id$v=19$m=8,t=1,p=1$AAAA$AAAAAAAAAAAAAAAA").contains("salt of less than 8")
    );
    assert!(problem(&format!("a:{}", hash.replace("m=8", "m=4000000"))).contains("costs too much"));
    assert!(problem(&format!("a:{}", hash.replace("t=1", "t=4000000"))).contains("costs too much"));
    assert!(
        problem(&format!("a:{hash}\nb:{hash}\na:{hash}")).contains("line 3: user \"a\" is already on line 1")
    );
    assert!(problem(&format!(":{hash}")).contains("is empty"));
    assert!(problem(&format!(" a:{hash}")).contains("begins or ends with a space"));
    assert!(problem(&format!("a\tb:{hash}")).contains("control character"));
    let missing = Users::read(Path::new("/nowhere/users")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read the users file /nowhere/users: "), "{missing}");
}

#[test]
fn setting_and_deleting_keeps_comments_order_and_everybody_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    let (one, two) = (cheap_hash(b"1"), cheap_hash(b"2"));
    assert_eq!(set_user(&path, "alice", &one).unwrap(), Change::Added);
    fs::write(&path, format!("# people\nalice:{one}\n\n# devices\nbob:{one}")).unwrap();
    assert_eq!(set_user(&path, "carol", &one).unwrap(), Change::Added);
    assert_eq!(set_user(&path, "alice", &two).unwrap(), Change::Replaced);
    let expected = format!("# people\nalice:{two}\n\n# devices\nbob:{one}\ncarol:{one}\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    delete_user(&path, "bob").unwrap();
    let expected = format!("# people\nalice:{two}\n\n# devices\ncarol:{one}\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    assert!(matches!(delete_user(&path, "bob"), Err(UsersError::NoSuchUser { .. })));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
    assert!(Users::read(&path).unwrap().verify("alice", b"2", &Slots::new(1)));
}

#[test]
fn a_file_that_is_no_users_file_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("passwd");
    fs::write(&path, "root:x:0:0::/root:/bin/sh\n").unwrap();
    assert!(matches!(set_user(&path, "root", &cheap_hash(b"1")), Err(UsersError::Line { line: 1, .. })));
    assert!(matches!(delete_user(&path, "root"), Err(UsersError::Line { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "root:x:0:0::/root:/bin/sh\n");
    let other = directory.path().join("users");
    assert!(matches!(set_user(&other, "a:b", &cheap_hash(b"1")), Err(UsersError::Name(_))));
    assert!(matches!(set_user(&other, "a\nb", &cheap_hash(b"1")), Err(UsersError::Name(_))));
    assert!(matches!(set_user(&other, "a", "secret"), Err(UsersError::Hash(_))));
    let two_lines = format!("{0}\nroot:{0}", cheap_hash(b"1"));
    assert!(matches!(set_user(&other, "a", &two_lines), Err(UsersError::Hash(_))));
    assert!(!other.exists());
    assert!(matches!(set_user(Path::new("/"), "a", &cheap_hash(b"1")), Err(UsersError::Read { .. })));
    let nowhere = directory.path().join("nowhere/users");
    assert!(matches!(set_user(&nowhere, "a", &cheap_hash(b"1")), Err(UsersError::Write { .. })));
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_unless_the_group_was_meant_to() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    set_user(&path, "alice", &cheap_hash(b"1")).unwrap();
    assert_eq!(mode(&path), 0o600);
    for (before, after) in [(0o644, 0o600), (0o640, 0o640), (0o660, 0o640), (0o600, 0o600)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        set_user(&path, "alice", &cheap_hash(b"1")).unwrap();
        assert_eq!(mode(&path), after, "after {before:o}");
    }
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_first_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    fs::write(&path, format!("\u{feff}alice:{}", cheap_hash(b"1"))).unwrap();
    assert!(Users::read(&path).unwrap().verify("alice", b"1", &Slots::new(1)));
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    fs::write(&real, "").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    set_user(&link, "alice", &cheap_hash(b"1")).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(Users::read(&real).unwrap().len(), 1);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "(?s).{0,80}|([a-z: #]{0,4}:?\\$argon2id\\$(v=[0-9]{0,3}\\$)?[mtp=,0-9]{0,20}\\$[a-zA-Z0-9]{0,20}\\$[a-z]{0,90}\n?){0,3}") {
        let _ = parse(&text);
    }

    #[test]
    fn an_accepted_hash_is_checked_without_panic(m in 0u32..64, t in 0u32..3, p in 0u32..4, salt in "[a-zA-Z0-9]{0,24}", out in "[a-zA-Z0-9+/]{0,90}") {
        let hash = format!("$argon2id$v=19$m={m},t={t},p={p}${salt}${out}");
        if password::check(&hash).is_ok() {
            // All of it is computed: what passes the check is never refused for another reason.
            prop_assert!(password::computes(&hash, b"secret"));
            prop_assert!(password::decoy(Some(&hash)).is_ok());
        }
    }
}
