//! Publishers that feed a queue at other gateways before the same broker: they count as those that are here.

use tidegate_plugin::Crowd;

use crate::class::{Class, Classes};
use crate::divide::{Claims, alike};
use crate::number::Numbered;

/// Crowds of one queue that are told, beside one for each class.
const MOST: usize = 64;
/// A rate that is told is no higher: it has to fit into what others can read.
const MOST_WANTED: f64 = 1e12;

/// Who feeds a queue elsewhere: class, how many, and what each wants.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(Vec<(usize, u32, f64)>);

impl Elsewhere {
    /// Takes in what other gateways say. Who is of a class that is not known here is of the default class.
    pub(crate) fn hear(&mut self, crowds: &[Crowd], classes: &Classes) {
        let index = |crowd: &Crowd| classes.position(&crowd.class).unwrap_or(classes.default());
        let sound = |wants: f64| if wants > 0.0 { wants.min(MOST_WANTED) } else { 0.0 };
        self.0.clear();
        self.0.extend(crowds.iter().map(|crowd| (index(crowd), crowd.publishers, sound(crowd.wants))));
    }

    /// Nothing is heard any more.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// How many publishers they are.
    pub(crate) fn publishers(&self) -> u64 {
        self.0.iter().map(|(_, count, _)| u64::from(*count)).sum()
    }

    /// Each crowd: its class, how many they are, what each wants.
    pub(crate) fn each<'a>(&self, classes: &'a Classes) -> impl Iterator<Item = (&'a Class, u32, f64)> {
        self.0.iter().map(|(class, count, wants)| (classes.get(*class), *count, *wants))
    }

    /// Adds what they claim.
    pub(crate) fn claim(&self, claims: &mut Claims, classes: &Classes) {
        for (index, count, wants) in &self.0 {
            let class = classes.get(*index);
            if !class.exempt {
                claims.add_many(*index, class, *wants, (*count).into());
            }
        }
    }
}

/// Publishers of this gateway, for others.
#[derive(Debug, Default)]
pub(crate) struct Crowds(Numbered<(usize, u32), (u32, f64)>);

impl Crowds {
    /// Adds a publisher of a class that wants this many messages a second.
    pub(crate) fn add(&mut self, class: usize, wants: f64) {
        let (count, mean) = self.0.entry((class, alike(wants))).or_default();
        *count += 1;
        *mean += (wants.min(MOST_WANTED) - *mean) / f64::from(*count);
    }

    /// All of them. When there are too many kinds, the smallest ones go into one with the first of their class.
    pub(crate) fn list(self, classes: &Classes) -> Vec<Crowd> {
        let mut all: Vec<_> =
            self.0.into_iter().map(|((class, _), (count, wants))| (class, count, wants)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)).then(a.2.total_cmp(&b.2)));
        let rest = all.split_off(all.len().min(MOST));
        for (class, count, wants) in rest {
            let Some(kept) = all.iter_mut().find(|kept| kept.0 == class) else {
                all.push((class, count, wants));
                continue;
            };
            let sum = f64::from(kept.1) * kept.2 + f64::from(count) * wants;
            kept.1 = kept.1.saturating_add(count);
            kept.2 = sum / f64::from(kept.1);
        }
        let crowd = |(class, publishers, wants): (usize, u32, f64)| {
            let class = classes.get(class).name.clone();
            Crowd { class, publishers, wants }
        };
        all.into_iter().map(crowd).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClassConfig, OverloadConfig};

    fn classes() -> Classes {
        let gold = ClassConfig {
            name: "gold".into(),
            client: Some("g*".into()),
            weight: 4.0,
            ..ClassConfig::default()
        };
        let alarm = ClassConfig { name: "alarm".into(), exempt: true, ..gold.clone() };
        Classes::new(&OverloadConfig { classes: vec![gold, alarm], ..OverloadConfig::default() })
    }

    fn crowd(class: &str, publishers: u32, wants: f64) -> Crowd {
        Crowd { class: class.into(), publishers, wants }
    }

    /// Ten publishers here and ten there get what twenty here would.
    #[test]
    fn who_is_elsewhere_counts_as_who_is_here() {
        let classes = classes();
        let (mut here, mut apart, mut elsewhere) =
            (Claims::default(), Claims::default(), Elsewhere::default());
        for index in [0, 2] {
            (0..20).for_each(|_| here.add(index, classes.get(index), 100.0));
            (0..10).for_each(|_| apart.add(index, classes.get(index), 100.0));
        }
        let told = [crowd("gold", 10, 100.0), crowd("never heard of", 10, 100.0), crowd("alarm", 3, 1.0)];
        elsewhere.hear(&told, &classes);
        elsewhere.claim(&mut apart, &classes);
        assert_eq!(apart.rates(500.0, &classes), here.rates(500.0, &classes));
        assert_eq!(elsewhere.publishers(), 23);
        elsewhere.hear(&[crowd("gold", 1, f64::NAN)], &classes);
        assert_eq!(elsewhere.each(&classes).map(|(_, _, wants)| wants).sum::<f64>(), 0.0);
    }

    #[test]
    fn many_kinds_become_few_and_nobody_is_left_out() {
        let classes = classes();
        let mut crowds = Crowds::default();
        (0..200).for_each(|step| crowds.add(0, 1.3_f64.powi(step % 100)));
        crowds.add(2, 7.0);
        crowds.add(2, 7.0);
        let list = crowds.list(&classes);
        assert!(list.len() <= MOST + 1);
        assert_eq!(list.iter().map(|crowd| crowd.publishers).sum::<u32>(), 202);
        assert!(list.contains(&crowd("default", 2, 7.0)));
    }
}
