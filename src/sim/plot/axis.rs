//! Axes: where a number lies on the paper, and which round numbers are written beside it.

/// A stretch of numbers and where it lies on the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
}

impl Axis {
    /// An axis that holds all these numbers; with `roomy` it starts at 0 and leaves some room at the top.
    pub fn over(numbers: impl Iterator<Item = f64>, roomy: bool) -> Self {
        let (mut low, mut high) = ends(numbers).unwrap_or((0.0, 1.0));
        if roomy {
            (low, high) = (low.min(0.0), high.max(0.0) + 0.05 * (high - low.min(0.0)));
        }
        // An axis that nearly begins at 0 begins there.
        if low > 0.0 && low < 0.05 * high {
            low = 0.0;
        }
        if high <= low {
            high = low + 1.0;
        }
        Self { low, high, start: 0.0, end: 1.0, logarithmic: false }
    }

    /// A logarithmic axis from one power of ten to another that holds all these numbers; those under `least` lie on its
    /// lower end.
    pub fn logarithmic(numbers: impl Iterator<Item = f64>, least: f64) -> Self {
        let least = least.max(f64::MIN_POSITIVE);
        let (low, high) = ends(numbers).unwrap_or((least, least));
        let (low, high) = (low.max(least), high.clamp(least, f64::MAX / 10.0));
        let low = 10f64.powf(low.log10().floor()).max(f64::MIN_POSITIVE);
        let high = 10f64.powf(high.log10().ceil()).max(10.0 * low);
        Self { low, high, start: 0.0, end: 1.0, logarithmic: true }
    }

    /// The same axis from one place on the paper to another.
    pub fn onto(self, start: f64, end: f64) -> Self {
        Self { start, end, ..self }
    }

    /// Its least number.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// Its length on the paper.
    pub fn length(&self) -> f64 {
        (self.end - self.start).abs()
    }

    /// Where a number lies; one beyond an end lies on that end.
    pub fn place(&self, number: f64) -> f64 {
        let number = number.clamp(self.low, self.high);
        let share = if self.logarithmic {
            (number / self.low).log10() / (self.high / self.low).log10()
        } else {
            (number - self.low) / (self.high - self.low)
        };
        self.start + share * (self.end - self.start)
    }

    /// About so many round numbers on the axis.
    pub fn ticks(&self, count: u32) -> Vec<f64> {
        if self.logarithmic {
            return self.powers(count.max(1) as usize);
        }
        let rough = (self.high - self.low) / f64::from(count);
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= 0.6 * rough).unwrap_or(rough);
        let first = (self.low / step).ceil();
        (0..=2 * count).map(|k| (first + f64::from(k)) * step).take_while(|tick| *tick <= self.high).collect()
    }

    /// Powers of ten, some left out when there are too many.
    fn powers(&self, count: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
        let step = ((last - first) as usize).div_ceil(count).max(1);
        (first..=last).step_by(step).map(|power| 10f64.powi(power)).collect()
    }
}

/// A number as it is written beside an axis.
pub fn number(value: f64) -> String {
    let value = if value.abs() < 1e-12 { 0.0 } else { value };
    let (scaled, unit) = match value.abs() {
        huge if huge >= 1e12 => return format!("{value:.0e}"),
        large if large >= 1e9 => (value / 1e9, "G"),
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = format!("{scaled:.6}");
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// The least and the largest, not so large that their difference would overflow.
fn ends(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.filter(|number| number.is_finite()).fold(None, |ends, number| {
        let number = number.clamp(-1e300, 1e300);
        let (low, high) = ends.unwrap_or((number, number));
        Some((low.min(number), high.max(number)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(Axis::over([0.0, 10.0].into_iter(), false).ticks(4), vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(number(25_000.0), "25k");
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(2e300), "2e300");
    }

    #[test]
    fn a_logarithmic_axis_goes_from_power_to_power() {
        let axis = Axis::logarithmic([3.0, 0.0, 700.0].into_iter(), 1.0).onto(0.0, 300.0);
        assert_eq!(axis.ticks(4), vec![1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(
            [0.0, 10.0, 1000.0, 1e9].map(|number| axis.place(number).round()),
            [0.0, 100.0, 300.0, 300.0]
        );
    }

    #[test]
    fn any_numbers_make_an_axis() {
        for numbers in [vec![], vec![0.0], vec![f64::NAN], vec![1e-300, 1e300], vec![-1.7e308, 1.7e308]] {
            for axis in
                [Axis::logarithmic(numbers.clone().into_iter(), 1e-3), Axis::over(numbers.into_iter(), true)]
            {
                assert!(axis.place(2.0).is_finite() && axis.ticks(5).len() < 20, "{axis:?}");
            }
        }
    }
}
