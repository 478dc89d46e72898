#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_plugin::{Moment, Publish, Publisher, Subscribe, Verdict};

use super::*;
use crate::users::cheap_hash;

/// A plugin with its files in a directory of its own.
struct Setup {
    directory: TempDir,
    access: Access,
}

impl Setup {
    fn new(anonymous: bool, users: Option<&str>, rules: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: Option<&str>| {
            let path = directory.path().join(name);
            text.map(|text| fs::write(&path, text).unwrap()).map(|()| path)
        };
        let config = AccessConfig { anonymous, users: file("users", users), rules: file("rules", rules) };
        let access = Access::load(config).unwrap();
        Self { directory, access }
    }

    fn rewrite(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn connect(&self, client: &Client<'_>) -> Option<Box<dyn Hook>> {
        self.access.connect(client).unwrap()
    }

    /// The reason code of the refusal; 0 if it is let in.
    fn code(&self, client: &Client<'_>) -> u8 {
        self.access.connect(client).map_or_else(|refusal| refusal.code, |_| 0)
    }
}

static PUBLISHER: LazyLock<Arc<Publisher>> =
    LazyLock::new(|| Arc::new(Publisher::new("c1".into(), None, 60, 5)));

fn client<'a>(user: Option<&'a str>, password: Option<&'a str>, certificate: Option<&'a str>) -> Client<'a> {
    Client {
        id: "c1",
        user,
        password: password.map(str::as_bytes),
        peer: ([127, 0, 0, 1], 1).into(),
        certificate,
        publisher: &PUBLISHER,
    }
}

fn publish(hook: &mut Option<Box<dyn Hook>>, topic: &str) -> Verdict {
    hook.as_mut().unwrap().on_publish(&Publish {
        topic,
        payload: b"",
        qos: 0,
        retain: false,
        now: Moment::START,
        waited: Duration::ZERO,
    })
}

fn subscribe(hook: &mut Option<Box<dyn Hook>>, filter: &str) -> Verdict {
    hook.as_mut().unwrap().on_subscribe(&Subscribe { filter, group: None, qos: 0 })
}

fn refused(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Refuse(refusal) => {
            assert!(matches!(refusal.code, 0x80 | 0x87), "{refusal:?}");
            true
        }
        Verdict::Continue => false,
        other => panic!("unexpected {other:?}"),
    }
}

fn alice() -> String {
    format!("alice:{}\n", cheap_hash(b"secret"))
}

#[test]
fn who_may_connect() {
    // Anonymous allowed, users, then: user, password, certificate and the code.
    let (users, none) = (alice(), None);
    let with_users = Some(users.as_str());
    let cases = [
        (true, none, client(None, None, None), 0),
        (true, none, client(Some("bob"), Some("x"), None), 0),
        (false, none, client(None, None, None), 0x87),
        (false, none, client(Some("bob"), Some("x"), None), 0x86),
        (false, none, client(None, None, Some("device")), 0),
        (false, none, client(Some("bob"), None, Some("device")), 0),
        (false, none, client(None, None, Some("")), 0x87),
        (true, with_users, client(None, None, None), 0),
        (true, with_users, client(Some("alice"), Some("wrong"), None), 0x86),
        (true, with_users, client(Some("bob"), Some("secret"), None), 0x86),
        (false, with_users, client(Some("alice"), Some("secret"), None), 0),
        (false, with_users, client(Some("alice"), None, None), 0x86),
        (false, with_users, client(Some("alice"), None, Some("alice")), 0x86),
        (false, with_users, client(None, Some("secret"), None), 0x87),
        (false, with_users, client(None, None, Some("device")), 0),
    ];
    for (anonymous, users, client, code) in cases {
        let setup = Setup::new(anonymous, users, None);
        let context = format!("anonymous {anonymous}, users {}, {client:?}", users.is_some());
        assert_eq!(setup.code(&client), code, "{context}");
        assert_eq!(setup.access.wants().blocking_connect, users.is_some());
    }
}

#[test]
fn without_rules_nothing_is_hooked() {
    let setup = Setup::new(true, None, None);
    assert!(setup.connect(&client(None, None, None)).is_none());
    assert_eq!(setup.access.name(), "access");
}

#[test]
fn rules_are_about_proven_users_only() {
    let rules = "user * any own/%u\nanonymous any public";
    let setup = Setup::new(true, None, Some(rules));
    let mut claimed = setup.connect(&client(Some("alice"), Some("x"), None));
    assert!(refused(publish(&mut claimed, "own/alice")));
    assert_eq!(publish(&mut claimed, "public"), Verdict::Continue);
    let mut certified = setup.connect(&client(Some("alice"), Some("x"), Some("device")));
    assert!(refused(publish(&mut certified, "own/alice")));
    assert_eq!(publish(&mut certified, "own/device"), Verdict::Continue);
    let setup = Setup::new(false, Some(&alice()), Some(rules));
    let mut proven = setup.connect(&client(Some("alice"), Some("secret"), Some("device")));
    assert_eq!(publish(&mut proven, "own/alice"), Verdict::Continue);
    assert!(refused(publish(&mut proven, "own/device")));
}

#[test]
fn a_topic_that_is_remembered_does_not_stand_for_others() {
    let setup = Setup::new(true, None, Some("everyone publish a/+\neveryone subscribe a/#"));
    let mut hook = setup.connect(&client(None, None, None));
    let long = format!("a/{}", "x".repeat(1000));
    for _ in 0..2 {
        assert!(refused(publish(&mut hook, "")));
        assert_eq!(publish(&mut hook, "a/b"), Verdict::Continue);
        assert_eq!(publish(&mut hook, &long), Verdict::Continue);
        assert!(refused(publish(&mut hook, "a/b/c")));
        assert!(refused(publish(&mut hook, "a")));
        assert_eq!(subscribe(&mut hook, "a/+/c"), Verdict::Continue);
        assert!(refused(subscribe(&mut hook, "#")));
    }
}

#[test]
fn a_reload_holds_for_connected_clients() {
    let setup = Setup::new(true, None, Some("everyone any a"));
    let mut hook = setup.connect(&client(None, None, None));
    assert_eq!(publish(&mut hook, "a"), Verdict::Continue);
    setup.rewrite("rules", "everyone any b/%c");
    assert_eq!(publish(&mut hook, "a"), Verdict::Continue);
    setup.access.reload().unwrap();
    assert!(refused(publish(&mut hook, "a")));
    assert_eq!(publish(&mut hook, "b/c1"), Verdict::Continue);
    assert_eq!(subscribe(&mut hook, "b/c1"), Verdict::Continue);
}

#[test]
fn a_reload_forgets_passwords_and_users() {
    let setup = Setup::new(false, Some(&alice()), None);
    let login = client(Some("alice"), Some("secret"), None);
    for _ in 0..100 {
        assert_eq!(setup.code(&login), 0);
    }
    assert_eq!(setup.access.password_runs(), 1);
    setup.access.reload().unwrap();
    assert_eq!((setup.code(&login), setup.access.password_runs()), (0, 2));
    setup.rewrite("users", &format!("alice:{}", cheap_hash(b"changed")));
    assert_eq!(setup.code(&login), 0);
    setup.access.reload().unwrap();
    assert_eq!(setup.code(&login), 0x86);
    assert_eq!(setup.code(&client(Some("alice"), Some("changed"), None)), 0);
}

#[test]
fn a_reload_that_fails_changes_nothing() {
    let setup = Setup::new(false, Some(&alice()), Some("everyone any a"));
    let login = client(Some("alice"), Some("secret"), None);
    let mut hook = setup.connect(&login);
    // Good users beside bad rules are not taken either.
    setup.rewrite("users", "");
    setup.rewrite("rules", "everyone any b\nnobody any a");
    let error = setup.access.reload().unwrap_err();
    assert!(error.contains("line 2: \"nobody\" is nobody"), "{error}");
    assert_eq!(setup.code(&login), 0);
    assert_eq!(publish(&mut hook, "a"), Verdict::Continue);
    assert!(refused(publish(&mut hook, "b")));
    fs::remove_file(setup.directory.path().join("rules")).unwrap();
    assert!(setup.access.reload().unwrap_err().contains("cannot read the rules file"));
    assert_eq!(publish(&mut hook, "a"), Verdict::Continue);
}

#[test]
fn files_that_cannot_be_read_are_an_error_at_the_start() {
    let missing = Some(Path::new("/nowhere/file").to_owned());
    let config = AccessConfig { anonymous: true, users: missing.clone(), rules: None };
    assert!(matches!(Access::load(config), Err(AccessError::Users(UsersError::Read { .. }))));
    let config = AccessConfig { anonymous: true, users: None, rules: missing };
    assert!(matches!(Access::load(config), Err(AccessError::Rules(RulesError::Read { .. }))));
}

#[test]
fn logins_and_messages_go_on_while_files_are_read_again() {
    let setup = Setup::new(false, Some(&alice()), Some("everyone any a"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut hook = setup.connect(&client(Some("alice"), Some("secret"), None));
                for _ in 0..500 {
                    assert_eq!(publish(&mut hook, "a"), Verdict::Continue);
                    assert_eq!(setup.code(&client(Some("alice"), Some("secret"), None)), 0);
                }
            });
        }
        for _ in 0..50 {
            setup.access.reload().unwrap();
        }
    });
}
