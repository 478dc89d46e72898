//! A device that follows the advice of a gateway: PROTOCOL.md in as few lines as possible.

use serde::Deserialize;
use tidegate_control::overload::Phase;

use crate::clock::{Nanos, SECOND};

/// How a rate grows back each second once no news came for its time to live.
const LEAVE: f64 = 1.1;
/// How many of its own intervals a rate holds that came with an acknowledgement, at least.
const INTERVALS: f64 = 3.0;

/// A device's view of what it may send.
#[derive(Debug, Clone)]
pub struct Advice {
    /// By how specific they are: for everybody, for the class, for the client, with the last acknowledgement.
    sources: [Option<Told>; 4],
    phase: Phase,
    /// Whether acknowledgements on this connection tell rates.
    acks_tell: bool,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    seq: u64,
    rate: Option<f64>,
    ttl: Nanos,
    at: Nanos,
    /// Until when it holds.
    until: Nanos,
}

impl Told {
    fn new(seq: u64, rate: Option<f64>, ttl: Nanos, now: Nanos) -> Self {
        Self { seq, rate, ttl, at: now, until: now.saturating_add(ttl) }
    }
}

#[derive(Deserialize)]
struct Rate {
    #[serde(default)]
    seq: u64,
    rate: Option<f64>,
    #[serde(default)]
    ttl_ms: Option<u64>,
    #[serde(default)]
    phase: String,
}

/// The topics to subscribe to, from the most general.
pub fn topics(prefix: &str, class: &str, client: &str) -> [String; 3] {
    [
        format!("{prefix}/rate"),
        format!("{prefix}/rate/class/{class}"),
        format!("{prefix}/rate/client/{client}"),
    ]
}

impl Advice {
    /// Nothing has been told.
    pub fn new() -> Self {
        Self { sources: [None; 4], phase: Phase::Idle, acks_tell: false }
    }

    /// Takes in what came on one of the [`topics`], by its place among them; nonsense is ignored.
    pub fn on_message(&mut self, place: usize, payload: &[u8], now: Nanos) {
        if payload.is_empty() {
            self.sources[place] = None;
            return;
        }
        let Ok(told) = serde_json::from_slice::<Rate>(payload) else { return };
        if told.rate.is_some_and(|rate| !(rate.is_finite() && rate >= 0.0)) {
            return;
        }
        if self.sources[place].is_some_and(|known| told.seq < known.seq) {
            return;
        }
        self.phase = match told.phase.as_str() {
            "protect" => Phase::Protect,
            "recover" => Phase::Recover,
            _ => Phase::Idle,
        };
        let ttl = told.ttl_ms.map_or(Nanos::MAX, |ms| ms.saturating_mul(1_000_000));
        self.sources[place] = Some(Told::new(told.seq, told.rate, ttl, now));
    }

    /// Takes in the property `tide-rate` of an acknowledgement; nonsense is ignored. One without it says that nothing has
    /// changed, if an earlier one said something.
    pub fn on_ack(&mut self, value: Option<&str>, now: Nanos) {
        let Some(value) = value else {
            if let Some(told) = self.sources[3].as_mut().filter(|_| self.acks_tell) {
                told.until = now.saturating_add(told.ttl);
            }
            return;
        };
        let rate = value.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
        if rate.is_some() || value == "null" {
            // The next one comes with the next message.
            let intervals = rate.map_or(0.0, |rate| INTERVALS * SECOND as f64 / rate) as Nanos;
            self.sources[3] = Some(Told::new(0, rate, intervals.max(10 * SECOND), now));
            self.acks_tell = true;
        }
    }

    /// After a reconnect, perhaps to a broker that tells nothing, plain acknowledgements confirm nothing.
    pub fn on_connect(&mut self) {
        self.acks_tell = false;
    }

    /// What the gateway said last that it is doing.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The rate to use when one would like to send at `own`.
    pub fn rate(&self, own: f64, now: Nanos) -> f64 {
        let told = match (self.sources[3], self.sources[..3].iter().rev().flatten().next()) {
            // What holds is right, and of two the later one: they speak of the same decision.
            (Some(ack), Some(topic)) if (ack.until > now, ack.at) > (topic.until > now, topic.at) => {
                Some(ack)
            }
            (ack, topic) => topic.copied().or(ack),
        };
        let Some(Told { rate: Some(rate), until, .. }) = told else { return own };
        let stale = now.saturating_sub(until) as f64 / SECOND as f64;
        // A rate of 0 would never grow.
        let grown = if stale > 0.0 { rate.max(own / 100.0) * LEAVE.powf(stale) } else { rate };
        grown.min(own)
    }
}

impl Default for Advice {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn the_most_specific_topic_wins_and_old_news_are_ignored() {
        let mut advice = Advice::new();
        assert_eq!(advice.rate(5.0, 0), 5.0);
        advice.on_message(0, br#"{"v":1,"seq":4,"rate":2.0,"ttl_ms":10000,"new":true}"#, 0);
        assert_eq!(advice.rate(5.0, 1), 2.0);
        assert_eq!(advice.rate(1.0, 1), 1.0, "advice never makes a device faster");
        advice.on_message(0, br#"{"v":1,"seq":3,"rate":3.0}"#, 1);
        assert_eq!(advice.rate(5.0, 1), 2.0);
        advice.on_message(1, br#"{"v":1,"seq":1,"rate":0.5,"ttl_ms":10000}"#, 1);
        assert_eq!(advice.rate(5.0, 1), 0.5);
        advice.on_message(2, br#"{"v":1,"seq":1,"rate":null}"#, 1);
        assert_eq!(advice.rate(5.0, 1), 5.0);
        advice.on_message(2, b"", 1);
        assert_eq!(advice.rate(5.0, 1), 0.5);
        advice.on_ack(Some("0.25"), 2);
        assert_eq!(advice.rate(5.0, 2), 0.25);
    }

    #[test]
    fn plain_acknowledgements_confirm_what_was_said() {
        let mut advice = Advice::new();
        advice.on_ack(None, 0);
        assert_eq!(advice.rate(5.0, 0), 5.0);
        advice.on_ack(Some("0.1"), 0);
        assert_eq!(advice.rate(5.0, 29 * SECOND), 0.1, "three of its own intervals");
        (1..9).for_each(|turn| advice.on_ack(None, 20 * turn * SECOND));
        assert_eq!(advice.rate(5.0, 180 * SECOND), 0.1);
        assert!(advice.rate(5.0, 192 * SECOND) > 0.1);
        advice.on_message(0, br#"{"seq":1,"rate":1.0,"ttl_ms":1000}"#, 193 * SECOND);
        assert_eq!(advice.rate(5.0, 193 * SECOND), 1.0);
        advice.on_ack(None, 194 * SECOND);
        assert_eq!(advice.rate(5.0, 195 * SECOND), 0.1, "what still holds");
        advice.on_connect();
        assert_eq!(advice.rate(5.0, 196 * SECOND), 0.1);
        (197..260).for_each(|second| advice.on_ack(None, second * SECOND));
        assert!(advice.rate(5.0, 260 * SECOND) > 0.2, "nothing confirms it");
    }

    #[test]
    fn nonsense_is_ignored() {
        let mut advice = Advice::new();
        for payload in [&b"{"[..], b"7", br#"{"rate":-1}"#, br#"{"rate":"x"}"#, &[0xFF, 0]] {
            advice.on_message(0, payload, 0);
        }
        advice.on_ack(Some("fast"), 0);
        advice.on_ack(Some("-1"), 0);
        assert_eq!(advice.rate(5.0, 0), 5.0);
    }

    #[test]
    fn stale_advice_is_left_smoothly() {
        let mut advice = Advice::new();
        advice.on_message(0, br#"{"seq":1,"rate":1.0,"ttl_ms":1000}"#, 0);
        assert_eq!(advice.rate(5.0, SECOND), 1.0);
        let later = advice.rate(5.0, 2 * SECOND);
        assert!((later - 1.1).abs() < 1e-9);
        assert_eq!(advice.rate(5.0, 60 * SECOND), 5.0);
    }
}
