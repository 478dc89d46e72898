//! Which broker to go to, when brokers refer to others.

use tidegate_control::random::Random;

use super::address::Address;

/// So many references in a row are followed before a connection lasts; then it is home again.
const MOST_HOPS: u32 = 5;
/// So many times another broker is tried before it is home again.
const MOST_TRIES: u32 = 3;

/// The way to the broker.
#[derive(Debug)]
pub(super) struct Route {
    home: Address,
    /// Where a broker sent us for now.
    away: Option<Address>,
    hops: u32,
    tries: u32,
}

impl Route {
    pub(super) fn new(home: Address) -> Self {
        Self { home, away: None, hops: 0, tries: 0 }
    }

    /// Where to go now.
    pub(super) fn target(&self) -> &Address {
        self.away.as_ref().unwrap_or(&self.home)
    }

    /// A broker refers to others; false when none of them is to be followed.
    pub(super) fn refer(&mut self, list: &str, permanent: bool, random: &mut dyn Random) -> bool {
        let choices = self.target().references(list);
        self.hops += 1;
        if choices.is_empty() || self.hops > MOST_HOPS {
            self.go_home();
            return false;
        }
        let choice = choices[random.below(choices.len() as u64) as usize].clone();
        self.tries = 0;
        if permanent {
            (self.home, self.away) = (choice, None);
        } else {
            self.away = Some(choice);
        }
        true
    }

    /// The connection was made.
    pub(super) fn arrived(&mut self) {
        self.tries = 0;
    }

    /// The connection lasted: what led here is forgotten.
    pub(super) fn lasted(&mut self) {
        self.hops = 0;
    }

    /// The broker can't be reached.
    pub(super) fn failed(&mut self) {
        self.tries += 1;
        if self.tries >= MOST_TRIES {
            self.go_home();
        }
    }

    fn go_home(&mut self) {
        (self.away, self.hops, self.tries) = (None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tidegate_control::random::Seeded;

    fn route() -> (Route, Seeded) {
        (Route::new(Address::read("mqtt://home").unwrap()), Seeded::new(1))
    }

    #[test]
    fn for_now_or_for_good() {
        let (mut route, mut random) = route();
        assert!(route.refer("away", false, &mut random));
        assert_eq!(route.target().host, "away");
        (0..MOST_TRIES).for_each(|_| route.failed());
        assert_eq!(route.target().host, "home");
        assert!(route.refer("moved", true, &mut random));
        (0..2 * MOST_TRIES).for_each(|_| route.failed());
        assert_eq!(route.target().host, "moved");
    }

    #[test]
    fn brokers_that_refer_to_each_other_are_left() {
        let (mut route, mut random) = route();
        let followed = (0..20).take_while(|_| route.refer("a b", false, &mut random)).count();
        assert_eq!(followed, MOST_HOPS as usize);
        assert_eq!(route.target().host, "home");
        assert!(!route.refer("ftp://nowhere", false, &mut random));
    }
}
