//! When a device sends next, and who is to blame when it is late.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_control::random::Random;

use super::{BATCH, Device, LATE};
use crate::clock::{Nanos, SECOND};
use crate::intents::Unsent;
use crate::link::Link;
use crate::stats::add;

/// When an open loop sends next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub(super) due: Nanos,
    /// The message before.
    last: Nanos,
}

impl Device {
    pub(super) fn produce(&mut self, link: &mut Link, now: Nanos) {
        if self.settings.rate.is_some() {
            self.adjust_schedule(now);
        }
        if !self.has_room(link) {
            return;
        }
        // Whether the broker held this device up since the batch before: a full socket or a full window.
        let held = std::mem::take(&mut link.blocked) | self.window.was_full();
        if held {
            self.blame.hold(self.batch_at);
        }
        self.blame.release(now);
        let most = self.settings.batch.map_or(u64::MAX, u64::from);
        let (mut count, mut first, mut room) = (0, None, true);
        while room {
            let Some(intended) = self.next_intended(now) else { break };
            first.get_or_insert(intended);
            self.put(link, intended);
            count += 1;
            let fits = link.output.len() < BATCH && count < most;
            room = fits && (self.settings.qos == 0 || self.window.has_room());
        }
        if count > 0 {
            self.account(count, first.unwrap_or(now), held, now);
        }
        if self.schedule.is_none_or(|schedule| schedule.due > now) {
            self.blame.catch_up();
        }
    }

    /// Counts a batch whose first message was meant for this time.
    fn account(&mut self, count: u64, first: Nanos, held: bool, now: Nanos) {
        self.batch_at = now;
        // Those after the first one follow at once: their gaps take no time.
        if let Some(last) = self.last_sent.replace(now) {
            self.world.gaps.add(last, now, &self.world.measured());
        }
        self.sent += count;
        add(&self.world.counts.sent, count);
        add(&self.world.counts.in_flight, count);
        add(&self.world.counts.writes, 1);
        add(&self.world.counts.blocked, u64::from(held));
        self.confess(count, first, now);
    }

    /// Notes that messages are late by the generator's own fault, if they are.
    fn confess(&self, count: u64, first: Nanos, now: Nanos) {
        let late = self.blame.own_lateness(first, now);
        if late > LATE {
            add(&self.world.counts.late, count);
            self.world.counts.latest.fetch_max(late, Relaxed);
        }
    }

    /// Ends the schedule: what was due until now is not sent any more. `held` if the broker is the reason.
    pub(super) fn leave_off(&mut self, held: bool) {
        self.last_sent = None;
        let Some(schedule) = self.schedule.take() else { return };
        let now = self.world.clock.now();
        let until = now.min(self.world.measured_until.load(Relaxed));
        // What became due a moment ago would have gone out now.
        if until.saturating_sub(schedule.due) < LATE {
            return;
        }
        let step = ((SECOND as f64 / self.rate(now).max(1e-9)) as Nanos).max(1);
        let count = (until - schedule.due) / step + 1;
        let turns = self.templates.len() as u64;
        for offset in 0..turns.min(count) {
            let turn = (self.turn as u64 + offset) % turns;
            self.unsent.push(Unsent {
                flow: self.first_flow + turn as u32,
                first: schedule.due + offset * step,
                step: step.saturating_mul(turns),
                count: (count - offset).div_ceil(turns),
                until,
            });
        }
        // Room that came a moment ago does not excuse who made it wait before.
        if self.window.was_full() || held {
            self.blame.hold(self.batch_at);
        }
        self.confess(count, schedule.due, until);
    }

    /// Messages a second that it is to send now.
    fn rate(&self, now: Nanos) -> f64 {
        let own = self.settings.rate.unwrap_or(1.0);
        self.advice.as_ref().map_or(own, |advice| advice.rate(own, now))
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
        let rate = self.rate(now);
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
            self.announce_rate(Some(own));
            return;
        };
        let Some(advice) = &self.advice else { return };
        let rate = advice.rate(own, now);
        if (rate * 1000.0) as u64 != self.announced {
            self.announce_rate(Some(rate));
            let due = schedule.last.saturating_add((SECOND as f64 / rate.max(1e-9)) as Nanos);
            // Faster again: from now on, without a burst for the time that was slow.
            self.schedule = Some(Schedule { due: due.max(now.min(schedule.due)), ..schedule });
        }
    }

    /// Keeps the sum of the rates of all devices that follow, and what they do not send; none if this one goes.
    pub(super) fn announce_rate(&mut self, rate: Option<f64>) {
        if self.advice.is_some() {
            self.restraint.change(rate, self.world.clock.now(), &self.world.measured());
            let rate = (rate.unwrap_or(0.0) * 1000.0) as u64;
            self.world.counts.followed.fetch_add(rate.wrapping_sub(self.announced), Relaxed);
            self.announced = rate;
        }
    }
}
