//! Works together with an auto-scaler of consumers: the `autoscale` plugin of Tidegate.
//!
//! While publishers are held back a queue looks idle, and an auto-scaler that watches it scales the wrong way. So the
//! two have to know of each other. An auto-scaler says what it does with `POST /api/v1/autoscaler` and asks what it
//! should do with `GET /api/v1/scale`, whose JSON KEDA's metrics-api scaler reads as it is. [`Coupling`] says who
//! follows whom.
//!
//! Only queues of shared groups are watched, and those that an auto-scaler names: one session can't be scaled.

mod answer;
mod book;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_control::Invalid;
pub use tidegate_control::autoscale::Coupling;
use tidegate_control::time::Span;
use tidegate_plugin::{Operated, Plugin, QueueControl, Request, Response, Tick, Wants};

use book::Book;

/// How Tidegate and an auto-scaler work together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AutoscaleConfig {
    /// Who follows whom.
    pub coupling: Coupling,
    /// How long what an auto-scaler said of itself counts.
    pub state_ttl: Duration,
    /// The share of its capacity that an instance is meant to use.
    pub utilisation: f64,
}

impl Default for AutoscaleConfig {
    fn default() -> Self {
        Self { coupling: Coupling::Apart, state_ttl: Duration::from_secs(60), utilisation: 0.9 }
    }
}

impl AutoscaleConfig {
    /// Builds the plugin, or says which setting makes no sense. Without overload control nobody is ever held back, and
    /// the demand is what arrives.
    pub fn build(self, control: Option<Arc<dyn QueueControl>>) -> Result<Autoscale, Invalid> {
        if !(self.utilisation > 0.0 && self.utilisation <= 1.0) {
            let need = "above 0 and at most 1";
            return Err(Invalid { key: "utilisation", value: self.utilisation, need });
        }
        Ok(Autoscale { config: self, control, book: Mutex::default() })
    }

    fn ttl(&self) -> Span {
        Span::from_nanos(u64::try_from(self.state_ttl.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The plugin.
pub struct Autoscale {
    config: AutoscaleConfig,
    control: Option<Arc<dyn QueueControl>>,
    book: Mutex<Book>,
}

impl Autoscale {
    /// Tells the controllers whether more instances can be had. Without news they can't: then publishers are held back, so
    /// that an auto-scaler that died leaves nobody without protection.
    fn tell_saturation(&self, book: &Book) {
        let Some(control) = self.control.as_ref().filter(|_| self.config.coupling == Coupling::StateAware)
        else {
            return;
        };
        let said = |queue: &str| book.get(queue).and_then(|known| known.said(book.now(), self.config.ttl()));
        control.set_saturated(&|queue| said(queue).is_none_or(|said| said.saturated));
    }
}

impl Plugin for Autoscale {
    fn name(&self) -> &'static str {
        "autoscale"
    }

    fn wants(&self) -> Wants {
        Wants { ticks: true, ..Wants::default() }
    }

    fn on_tick(&self, tick: &Tick<'_>) {
        let mut book = self.book.lock();
        book.on_tick(tick.now, tick.queues, self.config.ttl());
        self.tell_saturation(&book);
    }

    fn operated(&self) -> Option<&dyn Operated> {
        Some(self)
    }
}

impl Operated for Autoscale {
    fn on_request(&self, request: &Request<'_>) -> Option<Response> {
        answer::answer(self, request)
    }
}
