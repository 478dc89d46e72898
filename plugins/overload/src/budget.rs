//! Keeps advice cheap: no more than a few deliveries of it for many messages, and nothing on credit.
//!
//! What is not spent is saved, so that a fleet that has run for a while can be told at once when it must slow down, and
//! told again when it need not.

/// Seconds of messages for which can always be saved up.
const SAVED: f64 = 60.0;
/// How often everybody can be told with what is saved: a limit, two changes of it, and its end.
const TELLINGS: f64 = 4.0;
/// Seconds over which the rate of messages is averaged.
const MEMORY: f64 = 10.0;

/// What may be spent on advice, in deliveries.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What may be spent, as a share of the messages.
    share: f64,
    /// What there was to begin with, and at least what can be saved up.
    gift: f64,
    credit: f64,
    /// Messages a second, averaged.
    rate: f64,
    /// What it costs to tell everybody once.
    everybody: f64,
}

impl Budget {
    /// For deliveries that come to this share of the messages, and so many more to begin with.
    pub(crate) fn new(share: f64, gift: f64) -> Self {
        Self { share, gift, credit: gift, rate: 0.0, everybody: 0.0 }
    }

    /// Messages went through.
    pub(crate) fn earn(&mut self, messages: u64, seconds: f64) {
        if seconds > 0.0 {
            self.rate += (messages as f64 / seconds - self.rate) * (1.0 - (-seconds / MEMORY).exp());
        }
        let most = (SAVED * self.share * self.rate).max(self.gift).max(TELLINGS * self.everybody);
        // What was saved for those who have left is not taken away: it was earned.
        self.credit = (self.credit + self.share * messages as f64).min(most.max(self.credit));
    }

    /// So many there are to be told.
    pub(crate) fn save_for(&mut self, everybody: usize) {
        self.everybody = everybody as f64;
    }

    /// Pays for deliveries, unless less than `keep` would be left; says whether it did. What nobody hears costs nothing.
    pub(crate) fn spend(&mut self, cost: f64, keep: f64) -> bool {
        let pays = cost == 0.0 || cost + keep <= self.credit;
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
        let mut budget = Budget::new(0.01, 50.0);
        let mut spent = 0;
        for _ in 0..1000 {
            budget.earn(100, 0.1);
            spent += u64::from(budget.spend(20.0, 0.0)) * 20;
        }
        assert!((980..=1050).contains(&spent), "{spent} for 100000 messages");
        assert!((budget.seconds_for(10.0) - 2.0).abs() < 0.1);
    }

    #[test]
    fn nothing_is_spent_that_is_not_there() {
        let mut budget = Budget::new(0.01, 50.0);
        assert!(!budget.spend(51.0, 0.0));
        assert!(!budget.spend(30.0, 30.0), "too little would be left");
        assert!(budget.spend(0.0, 1e9), "what nobody hears costs nothing");
        assert!(budget.spend(30.0, 20.0));
        assert!(!budget.spend(30.0, 0.0));
    }

    /// However dear it is and however few messages there are, it can be saved up for, and no more than that is saved.
    #[test]
    fn what_is_dear_can_be_saved_up_for() {
        let mut budget = Budget::new(0.01, 50.0);
        budget.save_for(1000);
        (0..20_000).for_each(|_| budget.earn(220, 1.0));
        assert_eq!((0..10).filter(|_| budget.spend(1000.0, 0.0)).count(), 4);
        budget.save_for(10);
        (0..20_000).for_each(|_| budget.earn(220, 1.0));
        assert!((131.0..133.0).contains(&budget.credit), "{}", budget.credit);
    }
}
