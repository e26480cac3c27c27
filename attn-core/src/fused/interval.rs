//! Interval arithmetic on integers.

use std::ops::{Add, Div, Mul, Range, Rem, Sub};

/// All integers between two bounds: the possible values of an expression for indices in given ranges.
///
/// ```
/// use attn::__private::runtime::fused::Interval;
///
/// let (q_idx, kv_idx) = (Interval::of(&(64..128)), Interval::of(&(0..64)));
/// assert_eq!(q_idx - kv_idx, Interval::between(1, 127));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    least: i64,
    greatest: i64,
}

impl Interval {
    /// Any integer.
    pub const ANY: Self = Self {
        least: i64::MIN,
        greatest: i64::MAX,
    };

    /// The indices of a non-empty range.
    pub fn of(range: &Range<usize>) -> Self {
        Self::between(range.start as i64, range.end as i64 - 1)
    }

    /// One integer.
    pub fn exactly(value: i64) -> Self {
        Self::between(value, value)
    }

    /// The integers from `least` to `greatest`.
    pub fn between(least: i64, greatest: i64) -> Self {
        Self { least, greatest }
    }

    /// The smallest interval that contains these integers; any integer, if there are none.
    pub fn around(values: impl Iterator<Item = i64>) -> Self {
        values
            .map(Self::exactly)
            .reduce(Self::or)
            .unwrap_or(Self::ANY)
    }

    /// The least and the greatest integer.
    pub fn ends(self) -> (i64, i64) {
        (self.least, self.greatest)
    }

    /// The smallest interval that contains `f` of the four pairs of ends; any integer, if one overflows. It is correct for an `f`
    /// that is monotonic in each argument.
    fn of_ends(self, other: Self, f: impl Fn(i64, i64) -> Option<i64>) -> Self {
        let ends = [
            f(self.least, other.least),
            f(self.least, other.greatest),
            f(self.greatest, other.least),
            f(self.greatest, other.greatest),
        ];
        let first = Some(Self::between(i64::MAX, i64::MIN));
        let around = ends.into_iter().fold(first, |around, end| {
            let around = around?;
            let end = end?;
            Some(Self::between(
                around.least.min(end),
                around.greatest.max(end),
            ))
        });
        around.unwrap_or(Self::ANY)
    }

    /// The absolute value.
    pub fn abs(self) -> Self {
        let ends = [self.least.checked_abs(), self.greatest.checked_abs()];
        let [Some(a), Some(b)] = ends else {
            return Self::ANY;
        };
        let crosses = self.least <= 0 && self.greatest >= 0;
        Self::between(if crosses { 0 } else { a.min(b) }, a.max(b))
    }

    /// The minimum.
    pub fn min(self, other: Self) -> Self {
        self.of_ends(other, |a, b| Some(a.min(b)))
    }

    /// The values of either of two expressions.
    pub(super) fn or(self, other: Self) -> Self {
        Self::between(
            self.least.min(other.least),
            self.greatest.max(other.greatest),
        )
    }

    /// The intersection.
    pub(super) fn and(self, other: Self) -> Self {
        Self::between(
            self.least.max(other.least),
            self.greatest.min(other.greatest),
        )
    }

    /// The only integer in it, if there is only one.
    pub(super) fn only(self) -> Option<i64> {
        (self.least == self.greatest).then_some(self.least)
    }

    /// The multiples by a factor.
    pub(super) fn times(self, factor: i64) -> Self {
        if factor == 1 {
            return self;
        }
        let a = self.least.checked_mul(factor);
        let b = self.greatest.checked_mul(factor);
        if factor < 0 {
            Self::of_checked(b, a)
        } else {
            Self::of_checked(a, b)
        }
    }

    /// The integers between two ends; any integer, if one overflowed.
    fn of_checked(least: Option<i64>, greatest: Option<i64>) -> Self {
        match (least, greatest) {
            (Some(least), Some(greatest)) => Self::between(least, greatest),
            _ => Self::ANY,
        }
    }
}

impl Add for Interval {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::of_checked(
            self.least.checked_add(other.least),
            self.greatest.checked_add(other.greatest),
        )
    }
}

impl Sub for Interval {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::of_checked(
            self.least.checked_sub(other.greatest),
            self.greatest.checked_sub(other.least),
        )
    }
}

impl Mul for Interval {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        self.of_ends(other, i64::checked_mul)
    }
}

impl Div for Interval {
    type Output = Self;
    /// Rounded towards zero. Any integer, if the divisor may be 0.
    fn div(self, other: Self) -> Self {
        if other.least <= 0 && other.greatest >= 0 {
            return Self::ANY;
        }
        if let (Some(divisor @ 1..), (least, greatest)) = (other.only(), self.ends()) {
            return Self::between(least / divisor, greatest / divisor);
        }
        self.of_ends(other, i64::checked_div)
    }
}

impl Rem for Interval {
    type Output = Self;
    /// The remainder of a division that rounds towards zero. It has the sign of the dividend.
    fn rem(self, other: Self) -> Self {
        let divisor = other.abs();
        if divisor.least <= 0 {
            return Self::ANY;
        }
        let most = divisor.greatest - 1;
        let least = if self.least >= 0 {
            0
        } else {
            (-most).max(self.least)
        };
        let greatest = if self.greatest <= 0 {
            0
        } else {
            most.min(self.greatest)
        };
        Self::between(least, greatest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Range<i64> = -7..8;

    /// All intervals of small numbers.
    fn intervals() -> impl Iterator<Item = Interval> {
        SMALL.flat_map(|least| (least..SMALL.end).map(move |end| Interval::between(least, end)))
    }

    fn members(interval: Interval) -> impl Iterator<Item = i64> + Clone {
        interval.least..=interval.greatest
    }

    /// Checks that the operation on intervals contains the operation on every member.
    fn check(
        op: impl Fn(Interval, Interval) -> Interval,
        f: impl Fn(i64, i64) -> Option<i64>,
        exact: bool,
    ) {
        for a in intervals() {
            for b in intervals().step_by(3) {
                let result = op(a, b);
                let values = members(a).flat_map(|x| members(b).map(move |y| (x, y)));
                let values: Vec<_> = values.filter_map(|(x, y)| f(x, y)).collect();
                let (Some(least), Some(greatest)) = (values.iter().min(), values.iter().max())
                else {
                    continue;
                };
                assert!(
                    result.least <= *least && result.greatest >= *greatest,
                    "{a:?} {b:?}: {result:?}"
                );
                if exact {
                    assert_eq!(result, Interval::between(*least, *greatest), "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn arithmetic_is_that_of_the_members() {
        check(|a, b| a + b, i64::checked_add, true);
        check(|a, b| a - b, i64::checked_sub, true);
        check(|a, b| a * b, i64::checked_mul, true);
        check(Interval::min, |a, b| Some(a.min(b)), true);
        check(Interval::or, |a, _| Some(a), false);
        check(|a, _| a.abs(), |a, _| Some(a.abs()), true);
        check(|a, b| a / b, i64::checked_div, false);
        check(|a, b| a % b, i64::checked_rem, false);
    }

    #[test]
    fn overflowing_results_may_be_any_integer() {
        let huge = Interval::exactly(i64::MAX);
        assert_eq!(huge + Interval::exactly(1), Interval::ANY);
        assert_eq!(huge * huge, Interval::ANY);
        assert_eq!(Interval::exactly(i64::MIN).abs(), Interval::ANY);
        assert_eq!(huge / Interval::between(-1, 1), Interval::ANY);
    }
}
