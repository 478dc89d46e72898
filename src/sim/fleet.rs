//! Devices of one class that connect, send, and hear what rate they may use.

use tidegate_control::random::{Random, Seeded};
use tidegate_control::spread::Spread;
use tidegate_control::time::{Moment, Span};

use super::wheel::{Due, Wheel};

/// How devices hear of a new rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hears {
    /// With the acknowledgement of their next message.
    WithAck,
    /// At once, also between two messages.
    AtOnce,
    /// With the acknowledgement of their next message, and at once when it is announced.
    Both,
    /// Never.
    Never,
}

/// What the devices of a fleet have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    /// Messages a second when nobody holds the device back.
    pub(super) own_rate: f64,
    /// How far an interval may be off, as a share of it.
    pub(super) jitter: f64,
    /// The share of an interval over which the first messages of devices that connect together are spread.
    pub(super) spread: f64,
    /// How new rates are heard.
    pub(super) hears: Hears,
    /// Whether acknowledgements space held-back devices out.
    pub(super) spaced: bool,
}

/// Devices that share a rate.
///
/// The wheel runs on the fleet's own clock. Devices that hear at once share a clock that runs slower while they are
/// held back, so that a new rate costs one multiplication and not a million changed appointments.
#[derive(Debug)]
pub(super) struct Fleet {
    habits: Habits,
    wheel: Wheel,
    lives: Vec<u32>,
    connected: u32,
    rate: f64,
    random: Seeded,
    /// Where acknowledgements find the next place for a device that is held back.
    places: Spread,
    /// Where the fleet's clock stood, at which moment, and how fast it has run since.
    clock: f64,
    clock_at: Moment,
    speed: f64,
}

impl Fleet {
    /// A fleet of about so many devices, of which nobody is connected yet.
    pub(super) fn new(devices: u32, habits: Habits, random: Seeded) -> Self {
        let horizon = Span::from_rate(habits.own_rate).scale(4.0).as_nanos();
        Self {
            habits,
            wheel: Wheel::new(devices as usize, horizon),
            lives: Vec::new(),
            connected: 0,
            rate: habits.own_rate,
            random,
            places: Spread::default(),
            clock: 0.0,
            clock_at: Moment::START,
            speed: 1.0,
        }
    }

    /// Devices that are connected.
    pub(super) fn connected(&self) -> u32 {
        self.connected
    }

    /// Appointments that were looked at, moved or compared so far.
    pub(super) fn steps(&self) -> u64 {
        self.wheel.steps()
    }

    /// Connects or disconnects devices until this many are connected.
    pub(super) fn resize(&mut self, now: Moment, devices: u32) {
        for device in devices..self.connected {
            self.lives[device as usize] = self.lives[device as usize].wrapping_add(1);
        }
        if self.lives.len() < devices as usize {
            self.lives.resize(devices as usize, 0);
        }
        let clock = self.clock_time(now);
        for device in self.connected..devices {
            let wait = self.random.uniform() * self.habits.spread * 1e9 / self.habits.own_rate;
            let life = self.lives[device as usize];
            self.wheel.push(Due { at: (clock + wait) as u64, device, life });
        }
        self.connected = devices;
    }

    /// Announces a new rate for each device, to those who hear at once.
    pub(super) fn announce(&mut self, now: Moment, rate: f64) {
        if matches!(self.habits.hears, Hears::AtOnce | Hears::Both) {
            self.clock = self.clock_time(now);
            self.clock_at = now;
            self.speed = rate / self.habits.own_rate;
            self.rate = rate;
        }
    }

    /// Lets acknowledgements carry a new rate from now on, to those who hear by them.
    pub(super) fn acknowledge(&mut self, rate: f64) {
        if matches!(self.habits.hears, Hears::WithAck | Hears::Both) {
            self.rate = rate;
        }
    }

    /// When the next message is sent, if that is before `end`.
    pub(super) fn next_before(&mut self, end: Moment) -> Option<Moment> {
        let clock_end = self.clock_time(end) as u64;
        loop {
            let due = self.wheel.peek_before(clock_end)?;
            if self.lives[due.device as usize] == due.life {
                return Some(self.moment_of(due.at).min(end - Span::from_nanos(1)));
            }
            self.wheel.pop();
        }
    }

    /// Sends the message that `next_before` saw.
    pub(super) fn send(&mut self) {
        let Some(due) = self.wheel.pop() else { return };
        let jitter = match self.habits.jitter {
            0.0 => 1.0,
            jitter => 1.0 + jitter * (2.0 * self.random.uniform() - 1.0),
        };
        let wait = (jitter * self.interval(due.at)) as u64;
        self.wheel.push(Due { at: due.at.saturating_add(wait.max(1)), ..due });
    }

    /// Nanoseconds on the fleet's clock from a message to the next of the same device.
    fn interval(&mut self, sent: u64) -> f64 {
        // On a clock that runs at another speed the same rate is another one.
        let rate = self.rate / self.speed;
        if self.habits.spaced && self.rate < self.habits.own_rate {
            let members = u64::from(self.connected);
            return self.places.wait(Moment::from_nanos(sent), rate, members).as_nanos() as f64;
        }
        1e9 / rate
    }

    fn clock_time(&self, now: Moment) -> f64 {
        self.clock + now.since(self.clock_at).as_nanos() as f64 * self.speed
    }

    fn moment_of(&self, clock: u64) -> Moment {
        self.clock_at + Span::from_nanos(((clock as f64 - self.clock) / self.speed) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(hears: Hears) -> Fleet {
        Fleet::new(
            10,
            Habits { own_rate: 2.0, jitter: 0.0, spread: 1.0, hears, spaced: false },
            Seeded::new(1),
        )
    }

    /// Messages sent from one second to another.
    fn count(fleet: &mut Fleet, to: f64) -> usize {
        let mut sent = 0;
        while fleet.next_before(Moment::from_secs_f64(to)).is_some() {
            fleet.send();
            sent += 1;
        }
        sent
    }

    #[test]
    fn devices_send_at_their_own_rate_until_they_leave() {
        for hears in [Hears::WithAck, Hears::AtOnce, Hears::Never] {
            let mut fleet = fleet(hears);
            fleet.resize(Moment::START, 10);
            assert_eq!(count(&mut fleet, 10.0), 200);
            fleet.resize(Moment::from_secs_f64(10.0), 5);
            assert_eq!(count(&mut fleet, 20.0), 100);
            fleet.resize(Moment::from_secs_f64(20.0), 0);
            assert_eq!(count(&mut fleet, 30.0), 0);
        }
    }

    #[test]
    fn a_device_that_comes_back_sends_once_in_an_interval() {
        let mut fleet = fleet(Hears::WithAck);
        for second in 0..10 {
            fleet.resize(Moment::from_secs_f64(f64::from(second)), 0);
            fleet.resize(Moment::from_secs_f64(f64::from(second)), 10);
            assert_eq!(count(&mut fleet, f64::from(second) + 1.0), 20);
        }
    }

    #[test]
    fn a_rate_is_heard_at_once_or_with_the_next_message_or_never() {
        let second = Moment::from_secs_f64(1.0);
        let sent = [Hears::AtOnce, Hears::WithAck, Hears::Never, Hears::Both].map(|hears| {
            let mut fleet = fleet(hears);
            fleet.resize(Moment::START, 1000);
            count(&mut fleet, 1.0);
            fleet.announce(second, 0.5);
            fleet.acknowledge(0.5);
            (count(&mut fleet, 1.5), count(&mut fleet, 5.5))
        });
        // At once: half a second at 0.5 a second. With the next message: that one comes as planned, then one every 2 s.
        assert!((200..=300).contains(&sent[0].0), "{sent:?}");
        assert!((1950..=2050).contains(&sent[0].1), "{sent:?}");
        assert_eq!(sent[1], (1000, 2000));
        assert_eq!(sent[2], (1000, 8000));
        assert_eq!(sent[3], sent[0]);
    }
}
