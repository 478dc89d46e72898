//! Keeps advice cheap: few deliveries of it for many messages.

/// What there is to begin with, and at least what can be saved up, in deliveries.
const PURSE: f64 = 50.0;
/// Seconds of messages for which can be saved up.
const SAVED: f64 = 60.0;
/// And how many times the dearest announcement, or it could never be paid.
const DEAREST: f64 = 2.0;
/// Seconds over which the rate of messages is averaged.
const MEMORY: f64 = 10.0;
/// Seconds for which the dearest announcement is remembered, about.
const DEAREST_MEMORY: f64 = 600.0;

/// How much it would harm not to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Not at all: it can wait until there is credit.
    None,
    /// A limit falls, ends, or would run out; the load is of another kind.
    Change,
    /// A limit begins: without it publishers would only be held. Even right after another one has ended.
    Limit,
}

impl Urgency {
    fn times_owed(self) -> f64 {
        match self {
            // no credit is above this
            Self::None => f64::NEG_INFINITY,
            Self::Change => 1.0,
            Self::Limit => 3.0,
        }
    }
}

/// What may be spent on advice, in deliveries.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What may be spent, as a share of the messages.
    share: f64,
    credit: f64,
    /// Messages a second, averaged.
    rate: f64,
    /// What the dearest announcement cost or would have cost lately.
    dearest: f64,
}

impl Budget {
    /// For deliveries that come to this share of the messages.
    pub(crate) fn new(share: f64) -> Self {
        Self { share, credit: PURSE, rate: 0.0, dearest: 0.0 }
    }

    /// Messages went through.
    pub(crate) fn earn(&mut self, messages: u64, seconds: f64) {
        if seconds > 0.0 {
            self.rate += (messages as f64 / seconds - self.rate) * (1.0 - (-seconds / MEMORY).exp());
            self.dearest *= (-seconds / DEAREST_MEMORY).exp();
        }
        let most = (SAVED * self.share * self.rate).max(PURSE).max(DEAREST * self.dearest);
        self.credit = (self.credit + self.share * messages as f64).min(most);
    }

    /// Pays for deliveries and says whether it could. What is urgent may be owed, so many times.
    pub(crate) fn spend(&mut self, cost: f64, urgency: Urgency) -> bool {
        self.dearest = self.dearest.max(cost);
        let pays = cost <= self.credit || cost == 0.0 || self.credit > -cost * urgency.times_owed();
        if pays {
            self.credit -= cost;
        }
        pays
    }

    /// Seconds that it takes to earn this much with half of what is earned; infinity when nothing is.
    pub(crate) fn seconds_for(&self, cost: f64) -> f64 {
        if cost == 0.0 { 0.0 } else { cost / (0.5 * self.share * self.rate) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_is_spent() {
        let mut budget = Budget::new(0.01);
        let mut spent = 0;
        for _ in 0..1000 {
            budget.earn(100, 0.1);
            spent += u64::from(budget.spend(20.0, Urgency::None)) * 20;
        }
        assert!((980..=1100).contains(&spent), "{spent} for 100000 messages");
        assert!((budget.seconds_for(10.0) - 2.0).abs() < 0.1);
    }

    /// However dear it is and however few messages there are, it can be paid for in the end, and what it cost long ago does
    /// not count for ever.
    #[test]
    fn what_is_dear_can_be_saved_up_for() {
        let mut budget = Budget::new(0.01);
        assert!(!budget.spend(1000.0, Urgency::None));
        let waited = (0..1000).find(|_| {
            budget.earn(220, 1.0);
            budget.spend(1000.0, Urgency::None)
        });
        assert!(waited.is_some());
        (0..20_000).for_each(|_| budget.earn(220, 1.0));
        assert!(budget.credit < 200.0, "{}", budget.credit);
    }

    #[test]
    fn what_is_urgent_may_be_owed_but_not_for_ever() {
        let mut budget = Budget::new(0.01);
        assert!(!budget.spend(2000.0, Urgency::None));
        let mut urgent = |urgency| (0..100).filter(|_| budget.spend(2000.0, urgency)).count();
        assert_eq!(urgent(Urgency::Change), 2);
        assert_eq!(urgent(Urgency::Limit), 2, "a limit that begins after one that ended");
        assert!(!budget.spend(1.0, Urgency::None));
        assert!(budget.spend(0.0, Urgency::None), "what nobody hears costs nothing");
        budget.earn(1_000_000, 1.0);
        assert!(budget.spend(1.0, Urgency::None));
    }
}
