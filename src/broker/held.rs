//! Packets of a publisher that is held, in the broker and in the proxy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_plugin::Publisher;

use super::clock::Millis;
use crate::config::ListenSettings;
use crate::wire::Frame;

/// How much more is kept each time that a client must be heard, in bytes: as much as the system keeps for us to read.
const RELIEF: usize = 512 * 1024;
/// How much more is kept of one client at most, in bytes.
const MOST_RELIEF: usize = 8 * 1024 * 1024;
/// What a client may have held when all clients together have too much.
const LEAST_HELD: usize = 16 * 1024;

/// A plugin may ask for any delay; it is asked again after this one.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);

/// Packets that wait because the publisher is held.
pub(crate) struct HeldInput {
    pub(crate) packets: VecDeque<HeldPacket>,
    pub(crate) bytes: HeldBytes,
    /// QoS 1 and 2 messages among them.
    pub(crate) acknowledged: usize,
    /// Not before this moment, by a plugin's decision.
    pub(crate) until: Millis,
    /// How much more may be kept than is usual, so that what is behind it is heard.
    more: usize,
}

/// What one client has held, counted for all clients too.
pub(crate) struct HeldBytes {
    own: usize,
    all: Arc<AtomicUsize>,
}

/// One packet that waits.
pub(crate) struct HeldPacket {
    pub(crate) frame: Frame,
    pub(crate) body: Box<[u8]>,
    pub(crate) since: Millis,
}

impl HeldInput {
    pub(crate) fn new(bytes: HeldBytes) -> Self {
        Self { packets: VecDeque::new(), bytes, acknowledged: 0, until: 0, more: 0 }
    }

    /// Keeps a packet behind those that wait already.
    pub(crate) fn push(&mut self, packet: HeldPacket) {
        self.bytes.set(self.bytes.own + packet.bytes());
        self.acknowledged += usize::from(packet.is_acknowledged());
        self.packets.push_back(packet);
    }

    /// Whether so much is kept that nothing more is to be read.
    pub(crate) fn is_enough(&self, listen: &ListenSettings) -> bool {
        // a quarter is left for those who must be heard
        let total = if self.more > 0 { listen.max_buffer_total } else { listen.max_buffer_total / 4 * 3 };
        self.bytes.own > listen.max_buffer + self.more
            || self.bytes.own > LEAST_HELD && self.bytes.of_all() > total
    }

    /// How many messages are kept.
    pub(crate) fn publishes(&self) -> usize {
        self.packets.iter().filter(|held| held.frame.is_publish()).count()
    }

    /// Lets more be kept; `false` when that has been done as often as may be, or all clients together have too much.
    pub(crate) fn relieve(&mut self, listen: &ListenSettings) -> bool {
        let may = self.more < MOST_RELIEF && self.bytes.of_all() <= listen.max_buffer_total;
        if may {
            self.more += RELIEF;
        }
        may
    }

    /// What is left, counted anew.
    pub(crate) fn again(mut self) -> Self {
        self.bytes.set(self.packets.iter().map(HeldPacket::bytes).sum());
        self.acknowledged = self.packets.iter().filter(|held| held.is_acknowledged()).count();
        self
    }
}

impl HeldBytes {
    pub(crate) fn new(all: Arc<AtomicUsize>) -> Self {
        Self { own: 0, all }
    }

    fn set(&mut self, own: usize) {
        self.all.fetch_add(own, Ordering::Relaxed);
        self.all.fetch_sub(std::mem::replace(&mut self.own, own), Ordering::Relaxed);
    }

    fn of_all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl HeldPacket {
    fn bytes(&self) -> usize {
        self.body.len() + std::mem::size_of::<Self>()
    }

    /// Whether it is a message of QoS 1 or 2.
    fn is_acknowledged(&self) -> bool {
        self.frame.is_publish() && self.frame.first & 6 != 0
    }
}

/// The rate that a client may use and the time between two messages, for its next acknowledgement; none when it
/// knows them already (`told` is the change that it was told of last) and does not have to `wait`.
pub(crate) fn advice(
    publisher: &Publisher,
    told: &mut u32,
    wait: Option<Duration>,
) -> Option<(String, String)> {
    let changes = publisher.changes();
    if changes == *told && wait.is_none() {
        return None;
    }
    *told = changes;
    let rate = publisher.rate();
    let text = if rate.is_finite() { format!("{rate:.3}") } else { "null".into() };
    let interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(LONGEST_DELAY);
    let wait = wait.unwrap_or(if rate.is_finite() { interval } else { Duration::ZERO });
    Some((text, wait.as_millis().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: usize) -> HeldPacket {
        let frame = Frame { first: 0x30, header: 2, body: bytes };
        HeldPacket { frame, body: vec![0; bytes].into(), since: 1 }
    }

    #[test]
    fn a_part_of_the_total_is_left_for_those_who_must_be_heard() {
        let listen = ListenSettings { max_buffer_total: 1 << 20, ..ListenSettings::default() };
        let all = Arc::new(AtomicUsize::new(0));
        let mut clients: Vec<_> = (0..5).map(|_| HeldInput::new(HeldBytes::new(all.clone()))).collect();
        while let Some(client) = clients.iter_mut().find(|client| !client.is_enough(&listen)) {
            client.push(packet(10_000));
        }
        let held = all.load(Ordering::Relaxed);
        assert!((3 << 18..1 << 20).contains(&held), "{held}");
        let quiet = &mut clients[4];
        assert!(quiet.relieve(&listen) && !quiet.is_enough(&listen), "it is heard");
        while !quiet.is_enough(&listen) {
            quiet.push(packet(10_000));
        }
        assert!(all.load(Ordering::Relaxed) > 1 << 20);
        assert!(!quiet.relieve(&listen), "there is no more room");
    }
}
