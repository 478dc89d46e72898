//! The terminal: keys in, the table out.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::fetch::{self, Address, FetchError};
use super::table::{Order, Queue};
use super::view::{Model, draw};

/// How often we look for an answer of the gateway.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of a page.
const PAGE: isize = 10;

type Answer = Result<Vec<Queue>, FetchError>;

/// Shows the table until somebody quits. The terminal is as before afterwards, also after a panic.
pub fn run(address: Address, interval: Duration) -> io::Result<()> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(io::Error::other("standard input or output is none"));
    }
    let model = Model { authority: address.authority.clone(), ..Model::default() };
    let answers = ask_for_ever(address, interval)?;
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, model, &answers);
    let restored = ratatui::try_restore();
    result.and(restored)
}

/// Asks from a thread of its own, so that keys work while the gateway does not; it ends with the receiver.
fn ask_for_ever(address: Address, interval: Duration) -> io::Result<Receiver<Answer>> {
    let (to, answers) = mpsc::sync_channel(1);
    let ask = move || {
        while to.send(fetch::queues(&address)).is_ok() {
            std::thread::sleep(interval);
        }
    };
    std::thread::Builder::new().name("ask".into()).spawn(ask)?;
    Ok(answers)
}

fn watch(terminal: &mut DefaultTerminal, mut model: Model, answers: &Receiver<Answer>) -> io::Result<()> {
    loop {
        terminal.draw(|frame| draw(&model, frame))?;
        if event::poll(LOOK)? {
            match event::read()? {
                Event::Key(key) if on_key(&mut model, key) => return Ok(()),
                // a new size is drawn with the next turn
                _ => {}
            }
        }
        match answers.try_recv() {
            Ok(answer) => model.on_answer(answer),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(io::Error::other("the asking thread is gone")),
        }
    }
}

/// Does what a key says; `true` to quit.
pub fn on_key(model: &mut Model, key: KeyEvent) -> bool {
    if key.kind == KeyEventKind::Release {
        return false;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => return true,
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Right => model.sort(model.order.next(true)),
        KeyCode::Left => model.sort(model.order.next(false)),
        KeyCode::Char('r') => model.sort(Order { rising: !model.order.rising, ..model.order }),
        KeyCode::Down => model.scroll(1),
        KeyCode::Up => model.scroll(-1),
        KeyCode::PageDown => model.scroll(PAGE),
        KeyCode::PageUp => model.scroll(-PAGE),
        KeyCode::Home => model.above = 0,
        KeyCode::End => model.scroll(isize::MAX),
        _ => {}
    }
    false
}
