//! The publishers that a queue holds, and the line in which those of them stand that have something to send.
//!
//! Thousands of publishers that are let go at the same moment would be the next flood. So a slow consumer's queue lets
//! them go one after the other, as it has room for what they send.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::gate::Gate;

/// Publishers that wait for their turn, the first in line first.
#[derive(Debug, Default)]
pub struct Line(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    gates: VecDeque<Arc<Gate>>,
    /// How many of them have left.
    gone: usize,
}

impl Line {
    /// Goes to the end.
    pub fn join(&self, gate: &Arc<Gate>) {
        self.0.lock().gates.push_back(Arc::clone(gate));
    }

    /// One of those in line has left; its place is given up when half of them have.
    pub fn leave(&self) {
        let mut waiting = self.0.lock();
        waiting.gone += 1;
        if waiting.gone > waiting.gates.len() / 2 {
            waiting.gates.retain(|gate| !gate.has_left());
            waiting.gone = 0;
        }
    }

    fn next(&self) -> Option<Arc<Gate>> {
        self.0.lock().gates.pop_front()
    }

    fn len(&self) -> usize {
        self.0.lock().gates.len()
    }
}

/// The publishers that a queue holds.
#[derive(Debug, Default)]
pub struct HeldGates {
    /// Until the queue lets go.
    pub lasting: HashMap<u64, Arc<Gate>>,
    /// For a few milliseconds.
    pub brief: HashMap<u64, Arc<Gate>>,
    line: Arc<Line>,
}

impl HeldGates {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.lasting.len() + self.brief.len()
    }

    /// Closes a publisher's gate until it is let go; `false` if it was closed already.
    pub fn hold(&mut self, publisher: u64, gate: Arc<Gate>) -> bool {
        if self.lasting.get(&publisher).is_some_and(|known| Arc::ptr_eq(known, &gate)) {
            return false;
        }
        gate.hold(&self.line);
        match self.lasting.insert(publisher, gate) {
            // the publisher has reconnected meanwhile
            Some(old) => {
                old.release(&self.line);
                false
            }
            None => true,
        }
    }

    /// How many stand in line.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Takes out those whose turn it is, at most so many.
    pub fn take_turns(&mut self, most: usize) -> Vec<Arc<Gate>> {
        let mut turns = Vec::new();
        while turns.len() < most
            && let Some(gate) = self.line.next()
        {
            // others have left, or have reconnected
            if self.lasting.get(&gate.number).is_some_and(|held| Arc::ptr_eq(held, &gate)) {
                self.lasting.remove(&gate.number);
                turns.push(gate);
            }
        }
        turns
    }

    /// Lets all of them go.
    pub fn release_all(self) {
        for gate in self.lasting.values() {
            gate.release(&self.line);
        }
        for gate in self.brief.values() {
            gate.release_brief();
        }
    }
}

/// Those that a queue lets go, once its lock is no longer held.
#[derive(Debug, Default)]
pub struct Released {
    /// All that were held.
    pub all: Option<Box<HeldGates>>,
    /// Those whose turn it is, their line, and how many messages each may send at once.
    pub turns: Option<(Vec<Arc<Gate>>, Arc<Line>, u32)>,
}

impl Released {
    /// Everybody.
    pub fn all(held: Option<Box<HeldGates>>) -> Self {
        Self { all: held, turns: None }
    }

    /// So many of those in line, for so many messages each.
    pub fn turns(held: &mut HeldGates, most: usize, grant: u32) -> Self {
        let turns = held.take_turns(most);
        Self { all: None, turns: Some((turns, Arc::clone(&held.line), grant)) }
    }

    /// Opens their gates.
    pub fn open(self) {
        if let Some(all) = self.all {
            all.release_all();
        }
        if let Some((gates, line, grant)) = self.turns {
            for gate in gates {
                gate.grant(grant);
                gate.release(&line);
            }
        }
    }
}
