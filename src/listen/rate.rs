//! How fast one address may open connections.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Addresses remembered at the same time. Beyond it new addresses are let in unmeasured: a whole fleet that
/// reconnects must not be locked out, and `listen.max_connections` still bounds what can be open.
const MAX_ADDRESSES: usize = 16_384;

/// Least time between two searches for addresses that can be forgotten, so that a flood can't make us do little else.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// A token bucket for each address, of one second's worth.
///
/// For each address only the time is kept at which its bucket will be full again; an address whose time is
/// past behaves as one never seen, so it can be forgotten.
#[derive(Debug)]
pub(super) struct AcceptRate {
    interval: Duration,
    full_again: HashMap<IpAddr, Instant>,
    last_sweep: Option<Instant>,
}

impl AcceptRate {
    /// Limits each address to `per_second` connections a second; 0 is no limit.
    pub(super) fn new(per_second: u32) -> Option<Self> {
        let interval = Duration::from_secs(1).checked_div(per_second)?;
        Some(Self { interval, full_again: HashMap::new(), last_sweep: None })
    }

    /// Whether this address may open one more connection now.
    pub(super) fn admit(&mut self, address: IpAddr, now: Instant) -> bool {
        let address = whole_site(address);
        if let Some(full_again) = self.full_again.get_mut(&address) {
            let next = (*full_again).max(now) + self.interval;
            let admitted = next <= now + Duration::from_secs(1);
            if admitted {
                *full_again = next;
            }
            return admitted;
        }
        if self.has_room(now) {
            self.full_again.insert(address, now + self.interval);
        }
        true
    }

    fn has_room(&mut self, now: Instant) -> bool {
        if self.full_again.len() < MAX_ADDRESSES {
            return true;
        }
        if self.last_sweep.is_some_and(|last| now < last + SWEEP_INTERVAL) {
            return false;
        }
        self.last_sweep = Some(now);
        self.full_again.retain(|_, full_again| *full_again > now);
        self.full_again.len() < MAX_ADDRESSES
    }
}

/// Whoever has one IPv6 address has its 2^64 neighbours too, hence they count as one.
fn whole_site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn zero_is_no_limit() {
        assert!(AcceptRate::new(0).is_none());
    }

    #[test]
    fn a_second_may_come_at_once_and_then_the_rate_holds() {
        let (mut rate, start) = (AcceptRate::new(10).unwrap(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let burst = (0..50).filter(|_| rate.admit(address(1), at(0))).count();
        assert_eq!(burst, 10);
        let later = (1..=5_000).filter(|ms| rate.admit(address(1), at(*ms))).count();
        assert_eq!(later, 50);
    }

    #[test]
    fn addresses_do_not_share() {
        let (mut rate, now) = (AcceptRate::new(1).unwrap(), Instant::now());
        assert!(rate.admit(address(1), now));
        assert!(!rate.admit(address(1), now));
        assert!(rate.admit(address(2), now));
    }

    #[test]
    fn neighbours_in_an_ipv6_network_share() {
        let (mut rate, now) = (AcceptRate::new(1).unwrap(), Instant::now());
        assert!(rate.admit("2001:db8::1".parse().unwrap(), now));
        assert!(!rate.admit("2001:db8::2".parse().unwrap(), now));
        assert!(rate.admit("2001:db8:0:1::1".parse().unwrap(), now));
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_idle() {
        let (mut rate, start) = (AcceptRate::new(1).unwrap(), Instant::now());
        let crowd = MAX_ADDRESSES as u32 * 2;
        assert!((0..crowd).all(|number| rate.admit(address(number), start)));
        assert_eq!(rate.full_again.len(), MAX_ADDRESSES);
        assert!(!rate.admit(address(1), start), "those in the table are still limited");
        let later = start + Duration::from_secs(2);
        assert!(rate.admit(address(crowd + 1), later));
        assert_eq!(rate.full_again.len(), 1);
    }
}
