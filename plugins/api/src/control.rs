//! What the plugin that controls overload tells the plugins that work with it.

use std::sync::Arc;

use tidegate_control::overload::Phase;

/// The overload control of all queues, as another plugin sees it. Must not block: it is asked for operators' questions
/// and in each turn of the control loop.
pub trait QueueControl: Send + Sync {
    /// The names of the queues that are under control now.
    fn queues(&self) -> Vec<Arc<str>>;

    /// What is known of a queue; none when it is not under control.
    fn state(&self, queue: &str) -> Option<ControlState>;

    /// Says whether the queue's auto-scaler has reached its limit; a queue that is not under control is none of anybody's
    /// concern. Said again in each turn, so it must be cheap.
    fn set_saturated(&self, queue: &str, saturated: bool);
}

/// What the overload control knows of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ControlState {
    /// What the controller is doing.
    pub phase: Phase,
    /// What publishers would send if nobody held them back, in messages a second.
    pub demand: f64,
    /// What all consumers together process, in messages a second, once they have been seen at work.
    pub processing_rate: Option<f64>,
    /// Consumers that are connected.
    pub consumers: u32,
}
