//! What is written to the control topics.

use serde::Serialize;
use tidegate_control::overload::Phase;

/// A rate, on `rate`, `rate/class/...` and `rate/client/...`.
#[derive(Debug, Serialize)]
pub(crate) struct RateMessage<'a> {
    v: u8,
    seq: u64,
    at_ms: u64,
    phase: &'static str,
    /// Messages a second of each client; none is no limit.
    rate: Option<f64>,
    interval_ms: u64,
    burst: u64,
    ttl_ms: u64,
    queue: &'a str,
}

impl<'a> RateMessage<'a> {
    /// A rate that holds for so many milliseconds; infinity is no limit.
    pub(crate) fn new(seq: u64, at_ms: u64, phase: Phase, rate: f64, ttl_ms: u64, queue: &'a str) -> Self {
        let told = rate.is_finite().then(|| ((rate * 1e3).round() / 1e3).max(0.001));
        Self {
            v: 1,
            seq,
            at_ms,
            phase: phase.name(),
            rate: told,
            // a cast saturates
            interval_ms: told.map_or(0, |rate| (1e3 / rate).round() as u64),
            // as many as come due in a hundredth of a second: few clients can wait for less
            burst: told.map_or(1, |rate| ((rate / 100.0).ceil() as u64).max(1)),
            ttl_ms,
            queue,
        }
    }
}

/// What consumers see, on `load`.
#[derive(Debug, Serialize)]
pub(crate) struct LoadMessage {
    pub(crate) v: u8,
    pub(crate) seq: u64,
    pub(crate) phase: &'static str,
    pub(crate) response_ms: u64,
    pub(crate) queue_ms: u64,
    pub(crate) depth: u64,
    pub(crate) processing_rate: f64,
}

/// The message as JSON.
pub(crate) fn json(message: &impl Serialize) -> Vec<u8> {
    // Strings and finite numbers can always be written.
    serde_json::to_vec(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn text(rate: f64) -> String {
        let message = RateMessage::new(184, 1731730000000, Phase::Protect, rate, 10000, "workers:sensors/#");
        String::from_utf8(json(&message)).unwrap()
    }

    #[test]
    fn a_rate_is_written_as_the_protocol_says() {
        assert_eq!(
            text(0.43),
            r#"{"v":1,"seq":184,"at_ms":1731730000000,"phase":"protect","rate":0.43,"interval_ms":2326,"burst":1,"ttl_ms":10000,"queue":"workers:sensors/#"}"#
        );
        assert!(text(f64::INFINITY).contains(r#""rate":null,"interval_ms":0,"burst":1"#));
        assert!(text(1e-9).contains(r#""rate":0.001,"interval_ms":1000000"#));
        assert!(text(12_345.678_912).contains(r#""rate":12345.679,"interval_ms":0,"burst":124"#));
    }
}
