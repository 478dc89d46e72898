//! Which broker to go to, when brokers refer to others.

use tidegate_control::random::Random;

use super::address::Address;

/// So many references in a row are followed before a connection lasts; then it is home again.
const MOST_HOPS: u32 = 5;
/// So many times another broker is tried before it is home again.
const MOST_TRIES: u32 = 3;

/// Where to go.
#[derive(Debug, Clone)]
struct Place {
    address: Address,
    /// Whether it may see who we are.
    trusted: bool,
}

/// Who says where to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The broker itself: whom it trusts may see what it has seen.
    Broker,
    /// A message, which anybody may have sent.
    Message,
}

/// The way to the broker.
#[derive(Debug)]
pub(super) struct Route {
    home: Place,
    /// Where a broker sent us for now.
    away: Option<Place>,
    hops: u32,
    tries: u32,
}

impl Route {
    pub(super) fn new(home: Address) -> Self {
        Self { home: Place { address: home, trusted: true }, away: None, hops: 0, tries: 0 }
    }

    /// Where to go now.
    pub(super) fn target(&self) -> &Address {
        &self.place().address
    }

    /// Whether the broker there may see who we are.
    pub(super) fn is_trusted(&self) -> bool {
        self.place().trusted
    }

    /// A broker, or a message, refers to others; false when none of them is to be followed. `trusts` says who may see who
    /// we are in any case.
    pub(super) fn refer(
        &mut self,
        list: &str,
        permanent: bool,
        by: By,
        trusts: impl Fn(&Address) -> bool,
        random: &mut dyn Random,
    ) -> bool {
        let choices = self.target().references(list);
        self.hops += 1;
        if choices.is_empty() || self.hops > MOST_HOPS {
            self.go_home();
            return false;
        }
        let address = choices[random.below(choices.len() as u64) as usize].clone();
        let trusted = by == By::Broker && self.is_trusted() || trusts(&address);
        let choice = Place { address, trusted };
        self.tries = 0;
        // Who is not trusted can't make us forget whom we were told to go to.
        if permanent && choice.trusted {
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

    fn place(&self) -> &Place {
        self.away.as_ref().unwrap_or(&self.home)
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

    fn refer(route: &mut Route, list: &str, permanent: bool, random: &mut Seeded) -> bool {
        route.refer(list, permanent, By::Broker, |_| false, random)
    }

    /// What a message says may be anybody's word, and so is what the one says that it leads to.
    #[test]
    fn a_message_leads_to_strangers() {
        let (mut route, mut random) = route();
        let trusts = |address: &Address| address.host == "friend";
        assert!(route.is_trusted());
        assert!(route.refer("friend", false, By::Message, trusts, &mut random) && route.is_trusted());
        assert!(route.refer("other", false, By::Broker, trusts, &mut random) && route.is_trusted());
        assert!(route.refer("stranger", false, By::Message, trusts, &mut random) && !route.is_trusted());
        assert!(route.refer("another", true, By::Broker, trusts, &mut random) && !route.is_trusted());
        assert!(route.refer("friend", true, By::Broker, trusts, &mut random) && route.is_trusted());
    }

    /// A forged order, or a stranger, can't make a client forget its broker.
    #[test]
    fn a_stranger_does_not_keep_us_from_home() {
        let (mut route, mut random) = route();
        for by in [By::Message, By::Broker] {
            assert!(route.refer("stranger", true, by, |_| false, &mut random));
            assert_eq!(route.target().host, "stranger");
        }
        (0..MOST_TRIES).for_each(|_| route.failed());
        assert_eq!((&*route.target().host, route.is_trusted()), ("home", true));
        let trusts = |address: &Address| address.host == "friend";
        assert!(route.refer("friend", true, By::Message, trusts, &mut random));
        (0..MOST_TRIES).for_each(|_| route.failed());
        assert_eq!(route.target().host, "friend", "whom we trust we may be sent to for good");
    }

    #[test]
    fn for_now_or_for_good() {
        let (mut route, mut random) = route();
        assert!(refer(&mut route, "away", false, &mut random));
        assert_eq!(route.target().host, "away");
        (0..MOST_TRIES).for_each(|_| route.failed());
        assert_eq!(route.target().host, "home");
        assert!(refer(&mut route, "moved", true, &mut random));
        (0..2 * MOST_TRIES).for_each(|_| route.failed());
        assert_eq!(route.target().host, "moved");
    }

    #[test]
    fn brokers_that_refer_to_each_other_are_left() {
        let (mut route, mut random) = route();
        let followed = (0..20).take_while(|_| refer(&mut route, "a b", false, &mut random)).count();
        assert_eq!(followed, MOST_HOPS as usize);
        assert_eq!(route.target().host, "home");
        assert!(!refer(&mut route, "ftp://nowhere", false, &mut random));
    }
}
