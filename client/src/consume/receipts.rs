//! What is to be acknowledged, and what a broker may send again because an acknowledgement was lost.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::net::{Incoming, Receipt};

/// What a message with a receipt is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is new: this token acknowledges it.
    New(u64),
    /// It was here before, and the program has not taken it yet: it is acknowledged when it does.
    Waits,
    /// It was here before, and is done with.
    Done,
}

/// A message that came.
#[derive(Debug)]
struct Came {
    id: u16,
    /// Of topic and payload.
    mark: u64,
    /// Whether it was acknowledged, which the broker may not have heard.
    done: bool,
}

/// The receipts of one session.
#[derive(Debug)]
pub(super) struct Receipts {
    /// Not acknowledged yet on this connection, by token.
    open: HashMap<u64, Receipt>,
    /// All that is not done, and the last that are, by token.
    recent: HashMap<u64, Came>,
    /// The newest token of each packet identifier.
    newest: HashMap<u16, u64>,
    /// Those that are done, in that order.
    done: VecDeque<u64>,
    /// How many of them are remembered.
    most_done: usize,
    tokens: u64,
}

impl Receipts {
    /// `window` is how many messages a broker may have sent and not heard of.
    pub(super) fn new(window: usize) -> Self {
        Self {
            open: HashMap::new(),
            recent: HashMap::new(),
            newest: HashMap::new(),
            done: VecDeque::new(),
            most_done: window,
            tokens: 0,
        }
    }

    /// There is a new connection, with the same session or a new one.
    pub(super) fn connected(&mut self, resumed: bool) {
        self.open.clear();
        if !resumed {
            self.recent.clear();
            self.newest.clear();
            self.done.clear();
        }
    }

    /// A message came that wants to be acknowledged.
    pub(super) fn came(&mut self, receipt: Receipt, message: &Incoming) -> Seen {
        let mark = mark(message);
        let before = self.newest.get(&receipt.id).copied().filter(|_| message.again);
        let same = before.and_then(|token| Some((token, self.recent.get(&token)?)));
        match same.filter(|(_, came)| came.mark == mark) {
            Some((_, came)) if came.done => return Seen::Done,
            Some((token, _)) => {
                self.open.insert(token, receipt);
                return Seen::Waits;
            }
            None => {}
        }
        self.tokens += 1;
        self.open.insert(self.tokens, receipt);
        self.newest.insert(receipt.id, self.tokens);
        self.recent.insert(self.tokens, Came { id: receipt.id, mark, done: false });
        Seen::New(self.tokens)
    }

    /// The message of this token is done with: what acknowledges it on this connection, if it came on it.
    pub(super) fn done(&mut self, token: u64) -> Option<Receipt> {
        if let Some(came) = self.recent.get_mut(&token).filter(|came| !came.done) {
            came.done = true;
            self.done.push_back(token);
        }
        while self.done.len() > self.most_done {
            self.forget_oldest();
        }
        self.open.remove(&token)
    }

    fn forget_oldest(&mut self) {
        let oldest = self.done.pop_front();
        let Some((token, came)) = oldest.and_then(|token| Some((token, self.recent.remove(&token)?))) else {
            return;
        };
        if self.newest.get(&came.id) == Some(&token) {
            self.newest.remove(&came.id);
        }
    }
}

fn mark(message: &Incoming) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&message.topic, &message.payload).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Qos;

    fn message(payload: &str, again: bool) -> Incoming {
        let payload = payload.to_owned().into();
        Incoming { topic: "t".into(), payload, retain: false, again, seq: None, receipt: None }
    }

    fn receipt(id: u16) -> Receipt {
        Receipt { id, qos: Qos::AtLeastOnce }
    }

    #[test]
    fn what_is_sent_again_is_known() {
        let mut receipts = Receipts::new(4);
        receipts.connected(false);
        assert_eq!(receipts.came(receipt(1), &message("a", false)), Seen::New(1));
        assert_eq!(receipts.came(receipt(2), &message("b", false)), Seen::New(2));
        assert_eq!(receipts.done(1), Some(receipt(1)));
        receipts.connected(true);
        assert_eq!(receipts.came(receipt(1), &message("a", true)), Seen::Done);
        assert_eq!(receipts.came(receipt(2), &message("b", true)), Seen::Waits);
        assert_eq!(receipts.came(receipt(3), &message("c", true)), Seen::New(3), "it never got here");
        assert_eq!(receipts.done(2), Some(receipt(2)), "on the new connection");
        assert_eq!(receipts.came(receipt(1), &message("a", false)), Seen::New(4), "the same once more");
        receipts.connected(false);
        assert_eq!(receipts.came(receipt(3), &message("c", true)), Seen::New(5), "not of this session");
        assert_eq!(receipts.done(3), None, "its connection is gone");
    }

    #[test]
    fn only_what_may_come_again_is_remembered() {
        let mut receipts = Receipts::new(4);
        for id in 1..=100 {
            receipts.came(receipt(id), &message("a", false));
        }
        assert_eq!(receipts.recent.len(), 100, "the program has taken none");
        (1..=100).for_each(|token| assert!(receipts.done(token).is_some()));
        assert_eq!((receipts.recent.len(), receipts.open.len()), (4, 0));
        assert_eq!((receipts.newest.len(), receipts.done.len()), (4, 4));
    }

    /// The program is stuck with its first message, and those after it are lost because there is no room.
    #[test]
    fn one_that_is_never_taken_keeps_no_others() {
        let mut receipts = Receipts::new(4);
        receipts.came(receipt(1), &message("first", false));
        for id in 2..=1000 {
            assert_eq!(receipts.came(receipt(id), &message("a", false)), Seen::New(id.into()));
            assert!(receipts.done(id.into()).is_some());
        }
        assert_eq!((receipts.recent.len(), receipts.newest.len(), receipts.open.len()), (5, 5, 1));
        receipts.connected(true);
        assert_eq!(receipts.came(receipt(1), &message("first", true)), Seen::Waits);
        assert_eq!(receipts.came(receipt(1000), &message("a", true)), Seen::Done);
    }
}
