//! A device that publishes: at its own pace (open loop) or as fast as it is let (closed loop).

mod blame;
mod pace;
mod packets;
mod restraint;
mod traffic;

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_control::random::{Random, Seeded};

use self::blame::Blame;
use self::pace::Schedule;
use self::packets::{Template, Window};
use self::restraint::Restraint;
use crate::backoff;
use crate::check::Numbers;
use crate::clock::{Nanos, SECOND};
use crate::codec::{self, Version};
use crate::follow::{self, Advice};
use crate::intents::{Intents, Unsent};
use crate::lasting::Lasting;
use crate::link::Link;
use crate::record::Withheld;
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
    pub flows: (u32, Vec<Sending>),
    /// What was due and never sent.
    pub unsent: Vec<Unsent>,
    /// Messages accepted in the measured part.
    pub measured: u64,
    /// What it was talked out of sending; none if it does not follow.
    pub withheld: Option<Withheld>,
}

/// What became of the messages of one flow, as its device knows it.
#[derive(Default)]
pub struct Sending {
    /// Accepted by the broker.
    pub accepted: Numbers,
    /// Refused by the broker.
    pub refused: Numbers,
    /// When they were meant to be sent; nothing if nobody waits for them.
    pub intents: Intents,
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
    flows: Vec<Sending>,
    turn: usize,
    wishes: Wishes,
    random: Seeded,
    window: Window,
    /// QoS 0: messages in the output with the place where they end.
    unwritten: Vec<(usize, u32, u64)>,
    schedule: Option<Schedule>,
    blame: Blame,
    lasting: Lasting,
    /// When it last sent something.
    batch_at: Nanos,
    unsent: Vec<Unsent>,
    advice: Option<Advice>,
    restraint: Restraint,
    /// The rate that is in use, as it was added to the sum of all.
    announced: u64,
    sent: u64,
    accepted_count: u64,
    measured: u64,
    /// When it last sent something, unless it paused since.
    last_sent: Option<Nanos>,
    refused: u64,
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
            flows: flows.map(|_| sending(world.scenario.duration)).collect(),
            window: Window::new(settings.window),
            client: settings.client_id(index),
            world: world.clone(),
            advice: listens.then(Advice::new),
            restraint: Restraint::new(settings.rate.unwrap_or(0.0)),
            unwritten: Vec::new(),
            schedule: None,
            blame: Blame::default(),
            lasting: Lasting::new(world.scenario.patience),
            batch_at: 0,
            unsent: Vec::new(),
            announced: 0,
            turn: 0,
            sent: 0,
            accepted_count: 0,
            measured: 0,
            last_sent: None,
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
        let mut failures: u32 = 0;
        while self.stage() != Stage::Quit {
            let finished = self.stage() == Stage::Finish && self.window.in_flight() == 0;
            if self.stage() == Stage::Away || finished {
                self.leave_off(true);
                self.wait_for_wish().await;
                continue;
            }
            let served = match self.open().await {
                Some((link, maximum)) => self.serve(link, maximum).await,
                None => false,
            };
            failures = if served { 0 } else { failures.saturating_add(1) };
            self.back_off(failures).await;
        }
        self.leave_off(true);
        add(&self.world.counts.in_flight, 0u64.wrapping_sub(self.window.in_flight()));
        Done {
            class: self.class,
            sent: self.sent,
            accepted: self.accepted_count,
            refused: self.refused,
            flows: (self.first_flow, self.flows),
            unsent: self.unsent,
            measured: self.measured,
            withheld: self.advice.is_some().then(|| self.restraint.sum()),
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
        let wait = backoff::wait(&self.world.scenario.connect, failures, &mut self.random);
        let clock = self.world.clock.clone();
        let until = clock.now() + wait;
        // Wishes other than to go don't make a device impatient.
        while clock.now() < until && self.stage() < Stage::Quit && self.stage() > Stage::Away {
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

    /// Serves one connection; false if it was lost soon.
    async fn serve(&mut self, mut link: Link, maximum: u16) -> bool {
        let begun = self.world.clock.now();
        self.window.limit(maximum);
        self.lasting.begin(begun);
        if let Some(advice) = &mut self.advice {
            advice.on_connect();
            let topics = follow::topics(PREFIX, &self.settings.name, &self.client);
            let filters = topics.each_ref().map(|topic| (topic.as_str(), 0));
            codec::put_subscribe(self.version, 1, &filters, &mut link.output);
            self.world.counts.followers.fetch_add(1, Relaxed);
        }
        self.send_again(&mut link);
        self.world.counts.devices.fetch_add(1, Relaxed);
        let end = self.converse(&mut link).await;
        self.world.counts.devices.fetch_sub(1, Relaxed);
        self.announce_rate(None);
        if self.advice.is_some() {
            self.world.counts.followers.fetch_sub(1, Relaxed);
        }
        self.settle_written(if link.is_written() { usize::MAX } else { link.written });
        self.blame.hold(self.world.clock.now());
        match end {
            End::Wished => {
                self.lasting.succeed();
                link.close().await;
            }
            End::Dropped => {
                self.lasting.succeed();
                drop(link);
            }
            End::Lost(error) => {
                self.world.lost(&self.client, &error);
                return backoff::has_lasted(&self.world.scenario.connect, self.world.clock.now() - begun);
            }
        }
        true
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
            } else {
                self.leave_off(!self.has_room(link));
            }
            if now >= ping && keep_alive > 0 {
                link.output.extend_from_slice(&codec::PINGREQ);
                ping = now + keep_alive;
            }
            let look = self.lasting.look(now, &self.world.counts);
            let ping_at = if keep_alive > 0 { ping } else { Nanos::MAX };
            let due = self.next_wake(link, wish.stage, now).min(ping_at).min(look);
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
        let written = link.output.is_empty();
        match self.settings.qos {
            0 => written,
            _ if self.settings.batch.is_some() => self.window.has_room() && written,
            _ => self.window.has_room() && link.output.len() < BATCH,
        }
    }
}

fn sending(duration: f64) -> Sending {
    Sending { intents: Intents::new(duration), ..Sending::default() }
}
