//! Masks on ranges of indices: what holds of a whole rectangle is known without looking at its elements.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Not, Range, Rem, Sub};

use crate::kernel::attention::Coverage;

/// All integers from one to another: where the value of an expression lies, its indices being in ranges of their own.
///
/// ```
/// use attn_core::fused::{Interval, Truth};
///
/// let (q_idx, kv_idx) = (Interval::of(&(64..128)), Interval::of(&(0..64)));
/// assert_eq!(kv_idx.at_most(q_idx), Truth::True);
/// assert_eq!((q_idx - kv_idx).less(Interval::exactly(100)), Truth::Unknown);
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

    /// The indices of a range that is not empty.
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

    /// The least interval around some integers; any integer, if there is none.
    pub fn around(values: impl Iterator<Item = i64>) -> Self {
        values
            .map(Self::exactly)
            .reduce(Self::or)
            .unwrap_or(Self::ANY)
    }

    /// The least and the greatest one.
    pub fn ends(self) -> (i64, i64) {
        (self.least, self.greatest)
    }

    /// The least interval around what `f` makes of the four pairs of ends; any integer, if one overflows. Right for an `f`
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
            let (around, end) = (around?, end?);
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

    /// The smaller one.
    pub fn min(self, other: Self) -> Self {
        self.of_ends(other, |a, b| Some(a.min(b)))
    }

    /// The larger one.
    pub fn max(self, other: Self) -> Self {
        self.of_ends(other, |a, b| Some(a.max(b)))
    }

    /// `self < other`
    pub fn less(self, other: Self) -> Truth {
        Truth::of(self.greatest < other.least, self.least >= other.greatest)
    }

    /// `self <= other`
    pub fn at_most(self, other: Self) -> Truth {
        Truth::of(self.greatest <= other.least, self.least > other.greatest)
    }

    /// `self == other`
    pub fn equals(self, other: Self) -> Truth {
        let apart = self.greatest < other.least || other.greatest < self.least;
        let same = self.least == self.greatest && self == other;
        Truth::of(same, apart)
    }

    /// Where one of two values lies, if it is not known which.
    fn or(self, other: Self) -> Self {
        Self::between(
            self.least.min(other.least),
            self.greatest.max(other.greatest),
        )
    }
}

impl Add for Interval {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.of_ends(other, i64::checked_add)
    }
}

impl Sub for Interval {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.of_ends(other, i64::checked_sub)
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
    /// Towards zero; any integer, if the divisor may be 0.
    fn div(self, other: Self) -> Self {
        if other.least <= 0 && other.greatest >= 0 {
            return Self::ANY;
        }
        self.of_ends(other, i64::checked_div)
    }
}

impl Rem for Interval {
    type Output = Self;
    /// The remainder of a division towards zero, which has the sign of the dividend.
    fn rem(self, other: Self) -> Self {
        let divisor = other.abs();
        if divisor.least <= 0 {
            return Self::ANY;
        }
        // Between two multiples of one divisor, the remainder counts up.
        if other.least == other.greatest && self.least / other.least == self.greatest / other.least
        {
            let ends = (self.least % other.least, self.greatest % other.least);
            if ends.0 <= ends.1 && (self.least >= 0 || self.greatest <= 0) {
                return Self::between(ends.0, ends.1);
            }
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

/// What is known of a condition on a whole rectangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds everywhere.
    True,
    /// It holds nowhere.
    False,
    /// It may hold here and there.
    Unknown,
}

impl Truth {
    fn of(holds: bool, fails: bool) -> Self {
        match (holds, fails) {
            (true, _) => Self::True,
            (_, true) => Self::False,
            _ => Self::Unknown,
        }
    }

    /// What holds of elements that are looked at one by one.
    pub fn of_each(mut elements: impl Iterator<Item = bool>) -> Self {
        let first = elements.next().map_or(Self::Unknown, Self::from);
        if elements.all(|element| Self::from(element) == first) {
            first
        } else {
            Self::Unknown
        }
    }

    /// What it means for a mask.
    pub fn coverage(self) -> Coverage {
        match self {
            Self::True => Coverage::Full,
            Self::False => Coverage::Empty,
            Self::Unknown => Coverage::Partial,
        }
    }

    /// `if self { then } else { otherwise }`
    pub fn select(self, then: Interval, otherwise: Interval) -> Interval {
        match self {
            Self::True => then,
            Self::False => otherwise,
            Self::Unknown => then.or(otherwise),
        }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        Self::of(value, !value)
    }
}

impl Not for Truth {
    type Output = Self;
    fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
        }
    }
}

impl BitAnd for Truth {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        let either = |truth| self == truth || other == truth;
        Self::of(self == other && self == Self::True, either(Self::False))
    }
}

impl BitOr for Truth {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        !(!self & !other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Range<i64> = -7..8;

    /// Every interval of small numbers.
    fn intervals() -> impl Iterator<Item = Interval> {
        SMALL.flat_map(|least| (least..SMALL.end).map(move |end| Interval::between(least, end)))
    }

    fn members(interval: Interval) -> impl Iterator<Item = i64> + Clone {
        interval.least..=interval.greatest
    }

    /// The operation on intervals holds the operation on every member.
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
        check(Interval::max, |a, b| Some(a.max(b)), true);
        check(|a, _| a.abs(), |a, _| Some(a.abs()), true);
        check(|a, b| a / b, i64::checked_div, false);
        check(|a, b| a % b, i64::checked_rem, false);
    }

    #[test]
    fn a_remainder_within_one_period_is_exact() {
        for a in intervals() {
            for n in 1..9 {
                let result = a % Interval::exactly(n);
                let values: Vec<_> = members(a).map(|x| x % n).collect();
                let exact = Interval::between(
                    values.iter().copied().min().unwrap(),
                    values.iter().copied().max().unwrap(),
                );
                if a.least >= 0 {
                    let whole = a.least / n == a.greatest / n;
                    assert!(!whole || result == exact, "{a:?} % {n}");
                }
            }
        }
    }

    #[test]
    fn comparisons_know_what_holds_of_all_members() {
        type Compare = (fn(Interval, Interval) -> Truth, fn(&i64, &i64) -> bool);
        let compare: [Compare; 3] = [
            (Interval::less, i64::lt),
            (Interval::at_most, i64::le),
            (Interval::equals, i64::eq),
        ];
        for (op, f) in compare {
            for a in intervals() {
                for b in intervals() {
                    let mut values = members(a).flat_map(|x| members(b).map(move |y| f(&x, &y)));
                    let (any, all) = (values.clone().any(|v| v), values.all(|v| v));
                    assert_eq!(op(a, b), Truth::of(all, !any), "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn logic_is_that_of_kleene() {
        use Truth::{False, True, Unknown};
        for a in [True, False, Unknown] {
            assert_eq!((a & True, a & False), (a, False));
            assert_eq!((a | True, a | False), (True, a));
            assert_eq!(!!a, a);
        }
        assert_eq!(Unknown & Unknown, Unknown);
        assert_eq!(Unknown | Unknown, Unknown);
    }

    #[test]
    fn what_overflows_may_be_anything() {
        let huge = Interval::exactly(i64::MAX);
        assert_eq!(huge + Interval::exactly(1), Interval::ANY);
        assert_eq!(huge * huge, Interval::ANY);
        assert_eq!(Interval::exactly(i64::MIN).abs(), Interval::ANY);
        assert_eq!(huge / Interval::between(-1, 1), Interval::ANY);
    }
}
