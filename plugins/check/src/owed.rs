//! Short answers that wait because the gateway had no room for them.

use std::collections::VecDeque;

use crate::desk::Reply;

/// An answer, and whose it is.
#[derive(Debug)]
pub(crate) struct Owing {
    pub(crate) client: String,
    pub(crate) reply: Reply,
    pub(crate) answer: String,
}

impl Owing {
    fn size(&self) -> usize {
        size_of::<Self>() + self.client.len() + self.reply.size() + self.answer.len()
    }
}

/// All of them, oldest first, within a bound.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    waiting: VecDeque<Owing>,
    bytes: usize,
}

impl Owed {
    /// Whether nobody is owed anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps an answer; false when that would be more than so many bytes.
    pub(crate) fn push(&mut self, owing: Owing, most: usize) -> bool {
        let bytes = self.bytes + owing.size();
        if bytes > most {
            return false;
        }
        self.bytes = bytes;
        self.waiting.push_back(owing);
        true
    }

    /// The oldest one.
    pub(crate) fn pop(&mut self) -> Option<Owing> {
        let owing = self.waiting.pop_front()?;
        self.bytes -= owing.size();
        Some(owing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_bounded_and_paid_in_order() {
        let mut owed = Owed::default();
        let owing =
            |answer: &str| Owing { client: "c".into(), reply: Reply::default(), answer: answer.into() };
        let most = 3 * owing("1").size();
        assert_eq!(
            ["1", "2", "3", "4"].map(|answer| owed.push(owing(answer), most)),
            [true, true, true, false]
        );
        let paid: Vec<String> = std::iter::from_fn(|| owed.pop()).map(|owing| owing.answer).collect();
        assert_eq!(paid, ["1", "2", "3"]);
        assert!(owed.is_empty() && owed.bytes == 0);
    }
}
