//! A device that publishes: at its own pace (open loop) or as fast as it is let (closed loop).

mod packets;

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_control::random::{Random, Seeded};

use self::packets::{Template, Window};
use crate::check::{Numbers, Stamp};
use crate::clock::{Nanos, SECOND};
use crate::codec::{self, Version, kind};
use crate::follow::{self, Advice};
use crate::link::Link;
use crate::scenario::Class;
use crate::stats::add;
use crate::world::{Shared, Stage, Wants, Wishes};

/// Bytes that are offered to the socket at a time.
const BATCH: usize = 16 * 1024;
/// A message that goes out later than this, though nobody held it up, is the generator's fault.
const LATE: Nanos = 10_000_000;

/// Devices that follow look at their advice at least so often.
const LOOK: Nanos = SECOND / 4;
const PREFIX: &str = "$tide/v1";

/// What a device leaves behind.
pub struct Done {
    /// Its class.
    pub class: usize,
    /// Messages sent.
    pub sent: u64,
    /// Messages accepted.
    pub accepted: u64,
    /// Messages refused.
    pub refused: u64,
    /// What was accepted of its flows, from the first one on.
    pub flows: (u32, Vec<Numbers>),
}

/// A device.
pub struct Device {
    world: Shared,
    class: usize,
    settings: Class,
    version: Version,
    client: String,
    first_flow: u32,
    templates: Vec<Template>,
    accepted: Vec<Numbers>,
    turn: usize,
    wishes: Wishes,
    random: Seeded,
    window: Window,
    /// QoS 0: messages in the output with the place where they end.
    unwritten: Vec<(usize, u32, u64)>,
    schedule: Option<Schedule>,
    advice: Option<Advice>,
    /// The rate that is in use, as it was added to the sum of all.
    announced: u64,
    sent: u64,
    accepted_count: u64,
    refused: u64,
}

/// When an open loop sends next.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    due: Nanos,
    /// The message before.
    last: Nanos,
}

/// Why a connection ended.
enum End {
    /// As wished.
    Wished,
    /// It is to be lost and made again.
    Dropped,
    /// The other side or the network ended it.
    Lost(io::Error),
}

impl Device {
    /// A device of a class; `first_flow` is the number of its first flow.
    pub fn new(world: &Shared, class: usize, index: u32, first_flow: u32, wishes: Wishes) -> Self {
        let settings = world.scenario.classes[class].clone();
        let version = settings.version.unwrap_or(world.scenario.version);
        let flows = first_flow..first_flow + settings.topics;
        let topics = flows.clone().map(|flow| world.flows[flow as usize].topic.as_str());
        let mut random = Seeded::stream(world.scenario.seed, u64::from(first_flow));
        let listens = settings.follows && !random.chance(settings.deaf);
        Self {
            templates: topics.map(|topic| Template::new(&settings, version, topic)).collect(),
            accepted: flows.map(|_| Numbers::default()).collect(),
            window: Window::new(settings.window),
            client: settings.client_id(index),
            world: world.clone(),
            advice: listens.then(Advice::new),
            unwritten: Vec::new(),
            schedule: None,
            announced: 0,
            turn: 0,
            sent: 0,
            accepted_count: 0,
            refused: 0,
            class,
            settings,
            version,
            first_flow,
            wishes,
            random,
        }
    }

    /// Does what is wished until it is to quit.
    pub async fn run(mut self) -> Done {
        let mut failures = 0;
        while self.stage() != Stage::Quit {
            let finished = self.stage() == Stage::Finish && self.window.in_flight() == 0;
            if self.stage() == Stage::Away || finished {
                self.schedule = None;
                self.wait_for_wish().await;
                continue;
            }
            match self.open().await {
                Some((link, maximum)) => {
                    failures = 0;
                    self.serve(link, maximum).await;
                }
                None => failures += 1,
            }
            self.back_off(failures).await;
        }
        add(&self.world.counts.in_flight, 0u64.wrapping_sub(self.window.in_flight()));
        Done {
            class: self.class,
            sent: self.sent,
            accepted: self.accepted_count,
            refused: self.refused,
            flows: (self.first_flow, self.accepted),
        }
    }

    fn stage(&self) -> Stage {
        self.wishes.borrow().stage
    }

    async fn wait_for_wish(&mut self) {
        if self.wishes.changed().await.is_err() {
            // Nobody wishes anything any more.
            std::future::pending::<()>().await;
        }
    }

    async fn back_off(&mut self, failures: u32) {
        let settings = &self.world.scenario.connect;
        let longest = (settings.backoff * 2f64.powi(failures as i32)).min(settings.backoff_max);
        let wait = self.random.uniform() * longest;
        let wait = if failures > 0 { wait.max(0.01) } else { wait };
        if wait > 0.0 && self.stage() < Stage::Quit && self.stage() > Stage::Away {
            let until = self.world.clock.now() + (wait * SECOND as f64) as Nanos;
            let clock = self.world.clock.clone();
            tokio::select! {
                () = clock.sleep_until(until) => {}
                () = self.wait_for_wish() => {}
            }
        }
    }

    async fn open(&mut self) -> Option<(Link, u16)> {
        let (receive_maximum, receive_buffer) = (None, None);
        let wants =
            Wants { version: self.version, persistent: false, receive_maximum, chunk: BATCH, receive_buffer };
        let world = self.world.clone();
        let opening = world.open(&world.device_route, &self.client, &wants);
        let mut quitting = self.wishes.clone();
        tokio::select! {
            opened = opening => opened.ok().map(|(link, answer)| (link, answer.receive_maximum)),
            _ = quitting.wait_for(|wish| wish.stage == Stage::Quit) => None,
        }
    }

    async fn serve(&mut self, mut link: Link, maximum: u16) {
        self.window.limit(maximum);
        if self.advice.is_some() {
            let topics = follow::topics(PREFIX, &self.settings.name, &self.client);
            let filters = topics.each_ref().map(|topic| (topic.as_str(), 0));
            codec::put_subscribe(self.version, 1, &filters, &mut link.output);
            self.world.counts.followers.fetch_add(1, Relaxed);
        }
        self.send_again(&mut link);
        self.world.counts.devices.fetch_add(1, Relaxed);
        let end = self.converse(&mut link).await;
        self.world.counts.devices.fetch_sub(1, Relaxed);
        self.announce_rate(0.0);
        if self.advice.is_some() {
            self.world.counts.followers.fetch_sub(1, Relaxed);
        }
        self.settle_written(link.written);
        match end {
            End::Wished => link.close().await,
            End::Dropped => drop(link),
            End::Lost(error) => self.world.lost(&self.client, &error),
        }
    }

    async fn converse(&mut self, link: &mut Link) -> End {
        let clock = self.world.clock.clone();
        let drops = self.wishes.borrow().drops;
        let keep_alive = Nanos::from(self.world.scenario.connect.keep_alive) * SECOND / 2;
        let mut ping = clock.now() + keep_alive;
        loop {
            let wish = *self.wishes.borrow_and_update();
            let settled = self.window.in_flight() == 0 && link.is_written();
            match wish.stage {
                Stage::Quit => return End::Wished,
                Stage::Away if settled => return End::Wished,
                _ if wish.drops != drops => return End::Dropped,
                _ => {}
            }
            let now = clock.now();
            if wish.stage == Stage::Active {
                self.produce(link, now);
            }
            if now >= ping && keep_alive > 0 {
                link.output.extend_from_slice(&codec::PINGREQ);
                ping = now + keep_alive;
            }
            let due =
                self.next_wake(link, wish.stage, now).min(if keep_alive > 0 { ping } else { Nanos::MAX });
            tokio::select! {
                biased;
                event = link.event(true) => match event.and_then(|_| self.handle(link)) {
                    Ok(()) => {}
                    Err(error) => return End::Lost(error),
                },
                () = clock.sleep_until(due) => {}
                _ = self.wishes.changed() => {}
            }
        }
    }

    /// When there is something to do even if nothing happens.
    fn next_wake(&self, link: &Link, stage: Stage, now: Nanos) -> Nanos {
        match self.schedule {
            // Advice grows old without any event.
            Some(schedule) if stage == Stage::Active && self.has_room(link) && self.advice.is_some() => {
                schedule.due.min(now + LOOK)
            }
            Some(schedule) if stage == Stage::Active && self.has_room(link) => schedule.due,
            _ => Nanos::MAX,
        }
    }

    fn has_room(&self, link: &Link) -> bool {
        if self.settings.qos == 0 {
            link.output.is_empty()
        } else {
            self.window.has_room() && link.output.len() < BATCH
        }
    }

    fn produce(&mut self, link: &mut Link, now: Nanos) {
        if self.settings.rate.is_some() {
            self.adjust_schedule(now);
        }
        if !self.has_room(link) {
            return;
        }
        // Whether the broker held this device up since the batch before: a full socket or a full window.
        let held = std::mem::take(&mut link.blocked) | self.window.was_full();
        let (mut count, mut first, mut room) = (0, None, true);
        while room {
            let Some(intended) = self.next_intended(now) else { break };
            first.get_or_insert(intended);
            self.put(link, intended);
            count += 1;
            room = link.output.len() < BATCH && (self.settings.qos == 0 || self.window.has_room());
        }
        if count == 0 {
            return;
        }
        self.sent += count;
        add(&self.world.counts.sent, count);
        add(&self.world.counts.writes, 1);
        add(&self.world.counts.blocked, u64::from(held));
        let late = now.saturating_sub(first.unwrap_or(now));
        if !held && late > LATE {
            add(&self.world.counts.late, count);
            self.world.counts.latest.fetch_max(late, Relaxed);
        }
    }

    /// The time for which the next message is meant, if it has come.
    fn next_intended(&mut self, now: Nanos) -> Option<Nanos> {
        let Some(schedule) = self.schedule else { return Some(now) };
        if schedule.due > now {
            return None;
        }
        let step = self.step(now);
        self.schedule = Some(Schedule { last: schedule.due, due: schedule.due.saturating_add(step) });
        Some(schedule.due)
    }

    fn step(&mut self, now: Nanos) -> Nanos {
        let own = self.settings.rate.unwrap_or(1.0);
        let rate = self.advice.as_ref().map_or(own, |advice| advice.rate(own, now));
        let off = 1.0 + self.settings.jitter * self.random.uniform_in(-1.0, 1.0);
        (off * SECOND as f64 / rate.max(1e-9)) as Nanos
    }

    /// Starts the schedule, and moves the next message when the advice has changed.
    fn adjust_schedule(&mut self, now: Nanos) {
        let own = self.settings.rate.unwrap_or(1.0);
        let Some(schedule) = self.schedule else {
            let first = self.random.uniform() * self.settings.spread / own;
            let due = now + (first * SECOND as f64) as Nanos;
            self.schedule = Some(Schedule { last: now, due });
            self.announce_rate(own);
            return;
        };
        let Some(advice) = &self.advice else { return };
        let rate = advice.rate(own, now);
        if (rate * 1000.0) as u64 != self.announced {
            self.announce_rate(rate);
            let due = schedule.last.saturating_add((SECOND as f64 / rate.max(1e-9)) as Nanos);
            // Faster again: from now on, without a burst for the time that was slow.
            self.schedule = Some(Schedule { due: due.max(now.min(schedule.due)), ..schedule });
        }
    }

    /// Keeps the sum of the rates of all devices that follow.
    fn announce_rate(&mut self, rate: f64) {
        if self.advice.is_some() {
            let rate = (rate * 1000.0) as u64;
            self.world.counts.followed.fetch_add(rate.wrapping_sub(self.announced), Relaxed);
            self.announced = rate;
        }
    }

    fn put(&mut self, link: &mut Link, intended: Nanos) {
        let turn = self.turn;
        self.turn = (turn + 1) % self.templates.len();
        let flow = self.first_flow + turn as u32;
        let number = self.templates[turn].next();
        self.world.sent.up_to(flow, number + 1);
        let stamp = Stamp { run: self.world.run, flow, number, intended };
        if self.settings.qos == 0 {
            self.templates[turn].put(&stamp, 0, &mut link.output);
            self.unwritten.push((link.output.len(), turn as u32, number));
            return;
        }
        let id = self.window.take(turn as u32, number, intended);
        self.templates[turn].put(&stamp, id, &mut link.output);
        add(&self.world.counts.in_flight, 1);
    }

    /// After a reconnect: what was not acknowledged goes out once more.
    fn send_again(&mut self, link: &mut Link) {
        let again = self.window.unanswered();
        let dropped = self.window.in_flight() - again.len() as u64;
        add(&self.world.counts.in_flight, 0u64.wrapping_sub(dropped));
        self.window.forget_released();
        add(&self.world.counts.resent, again.len() as u64);
        for (id, turn, number, intended) in again {
            let stamp = Stamp { run: self.world.run, flow: self.first_flow + turn, number, intended };
            self.templates[turn as usize].put(&stamp, id, &mut link.output);
        }
    }

    fn handle(&mut self, link: &mut Link) -> io::Result<()> {
        if link.output.is_empty() {
            self.settle_written(usize::MAX);
        }
        let (mut accepted, mut answered) = (0, 0);
        let mut releases = std::mem::take(&mut self.window.releases);
        let version = self.version;
        while let Some(packet) = link.packet()? {
            match packet.kind() {
                kind::PUBACK | kind::PUBREC | kind::PUBCOMP => {
                    let ack = codec::ack(&packet, version).map_err(io::Error::other)?;
                    if let (Some(advice), Some(rate)) = (&mut self.advice, ack.user_property("tide-rate")) {
                        advice.on_ack(rate, self.world.clock.now());
                    }
                    let answer = self.window.answer(packet.kind(), ack.id, ack.reason);
                    if let Some((turn, number)) = answer.accepted {
                        accepted += u64::from(self.accept(turn, number));
                    }
                    self.refused += u64::from(answer.refused);
                    add(&self.world.counts.refused, u64::from(answer.refused));
                    answered += u64::from(answer.freed);
                    if answer.release {
                        codec::put_ack(kind::PUBREL, ack.id, &mut releases);
                    }
                }
                kind::PUBLISH => {
                    let message = codec::message(&packet, version).map_err(io::Error::other)?;
                    let (topic, payload) = (message.topic, message.payload);
                    hear(&mut self.advice, topic, payload, self.world.clock.now());
                    if let Some(advice) = &self.advice {
                        *self.world.phase.lock() = advice.phase();
                    }
                }
                _ => {}
            }
        }
        link.output.extend_from_slice(&releases);
        releases.clear();
        self.window.releases = releases;
        add(&self.world.counts.in_flight, 0u64.wrapping_sub(answered));
        self.accepted_count += accepted;
        add(&self.world.counts.accepted, accepted);
        Ok(())
    }

    /// QoS 0: what is with the kernel counts as accepted; the rest never went out, and is not owed to anybody.
    fn settle_written(&mut self, written: usize) {
        let mut count = 0;
        for (end, turn, number) in std::mem::take(&mut self.unwritten) {
            if end <= written {
                count += u64::from(self.accept(turn, number));
            }
        }
        self.accepted_count += count;
        add(&self.world.counts.accepted, count);
    }

    fn accept(&mut self, turn: u32, number: u64) -> bool {
        let new = self.accepted[turn as usize].insert(number);
        if new {
            for (set, count) in &self.world.flows[(self.first_flow + turn) as usize].owed {
                add(&self.world.ledgers[usize::from(*set)].owed, u64::from(*count));
            }
        }
        new
    }
}

/// Takes in a message on one of the topics of the gateway's advice.
fn hear(advice: &mut Option<Advice>, topic: &[u8], payload: &[u8], now: Nanos) {
    let Some(advice) = advice else { return };
    let Some(rest) = topic.strip_prefix(PREFIX.as_bytes()) else { return };
    match rest {
        b"/rate" => advice.on_message(0, payload, now),
        _ if rest.starts_with(b"/rate/class/") => advice.on_message(1, payload, now),
        _ if rest.starts_with(b"/rate/client/") => advice.on_message(2, payload, now),
        _ => {}
    }
}
