//! What has to be there before a run begins.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use super::Target;
use crate::relay::{Plan, Relay};
use crate::scenario::{RelaySettings, Scenario, Side};
use crate::stats::get;
use crate::transport::{self, Route};
use crate::world::{Wants, World};

/// Tries one connection, so that what is wrong with all of them is told at once.
pub(super) async fn probe(world: &World) -> Result<(), String> {
    let wants = Wants {
        version: world.scenario.version,
        persistent: false,
        receive_maximum: None,
        chunk: 1024,
        receive_buffer: None,
    };
    let route = &world.device_route;
    match world.open(route, "probe", &wants).await {
        Ok((link, _)) => {
            link.close().await;
            world.counts.connects.store(0, Relaxed);
            Ok(())
        }
        Err(error) => Err(format!("cannot connect to {}: {error}", route.address)),
    }
}

/// How clients reach the target.
pub(super) fn route(scenario: &Scenario, target: &Target) -> Result<Route, String> {
    let mut tls = None;
    if scenario.transport.is_secure() {
        let authorities = match (&scenario.ca, &target.authorities) {
            (Some(path), _) => std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?,
            (None, Some(authorities)) => authorities.clone(),
            (None, None) => {
                return Err("the scenario's ca must name the authorities that sign the target's certificate"
                    .to_owned());
            }
        };
        tls = Some(transport::trust(&authorities).map_err(|error| format!("the authorities: {error}"))?);
    }
    Ok(Route { address: target.address, host: target.host.clone(), kind: scenario.transport, tls })
}

/// Puts a relay before the target.
pub(super) async fn start_relay(settings: &RelaySettings, target: SocketAddr) -> Result<Relay, String> {
    let plan = Plan {
        drop: settings.drop,
        repeat: settings.repeat,
        swap: settings.swap,
        seed: settings.seed,
        towards_broker: settings.side == Side::Devices,
    };
    Relay::start(target, plan).await.map_err(|error| format!("cannot start the relay: {error}"))
}

/// What a relay did, in a sentence.
pub(super) fn what_it_did(relay: &Relay) -> String {
    let deeds = &relay.deeds;
    format!(
        "of {} messages the relay dropped {}, repeated {} and swapped {}",
        get(&deeds.seen),
        get(&deeds.dropped),
        get(&deeds.repeated),
        get(&deeds.swapped)
    )
}
