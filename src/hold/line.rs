//! The publishers that a queue holds, and the line in which those of them stand that have something to send.
//!
//! Thousands of publishers that are let go at the same moment would be the next flood. So a slow consumer's queue lets
//! them go one after the other, as it has room for what they send.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Gate;

/// Publishers that wait for their turn, by the number of their session: who comes back has its place still.
#[derive(Debug, Default)]
pub struct Line(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Numbers and weights, by the virtual time at which it is somebody's turn, and then as they came.
    order: BTreeMap<(u64, u64), (u64, u64)>,
    /// Those virtual times, as they came: while it is nobody's turn yet, who came first goes.
    came: BTreeMap<u64, u64>,
    standing: HashSet<u64>,
    /// The virtual time: each turn moves it on by a share of a round, so that all who stand in line now have had theirs
    /// when a round is over.
    now: u64,
    /// What all of them weigh.
    weight: u64,
    joined: u64,
}

/// The virtual time between two turns of a publisher of weight 1: fine enough for a million of them, and the time does not
/// run out within years.
const ROUND: u64 = 1 << 26;

/// While there is no room for those in line, since others keep the queue as long as it is, one of them has a turn for so many
/// messages that consumers take. More often, and those in line would get more than those who keep to their rate.
const OVERDUE: usize = 10;

impl Line {
    /// Goes to the end, unless it stands in line already. The end is nearer for those who weigh more: they have their turn
    /// so many times as often.
    pub fn join(&self, number: u64, weight: u32) {
        let mut waiting = self.0.lock();
        if waiting.standing.insert(number) {
            let weight = u64::from(weight.max(1));
            waiting.joined += 1;
            waiting.weight += weight;
            let (turn, joined) = (waiting.now + ROUND / weight, waiting.joined);
            waiting.order.insert((turn, joined), (number, weight));
            waiting.came.insert(joined, turn);
        }
    }

    fn next(&self) -> Option<u64> {
        let mut waiting = self.0.lock();
        let due =
            waiting.order.first_key_value().map(|(place, _)| *place).filter(|(turn, _)| *turn <= waiting.now);
        let first = || waiting.came.first_key_value().map(|(joined, turn)| (*turn, *joined));
        let place = due.or_else(first)?;
        let (number, weight) = waiting.order.remove(&place)?;
        waiting.came.remove(&place.1);
        waiting.now += ROUND / waiting.weight.max(1);
        waiting.weight -= weight;
        waiting.standing.remove(&number);
        Some(number)
    }

    fn len(&self) -> usize {
        self.0.lock().order.len()
    }

    fn retain(&self, stays: impl Fn(u64) -> bool) {
        let mut waiting = self.0.lock();
        waiting.order.retain(|_, (number, _)| stays(*number));
        waiting.standing.retain(|number| stays(*number));
        waiting.came = waiting.order.keys().map(|(turn, joined)| (*joined, *turn)).collect();
        waiting.weight = waiting.order.values().map(|(_, weight)| weight).sum();
    }
}

/// The publishers that a queue holds.
#[derive(Debug, Default)]
pub struct HeldGates {
    /// Until it is their turn.
    lasting: HashMap<u64, Arc<Gate>>,
    /// Until the queue is not full any more, whoever else is in line.
    exempt: HashMap<u64, Arc<Gate>>,
    /// For a few milliseconds.
    pub brief: HashMap<u64, Arc<Gate>>,
    line: Arc<Line>,
    /// Messages that consumers took since somebody had a turn.
    taken: usize,
}

impl HeldGates {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.lasting.len() + self.exempt.len() + self.brief.len()
    }

    /// How often this gate is among them, but for brief holds.
    #[cfg(test)]
    pub fn holds(&self, gate: &Arc<Gate>) -> usize {
        let all = self.lasting.values().chain(self.exempt.values());
        all.filter(|held| Arc::ptr_eq(held, gate)).count()
    }

    /// Whether publishers wait for their turn.
    pub fn is_lasting(&self) -> bool {
        !self.lasting.is_empty()
    }

    /// Closes a publisher's gate until it is let go; `false` if it was closed already, or nobody is there any more.
    pub fn hold(&mut self, publisher: u64, gate: Arc<Gate>) -> bool {
        let held = if gate.publisher.is_exempt() { &mut self.exempt } else { &mut self.lasting };
        if gate.has_left() || held.get(&publisher).is_some_and(|known| Arc::ptr_eq(known, &gate)) {
            return false;
        }
        gate.hold(&self.line);
        match held.insert(publisher, gate) {
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

    /// Takes out those whose turn it is, at most so many, for so many messages each.
    pub fn take_turns(&mut self, most: usize, grant: u32) -> Turns {
        let mut turns = Turns { gates: Vec::new(), line: Arc::clone(&self.line), grant };
        let mut count = 0;
        while count < most
            && let Some(number) = self.line.next()
        {
            // those who left take nobody's turn
            if let Some(gate) = self.lasting.remove(&number) {
                count += usize::from(!gate.has_left());
                turns.gates.push(gate);
            }
        }
        turns
    }

    /// Takes out those who are exempt, if there are any.
    pub fn take_exempt(&mut self) -> Option<Turns> {
        if self.exempt.is_empty() {
            return None;
        }
        let gates = self.exempt.drain().map(|(_, gate)| gate).collect();
        Some(Turns { gates, line: Arc::clone(&self.line), grant: 0 })
    }

    /// Says that all of them together may send so many messages at once when they are let go.
    pub fn grant_all(&self, messages: usize) {
        let share = |gate: &Arc<Gate>| gate.publisher.share() as usize;
        let shares = self.lasting.values().map(share).sum::<usize>().max(1);
        for gate in self.lasting.values() {
            let grant = messages.saturating_mul(share(gate)) / shares;
            gate.grant(u32::try_from(grant).unwrap_or(u32::MAX).max(1));
        }
    }

    /// Forgets those who have left.
    pub fn forget_gone(&mut self) {
        let line = &self.line;
        for held in [&mut self.lasting, &mut self.exempt] {
            held.retain(|_, gate| {
                let stays = !gate.has_left();
                if !stays {
                    gate.release(line);
                }
                stays
            });
        }
        if self.line.len() > 2 * self.lasting.len() {
            self.line.retain(|number| self.lasting.contains_key(&number));
        }
    }

    /// Lets them go from a queue that has become shorter: all of them, or those whose turn it is. The exempt go as soon
    /// as it is not full. `granted` is how many messages were let go and have not come yet.
    pub fn let_go(held: &mut Option<Box<Self>>, granted: &mut usize, room: &Room) -> Released {
        let Some(gates) = held else { return Released::default() };
        let crowded = room.crowded || room.fresh > room.full / 4 * 3;
        gates.taken = gates.taken.saturating_add(room.taken);
        let waiting = gates.waiting();
        // what they all send at once may be too much for a slow consumer, or more than is kept for it
        let bounded = room.in_time < room.full || room.strict;
        let in_time = room.in_time.min(room.full);
        if crowded || room.late || bounded && waiting > 0 {
            let room_until = |full: usize| full.saturating_sub(room.fresh.saturating_add(*granted));
            let free = if crowded || room.late { 0 } else { room_until((in_time / 2).max(1)) };
            let overdue = if room.over { 0 } else { room_until(room.full).min(gates.taken / OVERDUE) };
            let grant = u32::try_from(free / waiting.max(1)).unwrap_or(u32::MAX).max(1);
            let most = free.max(overdue);
            let turns = (most > 0).then(|| gates.take_turns(most, grant));
            if turns.as_ref().is_some_and(|turns| !turns.gates.is_empty()) {
                gates.taken = 0;
            }
            *granted += turns.as_ref().map_or(0, Turns::messages);
            let exempt = if crowded { None } else { gates.take_exempt() };
            return Released::some(exempt, turns);
        }
        if bounded {
            gates.grant_all(in_time.saturating_sub(room.fresh));
        }
        *granted = 0;
        Released::all(held.take())
    }

    /// Lets all of them go.
    pub fn release_all(self) {
        for gate in self.lasting.values().chain(self.exempt.values()) {
            gate.release(&self.line);
        }
        for gate in self.brief.values() {
            gate.release_brief();
        }
    }
}

/// How much room a queue has.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Messages that wait and came while the consumer was there.
    pub fresh: usize,
    /// Messages that consumers take within the time that one may wait.
    pub in_time: usize,
    /// Messages with which it is full.
    pub full: usize,
    /// It is so late that nobody gets a turn.
    pub late: bool,
    /// It is so long that nobody gets a turn, by messages or bytes.
    pub crowded: bool,
    /// It is over its bounds: not even those who have waited for long get one.
    pub over: bool,
    /// Messages that consumers have just taken.
    pub taken: usize,
    /// What comes when it is full may be thrown away.
    pub strict: bool,
}

/// Those whose turn it is.
#[derive(Debug)]
pub struct Turns {
    gates: Vec<Arc<Gate>>,
    line: Arc<Line>,
    /// Messages that each may send at once; 0: as they like.
    grant: u32,
}

impl Turns {
    /// Messages that they may send at once.
    pub fn messages(&self) -> usize {
        self.gates.len() * self.grant as usize
    }
}

/// Those that a queue lets go, once its lock is no longer held.
#[derive(Debug, Default)]
pub struct Released {
    all: Option<Box<HeldGates>>,
    turns: [Option<Turns>; 2],
}

impl Released {
    /// Everybody.
    pub fn all(held: Option<Box<HeldGates>>) -> Self {
        Self { all: held, turns: [None, None] }
    }

    /// The exempt, and those whose turn it is.
    pub fn some(exempt: Option<Turns>, turns: Option<Turns>) -> Self {
        Self { all: None, turns: [exempt, turns] }
    }

    /// Opens their gates.
    pub fn open(self) {
        if let Some(all) = self.all {
            all.release_all();
        }
        for turns in self.turns.into_iter().flatten() {
            for gate in turns.gates {
                if turns.grant > 0 {
                    gate.grant(turns.grant);
                }
                gate.release(&turns.line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tidegate_plugin::Publisher;

    use super::*;

    /// Who weighs four times as much has its turn four times as often, however many others there are, also when it takes a
    /// while to come back.
    #[test]
    fn turns_come_by_weight() {
        let line = Line::default();
        let weight = |number: u64| if number <= 10 { 4 } else { 1 };
        (1..=500).for_each(|number| line.join(number, weight(number)));
        let (mut turns, mut away) = (HashMap::<u64, u32>::new(), VecDeque::new());
        for _ in 0..5_300 {
            let number = line.next().unwrap_or_default();
            *turns.entry(number).or_default() += 1;
            away.push_back(number);
            if away.len() > 20 {
                let back = away.pop_front().unwrap_or_default();
                line.join(back, weight(back));
            }
        }
        let mean = |is_in: fn(&u64) -> bool| {
            let counts: Vec<u32> =
                turns.iter().filter(|(number, _)| is_in(number)).map(|(_, count)| *count).collect();
            f64::from(counts.iter().sum::<u32>()) / counts.len() as f64
        };
        let times = mean(|number| *number <= 10) / mean(|number| *number > 10);
        assert!((3.5..=4.1).contains(&times), "{times}");
    }

    #[test]
    fn those_who_weigh_the_same_go_as_they_came() {
        let line = Line::default();
        [7, 3, 9, 3].iter().for_each(|number| line.join(*number, 2));
        let order: Vec<u64> = std::iter::from_fn(|| line.next()).collect();
        assert_eq!(order, [7, 3, 9]);
    }

    /// All of them together may send as much as there is room for, each its share of that.
    #[test]
    fn all_who_are_let_go_share_the_room() {
        let gate = |number, share| {
            let publisher = Publisher::new("p".into(), None, 60, 5);
            publisher.set_share(share);
            Arc::new(Gate::new(number, Arc::new(publisher)))
        };
        let (mut held, gates) = (HeldGates::default(), [gate(1, 3), gate(2, 2), gate(3, 1)]);
        gates.iter().for_each(|gate| assert!(held.hold(gate.number, Arc::clone(gate))));
        held.grant_all(12);
        assert_eq!(gates.each_ref().map(|gate| gate.take_grant()), [Some(6), Some(4), Some(2)]);
        held.grant_all(2);
        assert_eq!(gates.each_ref().map(|gate| gate.take_grant()), [Some(1); 3], "nobody gets nothing");
    }
}
