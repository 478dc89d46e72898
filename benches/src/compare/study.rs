//! The variants of one scenario side by side.

use super::{Column, Outcome};
use crate::peers::{Kind, PeerError};
use crate::record::ScenarioComparison;
use crate::scenario::{Loaded, Scenario};

/// Runs all variants of a scenario one after another, as often as wished, on the brokers that they name or else on Tidegate;
/// the first one on the brokers `with` too. The bands of each variant hold for what runs on Tidegate.
pub async fn study(
    variants: &[(String, Loaded)],
    with: &[Kind],
    runs: u32,
    tell: &mut dyn FnMut(&str),
) -> Result<Outcome, PeerError> {
    let mut columns = Vec::new();
    for (variant, loaded) in variants {
        let kind = loaded.scenario.broker_kind()?;
        columns.push(Column { loaded, kind, variant, judged: kind.is_gateway() });
    }
    if let Some((variant, loaded)) = variants.first() {
        let first = columns[0].kind;
        let peers = with.iter().filter(|kind| **kind != first);
        columns.extend(peers.map(|kind| Column { loaded, kind: *kind, variant, judged: false }));
    }
    let mut outcome = Outcome::of(&[columns], runs, tell).await;
    for part in &mut outcome.comparison.scenarios {
        if let Some((_, loaded)) = variants.first() {
            let full = &loaded.scenario.name;
            part.scenario = full.split('@').next().unwrap_or(full).to_owned();
            part.about = about(variants);
            part.reference = loaded.scenario.reference.clone();
        }
    }
    let found = compared(variants, &outcome.comparison.scenarios);
    for Ratio { words, holds } in found {
        tell(&words);
        if !holds {
            outcome.failures.push(words);
        }
    }
    outcome.comparison.failures = outcome.failures.clone();
    Ok(outcome)
}

/// A median against that of another variant.
struct Ratio {
    words: String,
    holds: bool,
}

/// The medians of variants that are to be compared with those of others.
fn compared(variants: &[(String, Loaded)], tables: &[ScenarioComparison]) -> Vec<Ratio> {
    let median = |variant: &str, measure: &str| {
        let mut results = tables.iter().flat_map(|table| &table.brokers);
        let found = results.find(|result| {
            result.broker.variant == variant && result.runs.iter().all(|run| run.error.is_none())
        })?;
        found.measures.get(measure).map(|summary| summary.median)
    };
    let mut ratios = Vec::new();
    for (variant, loaded) in variants {
        for (other, bands) in &loaded.scenario.against {
            for (measure, [low, high]) in bands {
                let ratio =
                    median(variant, measure).zip(median(other, measure)).map(|(one, other)| one / other);
                let holds = ratio.is_some_and(|ratio| (*low..=*high).contains(&ratio));
                let value = ratio.map_or("unknown".to_owned(), |ratio| format!("{ratio:.3}"));
                let words = format!(
                    "{measure} of {variant} against {other}: {value} times, expected {low} to {high}"
                );
                ratios.push(Ratio { words, holds });
            }
        }
    }
    ratios
}

/// What each variant is, in a sentence each.
fn about(variants: &[(String, Loaded)]) -> String {
    let one = |(variant, loaded): &(String, Loaded)| format!("{variant}: {}", loaded.scenario.about);
    variants.iter().map(one).collect::<Vec<_>>().join(" ")
}

impl Scenario {
    /// The broker that is started unless another one is asked for.
    pub fn broker_kind(&self) -> Result<Kind, PeerError> {
        self.broker.kind.as_deref().map_or(Ok(Kind::Tidegate), Kind::named)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::compare::summarise;
    use crate::record::{Broker, BrokerResult, Rates, Run};

    fn result(variant: &str, delivered: f64, error: Option<&str>) -> BrokerResult {
        let broker = Broker { variant: variant.to_owned(), ..Broker::default() };
        let rates = Rates { delivered, ..Rates::default() };
        let runs = vec![Run { rates, error: error.map(str::to_owned), ..Run::default() }];
        BrokerResult { broker, measures: summarise(&runs, None), runs }
    }

    #[test]
    fn medians_are_held_against_those_of_another_variant() {
        let variants = Scenario::load_study("chain-cost").unwrap();
        let told = |on: BrokerResult| {
            let brokers = vec![result("off", 1000.0, None), on, result("off-qos0", 0.0, None)];
            compared(&variants, &[ScenarioComparison { brokers, ..ScenarioComparison::default() }])
        };
        let holds = |on| told(on).iter().map(|ratio| ratio.holds).collect::<Vec<_>>();
        assert_eq!(holds(result("on", 951.0, None)), [true, false], "nobody measured the other pair");
        assert_eq!(holds(result("on", 949.0, None)), [false, false]);
        assert_eq!(holds(result("on", 990.0, Some("it closed"))), [false, false]);
        assert_eq!(
            told(result("on", 951.0, None))[0].words,
            "delivered of on against off: 0.951 times, expected 0.95 to 100"
        );
    }
}
