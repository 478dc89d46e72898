//! Who is there: all devices and consumers as tasks, and what is wished of each.

use std::sync::atomic::Ordering::Relaxed;

use tidegate::sim::pattern::Pattern;
use tidegate_control::random::{Random, Seeded};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::Nanos;
use crate::consumer::Consumer;
use crate::device::{Device, Done};
use crate::scaler::{News, Scaling, Seen, tell};
use crate::world::{Shared, Stage, Wish};

type Wisher = watch::Sender<Wish>;

/// All clients of a run.
pub(super) struct Fleet {
    world: Shared,
    pattern: Pattern,
    scaling: Scaling,
    /// What the target is told about the auto-scaler, if it wants to know.
    news: Option<watch::Sender<Option<News>>>,
    /// By class.
    devices: Vec<Vec<Wisher>>,
    /// By kind.
    consumers: Vec<Vec<Wisher>>,
    /// The first stream of each kind.
    recipients: Vec<usize>,
    device_tasks: Vec<JoinHandle<Done>>,
    consumer_tasks: Vec<JoinHandle<()>>,
    /// Consumers that are to be there now.
    wanted_consumers: u32,
    /// What devices that are there do.
    stage: Stage,
    random: Seeded,
}

impl Fleet {
    /// Starts all tasks; nobody connects yet.
    pub(super) fn start(world: &Shared) -> Result<Self, String> {
        let pattern = world.scenario.pattern()?;
        let scaling = Scaling::new(&world.scenario);
        let random = Seeded::stream(world.scenario.seed, u64::MAX);
        let mut fleet = Self {
            world: world.clone(),
            pattern,
            scaling,
            news: start_telling(world),
            devices: Vec::new(),
            consumers: Vec::new(),
            recipients: Vec::new(),
            device_tasks: Vec::new(),
            consumer_tasks: Vec::new(),
            wanted_consumers: 0,
            stage: Stage::Away,
            random,
        };
        fleet.start_consumers();
        fleet.start_devices();
        Ok(fleet)
    }

    fn start_consumers(&mut self) {
        let (mut number, mut recipient) = (0, 0);
        for (set, settings) in self.world.scenario.consumers.iter().enumerate() {
            let mut wishers = Vec::new();
            self.recipients.push(recipient);
            for index in 0..settings.instances {
                let (wisher, wishes) = watch::channel(Wish { stage: Stage::Away, drops: 0 });
                let own = if settings.group.is_some() { recipient } else { recipient + index as usize };
                let consumer = Consumer::new(&self.world, set, index, own, number, wishes);
                self.consumer_tasks.push(tokio::spawn(consumer.run()));
                wishers.push(wisher);
                number += 1;
            }
            recipient += if settings.group.is_some() { 1 } else { settings.instances as usize };
            self.consumers.push(wishers);
        }
    }

    fn start_devices(&mut self) {
        let mut flow = 0;
        for (class, settings) in self.world.scenario.classes.iter().enumerate() {
            let mut wishers = Vec::new();
            for index in 0..settings.devices {
                let (wisher, wishes) = watch::channel(Wish { stage: Stage::Away, drops: 0 });
                let device = Device::new(&self.world, class, index, flow, wishes);
                self.device_tasks.push(tokio::spawn(device.run()));
                wishers.push(wisher);
                flow += settings.topics;
            }
            self.devices.push(wishers);
        }
    }

    /// Devices that are there do this from now on.
    pub(super) fn devices_do(&mut self, stage: Stage, now: Nanos) {
        self.stage = stage;
        if stage >= Stage::Finish {
            // Those that are away stay away; those that come back only wait for what is owed to them.
            self.devices.iter().flatten().for_each(|wisher| set(wisher, stage));
        } else {
            self.update_devices(now);
        }
    }

    /// Consumers look around, however long they meant to sleep.
    pub(super) fn wake_consumers(&self) {
        self.consumers.iter().flatten().for_each(|wisher| wisher.send_modify(|_| {}));
    }

    /// Everybody leaves.
    pub(super) fn quit(&mut self) {
        self.world.over.store(true, Relaxed);
        self.devices.iter().chain(&self.consumers).flatten().for_each(|wisher| set(wisher, Stage::Quit));
    }

    /// Consumers that are to be there at the start are told to come; returns how many.
    pub(super) fn call_consumers(&mut self, now: Nanos) -> u32 {
        self.update_consumers(now)
    }

    /// Follows the pattern, the schedule and the auto-scaler.
    pub(super) fn update(&mut self, now: Nanos) {
        self.update_devices(now);
        self.update_consumers(now);
    }

    /// Devices that are to be there now.
    pub(super) fn wanted_devices(&self, now: Nanos) -> u32 {
        (0..self.devices.len()).map(|class| self.wanted(class, now)).sum()
    }

    fn wanted(&self, class: usize, now: Nanos) -> u32 {
        let settings = &self.world.scenario.classes[class];
        let share = if settings.patterned { self.pattern.share(self.world.share(now)) } else { 1.0 };
        (share * f64::from(settings.devices)).round() as u32
    }

    fn update_devices(&mut self, now: Nanos) {
        for (class, wishers) in self.devices.iter().enumerate() {
            let wanted = self.wanted(class, now) as usize;
            for (index, wisher) in wishers.iter().enumerate() {
                set(wisher, if index < wanted { self.stage } else { Stage::Away });
            }
        }
    }

    fn update_consumers(&mut self, now: Nanos) -> u32 {
        let seen = Seen {
            waiting: self.world.ledgers.first().map_or(0, |ledger| ledger.queued()),
            phase: *self.world.phase.lock(),
            demand: self.demand(now).unwrap_or(0.0),
        };
        let scaled = self.scaling.instances(now, &seen);
        if let (Some(news), Some(instances)) = (&self.news, scaled) {
            let latest = News::new(&self.world.scenario, instances);
            news.send_if_modified(|known| std::mem::replace(known, latest.clone()) != latest);
        }
        let share = self.world.share(now);
        let mut total = 0;
        for (kind, wishers) in self.consumers.iter().enumerate() {
            let scheduled = self.world.scenario.consumers[kind].scheduled(share);
            let wanted = scaled.filter(|_| kind == 0).unwrap_or(scheduled);
            total += wanted;
            for (index, wisher) in wishers.iter().enumerate() {
                let is_wanted = index < wanted as usize;
                set(wisher, if is_wanted { Stage::Active } else { Stage::Away });
                if self.world.scenario.consumers[kind].group.is_none() {
                    self.world.recipients[self.recipients[kind] + index].want(is_wanted);
                }
            }
            if self.world.scenario.consumers[kind].group.is_some() {
                self.world.recipients[self.recipients[kind]].want(wanted > 0);
            }
        }
        self.wanted_consumers = total;
        total
    }

    /// Consumers that are to be there now.
    pub(super) fn wanted_consumers(&self) -> u32 {
        self.wanted_consumers
    }

    /// What devices that are to be there would send if nobody held them back; none if some send as fast as they can.
    pub(super) fn demand(&self, now: Nanos) -> Option<f64> {
        let classes = self.world.scenario.classes.iter().enumerate();
        classes.map(|(class, settings)| Some(f64::from(self.wanted(class, now)) * settings.rate?)).sum()
    }

    /// Devices of this class (or all) lose their connections, each with this chance.
    pub(super) fn drop_devices(&mut self, who: Option<&str>, share: f64) {
        let names = self.world.scenario.classes.iter().map(|class| class.name.as_str());
        drop_some(names.zip(&self.devices), who, share, &mut self.random);
    }

    /// Consumers of this kind (or all) lose their connections, each with this chance.
    pub(super) fn drop_consumers(&mut self, who: Option<&str>, share: f64) {
        let names = self.world.scenario.consumers.iter().map(|kind| kind.name.as_str());
        drop_some(names.zip(&self.consumers), who, share, &mut self.random);
    }

    /// Whether no device has anything to write or waits for an acknowledgement.
    pub(super) fn is_settled(&self) -> bool {
        self.world.counts.in_flight.load(Relaxed) == 0
    }

    /// Waits until all tasks have ended; those that don't are left behind.
    pub(super) async fn join(self, patience: std::time::Duration) -> Vec<Done> {
        let deadline = tokio::time::Instant::now() + patience;
        let mut done = Vec::new();
        for task in self.device_tasks {
            if let Ok(Ok(device)) = tokio::time::timeout_at(deadline, task).await {
                done.push(device);
            }
        }
        for task in self.consumer_tasks {
            let _ = tokio::time::timeout_at(deadline, task).await;
        }
        done
    }
}

/// Tells the target about the auto-scaler until the sender goes.
fn start_telling(world: &Shared) -> Option<watch::Sender<Option<News>>> {
    let admin = world.scenario.admin?;
    world.scenario.autoscale.as_ref()?;
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(tell(world.clone(), admin, receiver));
    Some(sender)
}

fn drop_some<'a>(
    groups: impl Iterator<Item = (&'a str, &'a Vec<Wisher>)>,
    who: Option<&str>,
    share: f64,
    random: &mut Seeded,
) {
    for (_, wishers) in groups.filter(|(name, _)| who.is_none_or(|who| who == *name)) {
        for wisher in wishers {
            if random.chance(share) {
                wisher.send_modify(|wish| wish.drops += 1);
            }
        }
    }
}

fn set(wisher: &Wisher, stage: Stage) {
    wisher.send_if_modified(|wish| std::mem::replace(&mut wish.stage, stage) != stage);
}
