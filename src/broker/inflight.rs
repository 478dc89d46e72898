//! What was sent to a client and is not acknowledged yet, by packet identifier.

use std::collections::VecDeque;

use super::clock::Millis;
use super::queue::Entry;

/// QoS 1 and 2 messages on their way to a client.
///
/// A ring in which identifier `n` lives at `n modulo capacity`: identifiers are handed out in sequence, one whose
/// place is taken is passed over, so finding, adding and removing cost the same for any order of
/// acknowledgements. An idle client holds no memory.
#[derive(Debug, Default)]
pub struct Inflight {
    slots: Vec<Option<Sent>>,
    last: u16,
    count: usize,
    /// Of these, those that this connection has not sent yet.
    unsent: usize,
    sequence: u64,
}

/// One message on its way.
#[derive(Debug)]
pub struct Sent {
    /// Its packet identifier.
    pub id: u16,
    /// What was sent; nothing is left of a QoS 2 message once the client has it.
    pub stage: Stage,
    /// When it was sent; 0 while it waits to be sent again.
    pub at: Millis,
    sequence: u64,
}

/// How far a message is.
#[derive(Debug)]
pub enum Stage {
    /// PUBLISH sent: PUBACK or PUBREC is due.
    Published(Entry),
    /// PUBREL sent: PUBCOMP is due. Keeps the group that waits for it.
    Released(Option<std::sync::Arc<super::queue::Extra>>),
}

const MIN_CAPACITY: usize = 16;
const MAX_CAPACITY: usize = 1 << 16;

impl Inflight {
    /// How many are on their way.
    pub fn len(&self) -> usize {
        self.count
    }

    /// How many the client may have got on this connection.
    pub fn on_the_wire(&self) -> usize {
        self.count - self.unsent
    }

    /// A new connection: everything waits to be sent again, in this order.
    pub fn start_again(&mut self) -> VecDeque<u16> {
        self.slots.iter_mut().flatten().for_each(|sent| sent.at = 0);
        self.unsent = self.count;
        self.in_order().into()
    }

    /// A message or its release is sent again now.
    pub fn sent_again(&mut self, id: u16, now: Millis) {
        let waited = self.get_mut(id).is_some_and(|sent| std::mem::replace(&mut sent.at, now) == 0);
        self.unsent -= usize::from(waited);
    }

    /// Adds a message and gives it an identifier; `None` when all are in use.
    pub fn add(&mut self, entry: Entry, now: Millis) -> Option<u16> {
        if self.count >= usize::from(u16::MAX) {
            return None;
        }
        if self.count * 2 >= self.slots.len() && self.slots.len() < MAX_CAPACITY {
            self.grow();
        }
        let id = loop {
            self.last = self.last.wrapping_add(1).max(1);
            if self.slots[self.place(self.last)].is_none() {
                break self.last;
            }
        };
        self.sequence += 1;
        let place = self.place(id);
        self.slots[place] =
            Some(Sent { id, stage: Stage::Published(entry), at: now, sequence: self.sequence });
        self.count += 1;
        Some(id)
    }

    /// What was sent with this identifier.
    pub fn get_mut(&mut self, id: u16) -> Option<&mut Sent> {
        if self.slots.is_empty() {
            return None;
        }
        let place = self.place(id);
        self.slots[place].as_mut().filter(|sent| sent.id == id)
    }

    /// Removes what was sent with this identifier.
    pub fn remove(&mut self, id: u16) -> Option<Sent> {
        self.get_mut(id)?;
        let place = self.place(id);
        let sent = self.slots[place].take();
        self.count -= 1;
        // a client may acknowledge what it got on its last connection
        self.unsent -= usize::from(sent.as_ref().is_some_and(|sent| sent.at == 0));
        if self.count == 0 && self.slots.len() > MIN_CAPACITY {
            self.slots = Vec::new();
        }
        sent
    }

    /// All identifiers, in the order in which they were sent.
    pub fn in_order(&self) -> Vec<u16> {
        let mut sent: Vec<&Sent> = self.slots.iter().flatten().collect();
        sent.sort_unstable_by_key(|sent| sent.sequence);
        sent.into_iter().map(|sent| sent.id).collect()
    }

    fn place(&self, id: u16) -> usize {
        usize::from(id) & (self.slots.len() - 1)
    }

    fn grow(&mut self) {
        let capacity = (self.slots.len() * 2).max(MIN_CAPACITY);
        let old = std::mem::take(&mut self.slots);
        self.slots.resize_with(capacity, || None);
        for sent in old.into_iter().flatten() {
            let place = self.place(sent.id);
            self.slots[place] = Some(sent);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::message::{Message, Parts};
    use super::*;
    use crate::wire::QoS;

    fn entry() -> Entry {
        let parts = Parts {
            topic: "t",
            properties: b"",
            payload: b"",
            qos: QoS::AtLeastOnce,
            retain: false,
            urgent: false,
            ordinal: 0,
            expires: 0,
        };
        let message = Arc::new(Message::new(1, &parts));
        Entry { message, extra: None, since: 0, qos: QoS::AtLeastOnce, retain: false }
    }

    #[test]
    fn all_identifiers_can_be_used_and_no_more() {
        let mut inflight = Inflight::default();
        let ids: HashSet<u16> = (0..65_535).map(|_| inflight.add(entry(), 1).unwrap()).collect();
        assert_eq!(ids.len(), 65_535);
        assert!(!ids.contains(&0));
        assert!(inflight.add(entry(), 1).is_none());
        assert_eq!(inflight.remove(77).unwrap().id, 77);
        assert_eq!(inflight.add(entry(), 1), Some(77));
    }

    #[test]
    fn what_waits_to_be_sent_again_is_not_on_the_wire() {
        let mut inflight = Inflight::default();
        for _ in 0..3 {
            inflight.add(entry(), 1);
        }
        assert_eq!(inflight.start_again(), [1, 2, 3]);
        inflight.sent_again(1, 2);
        inflight.sent_again(1, 3);
        inflight.remove(3);
        assert_eq!((inflight.len(), inflight.on_the_wire()), (2, 1));
        inflight.remove(1);
        inflight.sent_again(3, 4);
        assert_eq!((inflight.len(), inflight.on_the_wire()), (1, 0));
    }

    proptest! {
        #[test]
        fn any_order_of_acknowledgements_keeps_identifiers_apart(steps in prop::collection::vec(any::<(bool, u16)>(), 1..400)) {
            let mut inflight = Inflight::default();
            let mut model: Vec<u16> = Vec::new();
            for (add, pick) in steps {
                if add || model.is_empty() {
                    let id = inflight.add(entry(), 1).unwrap();
                    prop_assert!(!model.contains(&id));
                    model.push(id);
                } else {
                    let id = model.remove(usize::from(pick) % model.len());
                    prop_assert!(inflight.remove(id).is_some());
                    prop_assert!(inflight.remove(id).is_none());
                }
                prop_assert_eq!(inflight.in_order(), model.clone());
                prop_assert_eq!(inflight.len(), model.len());
            }
        }
    }
}
