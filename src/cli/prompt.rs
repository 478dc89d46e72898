//! Asking for a password.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// More than any password may have, so that endless input is not read.
const MOST: u64 = 128 * 1024;

/// What Ctrl-C sends.
const CTRL_C: u8 = 3;

/// Asks twice on a terminal, without showing what is typed; `None` if the answers differ. From a pipe or a file
/// the first line is taken.
pub(super) fn password(user: &str) -> io::Result<Option<Vec<u8>>> {
    let mut input = io::stdin().lock();
    if !input.is_terminal() {
        return read_line(&mut input).map(Some);
    }
    let first = ask(&format!("Password for {user}: "), &mut input)?;
    let second = ask("Once more: ", &mut input)?;
    Ok((first == second).then_some(first))
}

fn ask(question: &str, input: &mut io::StdinLock<'_>) -> io::Result<Vec<u8>> {
    let mut out = io::stderr();
    write!(out, "{question}")?;
    out.flush()?;
    let silent = Silence::begin()?;
    let line = read_line(input);
    drop(silent);
    writeln!(out)?;
    let line = line?;
    if line.last() == Some(&CTRL_C) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(line)
}

/// One line without its end.
fn read_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    // On a terminal Ctrl-C ends the line too, see below.
    let mut limited = input.take(MOST);
    loop {
        let buffer = limited.fill_buf()?;
        let end = buffer.iter().position(|byte| matches!(*byte, b'\n' | CTRL_C));
        let taken = end.map_or(buffer.len(), |end| end + 1);
        line.extend_from_slice(&buffer[..taken]);
        limited.consume(taken);
        if end.is_some() || taken == 0 {
            break;
        }
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Ok(line)
}

/// While this lives the terminal shows nothing, and Ctrl-C ends the line in place of the process, which would
/// leave the terminal silent.
struct Silence {
    before: Termios,
}

impl Silence {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ISIG;
        silent.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn first_line(mut bytes: &[u8]) -> Vec<u8> {
        read_line(&mut bytes).unwrap()
    }

    #[test]
    fn a_line_ends_in_many_ways() {
        assert_eq!(first_line(b"secret\nmore\n"), b"secret");
        assert_eq!(first_line(b"secret\r\n"), b"secret");
        assert_eq!(first_line(b"secret"), b"secret");
        assert_eq!(first_line(b" a b \n"), b" a b ");
        assert_eq!(first_line(b""), b"");
        assert_eq!(first_line(b"\xff\n"), b"\xff");
    }

    #[test]
    fn endless_input_is_not_read() {
        let mut endless = io::BufReader::new(io::repeat(b'x'));
        assert_eq!(read_line(&mut endless).unwrap().len() as u64, MOST);
    }
}
