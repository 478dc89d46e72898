//! The settings of the overload plugin, as the plugin takes them.

use tidegate_control::time::Span;
use tidegate_overload::{Algorithm, ClassConfig, OverloadConfig, QueueRule};

use super::{CouplingPolicy, OverloadAlgorithm, PublisherClass, QueueChoice, Settings};

impl From<&Settings> for OverloadConfig {
    fn from(settings: &Settings) -> Self {
        let (overload, queue) = (&settings.overload, &settings.queue);
        Self {
            prefix: overload.prefix.clone(),
            algorithm: match overload.algorithm {
                OverloadAlgorithm::Drain => Algorithm::Drain,
                OverloadAlgorithm::Phase => Algorithm::Phase,
            },
            target_delay: Span::from_millis(overload.target_delay_ms),
            threshold: (overload.threshold != 0).then_some(overload.threshold),
            hold_delay: Span::from_millis(queue.max_delay_ms),
            default_rate: given(overload.default_rate),
            classes: overload.classes.iter().map(class).collect(),
            window: Span::from_secs(overload.window),
            ttl: Span::from_millis(overload.ttl_ms),
            protect: overload.protect.iter().map(rule).collect(),
            ignore: overload.ignore.iter().map(rule).collect(),
            progress_timeout: Span::from_secs(queue.progress_timeout),
            needs_saturation: settings.autoscale.coupling == CouplingPolicy::StateAware
                && settings.plugins.iter().any(|name| name == "autoscale"),
        }
    }
}

/// A number for which 0 stands for none.
fn given(number: f64) -> Option<f64> {
    (number != 0.0).then_some(number)
}

fn class(class: &PublisherClass) -> ClassConfig {
    ClassConfig {
        name: class.name.clone(),
        client: class.client.clone(),
        user: class.user.clone(),
        topic: class.topic.clone(),
        weight: class.weight,
        floor: class.floor,
        ceiling: given(class.ceiling),
        default_rate: given(class.default_rate),
        exempt: class.exempt,
    }
}

fn rule(choice: &QueueChoice) -> QueueRule {
    QueueRule {
        filter: choice.filter.clone(),
        group: choice.group.clone(),
        min_qos: choice.min_qos,
        target_delay: choice.target_delay_ms.map(Span::from_millis),
        threshold: choice.threshold,
        default_rate: choice.default_rate,
    }
}
