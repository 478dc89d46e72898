//! What the plugin that controls overload tells the plugins that work with it.

use tidegate_control::overload::Phase;

/// The overload control of all queues, as another plugin sees it. Must not block: it is asked for operators' questions
/// and in each turn of the control loop.
pub trait QueueControl: Send + Sync {
    /// What is known of a queue; none when it is not under control.
    fn state(&self, queue: &str) -> Option<ControlState>;

    /// Asks for each queue that is under control, by its name, whether its auto-scaler has reached its limit. Said again
    /// in each turn, for all queues at once, so it must be cheap.
    fn set_saturated(&self, is_saturated: &dyn Fn(&str) -> bool);
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
