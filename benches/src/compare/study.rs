//! The variants of one scenario side by side.

use super::{Column, Outcome};
use crate::peers::{Kind, PeerError};
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
        columns.push(Column { loaded, kind, variant, judged: kind == Kind::Tidegate });
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
    Ok(outcome)
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
