//! Random backoff (paper 000): what a client adds to its interval while the gateway answers slowly.
//!
//! A response is judged by a [`Level`]. Not congested: no backoff. Congested: a first value ([`FirstValue`]), then
//! growth by a multiplier up to a few mean response times, varied at random so that clients that met once don't
//! meet again. A rate that the gateway announces is kept to, whatever the responses say.

mod first;
mod level;
mod variation;

pub use first::FirstValue;
pub use level::Level;
pub use variation::Variation;

use crate::invalid::{self, Invalid};
use crate::random::Random;
use crate::time::Span;
use first::Memory;

/// What the gateway said about its load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Announced {
    /// How long it takes to answer now, waiting included.
    pub delay: Option<Span>,
    /// The checks a second that it wants from this client at most.
    pub rate: Option<f64>,
}

/// What a client saw of one response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Response {
    /// Time from request to response, or until the client gave up.
    pub took: Span,
    /// The wait before that request, backoff included.
    pub waited: Span,
    /// What the gateway said.
    pub announced: Announced,
    /// Whether there was no response at all.
    pub silent: bool,
}

/// Settings of [`Backoff`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffConfig {
    /// What counts as congestion.
    pub level: Level,
    /// Where the first value comes from.
    pub first: FirstValue,
    /// The first value where nothing better is known (t_min).
    pub minimum: Span,
    /// The first value where nothing better is known, in times of the response; the greater of the two is used.
    ///
    /// A fixed minimum takes many doublings to matter after a long wait; 0 is the paper's algorithm.
    pub minimum_responses: f64,
    /// What each further congested response multiplies the value by (b, at least 2).
    pub multiplier: f64,
    /// The longest backoff (t_max), in times of the mean response.
    pub longest_responses: f64,
    /// The longest backoff of all, whatever responses and gateway say: nobody can silence a client for good.
    pub longest: Span,
    /// How the value is varied.
    pub variation: Variation,
    /// The share of the old mean response time that a new response leaves (gamma, at least 0 and below 1).
    pub smoothing: f64,
}

impl Default for BackoffConfig {
    /// Mediate requirements, the gateway's rate first, four responses at first, doubled up to five mean responses.
    fn default() -> Self {
        Self {
            level: Level::default(),
            first: FirstValue::ServerHint,
            minimum: Span::from_millis(100),
            minimum_responses: 4.0,
            multiplier: 2.0,
            longest_responses: 5.0,
            longest: Span::from_secs(600),
            variation: Variation::default(),
            smoothing: 0.9,
        }
    }
}

impl BackoffConfig {
    /// Makes the backoff, or says which setting is wrong.
    pub fn build(&self) -> Result<Backoff, Invalid> {
        self.level.validate()?;
        self.variation.validate()?;
        invalid::positive("minimum", self.minimum.as_secs_f64())?;
        invalid::not_negative("minimum_responses", self.minimum_responses)?;
        invalid::check("multiplier", self.multiplier, "at least 2", self.multiplier >= 2.0)?;
        invalid::positive("longest_responses", self.longest_responses)?;
        invalid::positive("longest", self.longest.as_secs_f64())?;
        let good = (0.0..1.0).contains(&self.smoothing);
        invalid::check("smoothing", self.smoothing, "at least 0 and below 1", good)?;
        Ok(Backoff {
            config: *self,
            mean: None,
            took: 0.0,
            rate: None,
            value: 0.0,
            congested: false,
            held: false,
            memory: Memory::default(),
        })
    }
}

/// The backoff of one client.
#[derive(Debug, Clone)]
pub struct Backoff {
    config: BackoffConfig,
    /// Mean response time; none before the first response.
    mean: Option<f64>,
    took: f64,
    rate: Option<f64>,
    /// The value in use before variation; 0 while not congested.
    value: f64,
    congested: bool,
    held: bool,
    memory: Memory,
}

impl Backoff {
    /// Takes a response and returns whether it says congestion.
    pub fn on_response(&mut self, response: &Response) -> bool {
        self.took = response.took.as_secs_f64();
        // Against the mean as it was: a slow response must not excuse itself.
        let slow = self.config.level.is_congested(self.took, response.announced.delay, self.mean);
        self.congested = slow || response.silent;
        let mean = self.mean.unwrap_or(self.took);
        self.mean = Some(self.config.smoothing * mean + (1.0 - self.config.smoothing) * self.took);
        self.rate = response.announced.rate.filter(|rate| rate.is_finite() && *rate > 0.0);
        if !self.congested {
            self.memory.on_good(response.waited.as_secs_f64(), self.value);
        }
        self.congested
    }

    /// The backoff to add to the strategy's next interval.
    pub fn wait(&mut self, interval: Span, random: &mut dyn Random) -> Span {
        let interval = interval.as_secs_f64();
        let own = self.own(interval, random);
        let asked = self.asked(interval, random);
        self.held = asked.is_some();
        Span::from_secs_f64(own.max(asked.unwrap_or(0.0)))
    }

    /// Whether the last response said congestion.
    pub fn is_congested(&self) -> bool {
        self.congested
    }

    /// Whether the last wait follows a rate that the gateway announced.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// The longest backoff that the client chooses on its own (t_max), in seconds.
    pub fn longest(&self) -> f64 {
        (self.config.longest_responses * self.mean.unwrap_or(0.0)).min(self.config.longest.as_secs_f64())
    }

    /// The client's own backoff, in seconds; 0 when not congested.
    fn own(&mut self, interval: f64, random: &mut dyn Random) -> f64 {
        if !self.congested {
            self.value = 0.0;
            return 0.0;
        }
        let grown = if self.value > 0.0 { self.value * self.config.multiplier } else { self.first(interval) };
        self.value = grown.min(self.longest());
        self.config.variation.apply(self.value, random).clamp(0.0, self.longest())
    }

    fn first(&self, interval: f64) -> f64 {
        let least = self.config.minimum.as_secs_f64().max(self.config.minimum_responses * self.took);
        self.config.first.value(&self.memory, interval).unwrap_or(least)
    }

    /// What is missing to the interval that the gateway asks for; none when it doesn't or when it is kept anyway.
    fn asked(&self, interval: f64, random: &mut dyn Random) -> Option<f64> {
        let rate = self.rate.filter(|_| self.config.first == FirstValue::ServerHint)?;
        let wanted = (1.0 / rate).min(self.config.longest.as_secs_f64());
        if wanted <= interval {
            return None;
        }
        // The whole interval is varied, so that clients spread however little is missing.
        let varied = self.config.variation.around(wanted, random);
        Some((varied - interval).clamp(0.0, self.config.longest.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests;
