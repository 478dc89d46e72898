//! What a consumer does with what it reads.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::{Consumer, Item, PARTING, Standing};
use crate::check::{Stamp, Taken};
use crate::codec::{self, Packet, kind};
use crate::link::Link;
use crate::stats::{Took, add};

impl Consumer {
    pub(super) fn handle(&mut self, link: &mut Link, standing: &mut Standing) -> io::Result<()> {
        let version = self.version;
        let parting = self.world.clock.now() + PARTING;
        let mut farewell = None;
        while let Some(packet) = link.packet()? {
            match packet.kind() {
                kind::PUBLISH => self.receive(&packet)?,
                kind::PUBREL => {
                    let id = codec::ack(&packet, version).map_err(io::Error::other)?.id;
                    self.unreleased.remove(&id);
                    codec::put_ack(kind::PUBCOMP, id, &mut self.acks);
                }
                kind::SUBACK if *standing == Standing::Subscribing => {
                    let codes = codec::suback(&packet, version).map_err(io::Error::other)?.to_vec();
                    self.be_granted(&codes)?;
                    *standing = Standing::Subscribed;
                    self.world.counts.consumers.fetch_add(1, Relaxed);
                    self.world.join(self.recipient);
                }
                // One that nobody asked for means nothing.
                kind::UNSUBACK if matches!(standing, Standing::Leaving { .. }) => {
                    *standing = Standing::Unsubscribed { until: parting };
                }
                // What came before it counts all the same.
                kind::DISCONNECT => {
                    farewell = Some(self.world.dismissed(&packet, version));
                    break;
                }
                _ => {}
            }
        }
        link.output.append(&mut self.acks);
        let now = self.world.clock.now();
        self.items.iter_mut().for_each(|item| item.taken = now);
        match &mut self.worker {
            Some(worker) => worker.receive(self.items.drain(..), now),
            None => self.count(link),
        }
        farewell.map_or(Ok(()), Err)
    }

    /// Takes in the answer to the subscription: one code, which says what was granted.
    fn be_granted(&mut self, codes: &[u8]) -> io::Result<()> {
        let asked = self.settings.qos;
        let problem = match codes {
            [granted] if *granted == asked => return Ok(()),
            [granted] if *granted < asked => {
                let text = format!("{} has QoS {granted} instead of {asked}", self.subscription);
                if !std::mem::replace(&mut self.downgraded, true) {
                    add(&self.world.counts.downgraded, 1);
                    self.world.downgrade.lock().get_or_insert(text);
                }
                return Ok(());
            }
            [code] if *code >= 0x80 => {
                format!("the target refused the subscription {} with code {code:#04x}", self.subscription)
            }
            _ => format!(
                "the target answered the subscription {} for QoS {asked} with the codes {codes:?}",
                self.subscription
            ),
        };
        *self.world.fatal.lock() = Some(problem.clone());
        Err(io::Error::other(problem))
    }

    /// Puts one message among the items.
    fn receive(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let message = codec::message(packet, self.version).map_err(io::Error::other)?;
        if message.qos == 2 && !self.unreleased.insert(message.id) {
            // Known already: only the answer was lost.
            codec::put_ack(kind::PUBREC, message.id, &mut self.acks);
            return Ok(());
        }
        let stamp = Stamp::read(message.payload);
        let known = stamp.filter(|stamp| stamp.run == self.world.run && self.world.sent.knows(stamp));
        // What was meant for somebody else is no delivery.
        let known = known.filter(|stamp| self.world.flows[stamp.flow as usize].is_for(self.recipient));
        let (qos, id) = (message.qos, message.id);
        let again = message.again && qos > 0 && self.settings.persistent && self.connections > 0;
        self.items.push(match known {
            Some(Stamp { flow, number, intended, .. }) => {
                Item { flow, number, intended, qos, id, foreign: false, taken: 0, again }
            }
            None => Item { flow: 0, number: 0, intended: 0, qos, id, foreign: true, taken: 0, again },
        });
        Ok(())
    }

    /// Counts all items as delivered and acknowledges them; only what comes for the first time is a delivery.
    pub(super) fn count(&mut self, link: &mut Link) {
        if self.world.over.load(Relaxed) {
            self.items.clear();
        }
        if self.items.is_empty() {
            return;
        }
        let (mut duplicates, mut foreign) = (0, 0);
        let measured = self.world.measured();
        let mut stream = self.world.recipients[self.recipient].stream.lock();
        for item in &self.items {
            if item.foreign {
                foreign += 1;
                continue;
            }
            let (flow, number) = (item.flow, item.number);
            // With QoS 2 no other member may get what one was sent.
            if item.qos == 1 && self.settings.group.is_some() {
                // Once an identifier is in use again the broker has heard of the message that had it before.
                self.unsettled.insert(item.id, (flow, number));
            }
            let copies = || if item.again { u32::MAX } else { self.world.resent.of(flow, number) };
            if stream.take(&mut self.order, flow, number, copies) == Taken::First {
                stream.last_new = stream.last_new.max(item.taken);
                let class = self.world.flows[item.flow as usize].class;
                let latency = item.taken.saturating_sub(item.intended);
                self.latencies.push(Took { class, latency, measured: measured.contains(&item.intended) });
                if self.world.scenario.classes[usize::from(class)].qos > 0 {
                    // Without an acknowledgement it was begun with before there was one.
                    let acked = self.world.acks[flow as usize].lock().of(number).unwrap_or(item.taken);
                    let wait = item.taken.saturating_sub(acked);
                    self.waits.push(Took { class, latency: wait, measured: measured.contains(&acked) });
                }
            } else {
                duplicates += 1;
            }
        }
        drop(stream);
        let first = self.latencies.len() as u64;
        self.world.latencies.record(self.number, &self.latencies);
        self.latencies.clear();
        self.world.waits.record(self.number, &self.waits);
        self.waits.clear();
        for item in self.items.drain(..) {
            match item.qos {
                1 => codec::put_ack(kind::PUBACK, item.id, &mut link.output),
                2 => codec::put_ack(kind::PUBREC, item.id, &mut link.output),
                _ => {}
            }
        }
        if first > 0 {
            self.lasting.succeed();
        }
        add(&self.world.counts.delivered, first);
        add(&self.world.counts.duplicates, duplicates);
        add(&self.world.counts.foreign, foreign);
        add(&self.world.ledgers[self.set].done, first);
    }
}
