#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::fetch::{Address, FetchError, queues};
use super::live::on_key;
use super::table::{Column, Order, Queue, plain};
use super::view::{Model, draw};
use super::{Top, print};

fn three() -> Vec<Queue> {
    let values = [
        json!({"queue": "workers:sensors/#", "group": "workers", "filter": "sensors/#", "phase": "protect",
            "depth": 412, "delay_ms": 61.4, "in_flight": 64, "arrival_rate": 1180.25, "processing_rate": 1000.5,
            "announced_rate": 0.43, "publishers": 2000, "consumers": 4, "held": 17, "dropped": 0, "lost": 0,
            "gate_held": 900, "refused": 5}),
        json!({"queue": "logs:log/+", "phase": "idle", "depth": 3, "delay_ms": 12_345.6, "announced_rate": null,
            "dropped": 12_345_678_u64}),
        json!({"group": "g", "filter": "f", "depth": "many"}),
    ];
    values.iter().map(Queue::read).collect()
}

fn screen(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, frame)).unwrap();
    terminal.backend().to_string()
}

fn model() -> Model {
    let mut model = Model { authority: "127.0.0.1:9464".into(), ..Model::default() };
    model.on_answer(Ok::<_, FetchError>(three()));
    model
}

fn press(model: &mut Model, code: KeyCode) -> bool {
    on_key(model, KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn a_plain_table_has_everything_and_tolerates_what_is_missing() {
    let mut out = Vec::new();
    print(&three(), &mut out).unwrap();
    let expected = "\
QUEUE              PHASE    DEPTH   DELAY    IN/S   OUT/S  RATE/S  PUBS  CONS  FLIGHT  HELD  DROPPED  LOST  GATED  REFUSED
logs:log/+         idle         3  12.3 s       -       -       -     -     -       -     -    12.3M     -      -        -
workers:sensors/#  protect    412   61 ms  1180.2  1000.5    0.43  2000     4      64    17        0     0    900        5
g:f                -            -       -       -       -       -     -     -       -     -        -     -      -        -
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert_eq!(plain(&[]), "no queues\n");
}

#[test]
fn the_screen_shows_what_there_is_room_for() {
    let wide = screen(&model(), 150, 8);
    for text in ["2 queues", "http://127.0.0.1:9464"] {
        assert!(wide.contains(if text == "2 queues" { "3 queues, 1 in overload" } else { text }), "{wide}");
    }
    let lines: Vec<_> = wide.lines().collect();
    assert!(lines[1].contains("QUEUE") && lines[1].contains("DELAY↓") && lines[1].contains("LOST"), "{wide}");
    assert!(lines[2].contains("logs:log/+") && lines[3].contains("workers:sensors/#"), "{wide}");
    assert!(
        lines[3].contains("protect") && lines[3].contains("61 ms") && lines[3].contains("2000"),
        "{wide}"
    );
    assert!(lines[7].contains("q quit"), "{wide}");
    let narrow = screen(&model(), 60, 8);
    assert!(narrow.contains("DELAY↓") && !narrow.contains("LOST"), "{narrow}");
}

#[test]
fn any_size_is_fine() {
    let mut model = model();
    model.problem = Some("nobody is there".into());
    for (width, height) in [(1, 1), (2, 3), (5, 2), (20, 1), (500, 3), (3, 200)] {
        screen(&model, width, height);
    }
}

#[test]
fn keys_sort_scroll_and_quit() {
    let mut model = model();
    let first = |model: &Model| model.queues[0].name.clone();
    assert_eq!(first(&model), "logs:log/+");
    press(&mut model, KeyCode::Left);
    assert_eq!(
        (model.order, first(&model)),
        (Order { by: Column::Depth, rising: false }, "workers:sensors/#".into())
    );
    press(&mut model, KeyCode::Char('r'));
    assert_eq!(first(&model), "logs:log/+");
    assert_eq!(model.queues[2].name, "g:f", "what is not known comes last");
    for _ in 0..Column::ALL.len() {
        press(&mut model, KeyCode::Right);
    }
    assert_eq!(model.order.by, Column::Depth);
    press(&mut model, KeyCode::End);
    assert_eq!(model.above, 2);
    assert!(!screen(&model, 130, 8).contains("logs:log"));
    press(&mut model, KeyCode::PageUp);
    assert_eq!(model.above, 0);
    assert!(!press(&mut model, KeyCode::Char('x')));
    assert!(press(&mut model, KeyCode::Char('q')) && press(&mut model, KeyCode::Esc));
    assert!(on_key(&mut model, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn an_error_is_shown_above_the_last_table() {
    let mut model = model();
    let gone = || FetchError::NotWatched("h:1".into());
    model.on_answer(Err(gone()));
    let shown = screen(&model, 100, 9);
    assert!(shown.contains("watches no queues") && shown.contains("logs:log/+"), "{shown}");
    model.on_answer(Ok::<_, FetchError>(Vec::new()));
    assert!(screen(&model, 100, 9).contains("0 queues") && model.problem.is_none());
    let mut empty = Model::default();
    empty.on_answer(Err(gone()));
    assert!(screen(&empty, 100, 9).contains("waiting for the gateway"));
}

#[test]
fn names_cannot_steer_the_terminal() {
    let queue = Queue::read(&json!({"queue": "a\u{1b}[2J\n\u{9b}\u{202e}b", "phase": "\u{7}"}));
    assert_eq!(
        (queue.name.as_str(), queue.phase.as_str()),
        ("a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b", "\u{fffd}")
    );
}

#[test]
fn urls_are_checked() {
    for good in ["http://127.0.0.1:9464", "http://[::1]:9464/", "http://gateway-1.local:80"] {
        assert!(Address::parse(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "127.0.0.1:9464",
        "https://a:1",
        "http://a",
        "http://:1",
        "http://a:b",
        "http://a:1/x",
        "http://a\r\n:1",
    ] {
        let error = Address::parse(bad).unwrap_err().to_string();
        assert!(error.contains("must be plain http"), "{error}");
    }
}

/// Somebody who gives every question the same answer, once.
fn server(answer: &'static [u8]) -> (Address, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let serve = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut question = [0; 1024];
        let count = stream.read(&mut question).unwrap();
        stream.write_all(answer).unwrap();
        String::from_utf8_lossy(&question[..count]).into_owned()
    });
    (Address { authority }, serve)
}

#[test]
fn it_asks_and_understands() {
    let (address, server) =
        server(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n[{\"queue\":\"a:b\",\"depth\":1}]");
    let found = queues(&address).unwrap();
    assert_eq!((found.len(), found[0].name.as_str(), found[0].cell(Column::Depth).as_str()), (1, "a:b", "1"));
    assert!(server.join().unwrap().starts_with("GET /api/v1/queues HTTP/1.0\r\n"));
}

#[test]
fn other_answers_are_explained() {
    let cases: [(&[u8], &str); 6] = [
        (b"HTTP/1.1 404 Not Found\r\n\r\n{}", "is \"overload\" among its `plugins`?"),
        (b"HTTP/1.1 500 Oops\r\n\r\n", "answers with status 500"),
        (b"HTTP/1.1 200 OK\r\n\r\n{\"a\":1}", "no list in JSON"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP status"),
        (b"", "no HTTP"),
        (b"HTTP/1.1 \xff\r\n\r\n", "no HTTP"),
    ];
    for (answer, expected) in cases {
        let (address, server) = server(answer);
        let error = queues(&address).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        server.join().unwrap();
    }
}

#[test]
fn nobody_there_is_said_clearly() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    drop(listener);
    let top = Top { url: format!("http://{authority}"), interval: 1, once: true };
    let error = top.run(&mut Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("no gateway answers on http://{authority}: ")), "{error}");
    assert!(error.contains("is it running, and is this its `admin.listen`?"), "{error}");
}
