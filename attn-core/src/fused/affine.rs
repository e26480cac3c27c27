//! Integer expressions of queries and keys, evaluated for all pairs of a zone at once.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use super::zone::{Coordinate, Cut};
use super::{Interval, Truth, Zone};

/// An integer expression of a query and a key: `q * q_idx + k * kv_idx + rest`, with bounds for the rest.
///
/// Sums and multiples are as exact as their operands. A quotient, a remainder or an absolute value is exact on a zone that is
/// small enough; on a larger one it suggests a cut. An expression that depends on both indices other than by their difference, such as
/// a product, has bounds only.
///
/// ```
/// use attn::__private::runtime::fused::{Truth, Zone};
///
/// let at = Zone::of(&(64..128), &(0..64));
/// let back = at.q_idx() - at.kv_idx();
/// assert_eq!(back.bounds().ends(), (1, 127));
/// assert_eq!(at.number(0).less(back), Truth::True);
/// assert!(matches!(back.less(at.number(100)), Truth::Mixed(_)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Affine<'z> {
    zone: &'z Zone,
    q: i64,
    k: i64,
    rest: Interval,
    /// Whether each bound is attained at some pair.
    reached: bool,
    /// A cut after which the bounds of the rest are closer.
    cut: Option<Cut>,
}

impl<'z> Affine<'z> {
    pub(super) fn of(zone: &'z Zone, [q, k]: [i64; 2], rest: Interval) -> Self {
        Self {
            zone,
            q,
            k,
            rest,
            reached: rest.only().is_some(),
            cut: None,
        }
    }

    /// A number between these bounds. The cut leads to zones with closer bounds.
    fn between(zone: &'z Zone, bounds: Interval, cut: Option<Cut>) -> Self {
        let cut = cut.filter(|_| bounds.only().is_none());
        Self {
            cut,
            ..Self::of(zone, [0, 0], bounds)
        }
    }

    /// A number from a table, between these bounds. If it depends on the query alone or on the key alone, smaller zones look it up again.
    /// If it depends on both, they do not: that would cost as much as the mask itself.
    pub fn looked_up<const N: usize>(zone: &'z Zone, found: Interval, index: [Self; N]) -> Self {
        let mut cuts = index.iter().filter_map(|index| index.halves());
        let cut = cuts.next().filter(|_| cuts.next().is_none());
        Self::between(zone, found, cut)
    }

    /// The bounds of its value.
    pub fn bounds(self) -> Interval {
        let part = match (self.q, self.k) {
            (0, 0) => return self.rest,
            (q, 0) => self.zone.range(Coordinate::Query).times(q),
            (0, k) => self.zone.range(Coordinate::Key).times(k),
            (q, k) if q.checked_neg() == Some(k) => self.zone.range(Coordinate::Back).times(q),
            (q, k) => {
                self.zone.range(Coordinate::Query).times(q)
                    + self.zone.range(Coordinate::Key).times(k)
            }
        };
        part + self.rest
    }

    /// The zone.
    pub fn zone(self) -> &'z Zone {
        self.zone
    }

    /// Its value, if there is only one.
    fn only(self) -> Option<i64> {
        self.bounds().only()
    }

    /// The coordinate that it is a multiple of, up to a constant, and the factor.
    fn along(self) -> Option<(Coordinate, i64)> {
        match (self.q, self.k) {
            (0, 0) => None,
            (q, 0) => Some((Coordinate::Query, q)),
            (0, k) => Some((Coordinate::Key, k)),
            (q, k) => (q.checked_neg() == Some(k)).then_some((Coordinate::Back, q)),
        }
    }

    /// Whether it is determined by the position.
    fn is_exact(self) -> bool {
        self.rest.only().is_some()
    }

    fn is_number(self) -> bool {
        self.is_exact() && (self.q, self.k) == (0, 0)
    }

    /// Whether each of its bounds is attained at some pair.
    fn reaches_ends(self) -> bool {
        self.reached && ((self.q, self.k) == (0, 0) || self.along().is_some())
    }

    /// Whether every integer between its bounds is attained at some pair.
    fn reaches_all(self) -> bool {
        self.is_exact() && matches!(self.along(), Some((_, 1 | -1)))
    }

    /// A cut after which its bounds are closer, if it has more than one value.
    fn halves(self) -> Option<Cut> {
        if !self.is_exact() {
            return self.cut;
        }
        let (along, _) = self.along()?;
        let (least, greatest) = self.zone.range(along).ends();
        let at = least.midpoint(greatest).min(greatest.checked_sub(1)?);
        (least < greatest).then_some(Cut { along, at })
    }

    /// A cut between the pairs for which it is less than `bound`, and the others. Both sides are non-empty.
    fn cut_at(self, bound: i64) -> Option<Cut> {
        let (Some(rest), Some((along, times))) = (self.rest.only(), self.along()) else {
            return self.halves();
        };
        // The last index before the bound is reached, or the last index that reaches it.
        let (reach, times) = if times > 0 {
            (bound.checked_sub(rest)?.checked_sub(1)?, times)
        } else {
            (rest.checked_sub(bound)?, times.checked_neg()?)
        };
        let at = match times {
            1 => reach,
            times => reach.div_euclid(times),
        };
        Some(Cut { along, at })
    }

    /// `self >= bound`
    fn reaches(self, bound: i64) -> Truth {
        let (least, greatest) = self.bounds().ends();
        if least >= bound {
            Truth::True
        } else if greatest < bound {
            Truth::False
        } else {
            self.undecided(self.reaches_ends(), bound)
        }
    }

    fn undecided(self, mixed: bool, bound: i64) -> Truth {
        let cut = self.cut_at(bound);
        if mixed {
            Truth::Mixed(cut)
        } else {
            Truth::Unknown(cut)
        }
    }

    /// `self < other`
    pub fn less(self, other: Self) -> Truth {
        (other - self).reaches(1)
    }

    /// `self <= other`
    pub fn at_most(self, other: Self) -> Truth {
        (other - self).reaches(0)
    }

    /// `self == other`
    pub fn equals(self, other: Self) -> Truth {
        // The difference of ids may overflow.
        let [(least, greatest), (other_least, other_greatest)] =
            [self, other].map(|value| value.bounds().ends());
        if greatest < other_least || other_greatest < least {
            return Truth::False;
        }
        let gap = self - other;
        match gap.bounds().ends() {
            (0, 0) => Truth::True,
            (1.., _) | (_, ..0) => Truth::False,
            (0, _) => gap.undecided(gap.reaches_ends(), 1),
            (_, 0) => gap.undecided(gap.reaches_ends(), 0),
            _ => gap.undecided(gap.reaches_all(), 0),
        }
    }

    /// The absolute value.
    pub fn abs(self) -> Self {
        match self.reaches(0) {
            Truth::True => self,
            Truth::False => -self,
            open => Self::between(self.zone, self.bounds().abs(), open.cut()),
        }
    }

    /// The minimum.
    pub fn min(self, other: Self) -> Self {
        match self.at_most(other) {
            Truth::True => self,
            Truth::False => other,
            open => {
                let bounds = self.bounds().min(other.bounds());
                Self::between(self.zone, bounds, open.cut())
            }
        }
    }

    /// The maximum.
    pub fn max(self, other: Self) -> Self {
        -(-self).min(-other)
    }

    /// One of the two values. Each side of the cut determines which one.
    pub(super) fn or(self, other: Self, cut: Option<Cut>) -> Self {
        Self::between(self.zone, self.bounds().or(other.bounds()), cut)
    }

    fn times(self, factor: i64) -> Self {
        match (self.q.checked_mul(factor), self.k.checked_mul(factor)) {
            (Some(q), Some(k)) => Self {
                q,
                k,
                rest: self.rest.times(factor),
                ..self
            },
            _ => Self::between(self.zone, Interval::ANY, self.halves()),
        }
    }

    /// A cut between two quotients by `divisor`, of which there are at least two.
    fn cut_of_quotients(self, divisor: i64) -> Option<Cut> {
        let (least, greatest) = self.bounds().ends();
        let size = divisor.checked_abs()?;
        let middle = least.midpoint(greatest) / size;
        // Quotients are rounded towards zero: this is the last number with this quotient, or the last before it.
        let quotient = if middle < greatest / size {
            middle
        } else {
            middle.checked_sub(1)?
        };
        let next = if quotient >= 0 {
            quotient.checked_add(1)?.checked_mul(size)?
        } else {
            quotient.checked_mul(size)?.checked_add(1)?
        };
        self.cut_at(next)
    }
}

impl Zone {
    /// The query.
    pub fn q_idx(&self) -> Affine<'_> {
        match self.range(Coordinate::Query).only() {
            Some(q) => self.number(q),
            None => Affine::of(self, [1, 0], Interval::exactly(0)),
        }
    }

    /// The key.
    pub fn kv_idx(&self) -> Affine<'_> {
        match self.range(Coordinate::Key).only() {
            Some(k) => self.number(k),
            None => Affine::of(self, [0, 1], Interval::exactly(0)),
        }
    }

    /// A number.
    pub fn number(&self, value: i64) -> Affine<'_> {
        self.within(Interval::exactly(value))
    }

    /// A number with these bounds.
    pub fn within(&self, bounds: Interval) -> Affine<'_> {
        Affine::of(self, [0, 0], bounds)
    }
}

impl Truth {
    /// `if self { then } else { otherwise }`
    pub fn select<'z>(self, then: Affine<'z>, otherwise: Affine<'z>) -> Affine<'z> {
        match self {
            Self::True => then,
            Self::False => otherwise,
            open => then.or(otherwise, open.cut()),
        }
    }
}

impl Neg for Affine<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        self.times(-1)
    }
}

impl Add for Affine<'_> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let cut = self.cut.or(other.cut);
        match (self.q.checked_add(other.q), self.k.checked_add(other.k)) {
            (Some(q), Some(k)) => Self {
                q,
                k,
                rest: self.rest + other.rest,
                reached: self.is_exact() && other.is_exact()
                    || self.reached && other.is_number()
                    || self.is_number() && other.reached,
                cut,
                ..self
            },
            _ => Self::between(self.zone, Interval::ANY, cut),
        }
    }
}

impl Sub for Affine<'_> {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Affine<'_> {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        if let Some(factor) = other.only() {
            self.times(factor)
        } else if let Some(factor) = self.only() {
            other.times(factor)
        } else {
            Self::between(self.zone, self.bounds() * other.bounds(), None)
        }
    }
}

impl Div for Affine<'_> {
    type Output = Self;
    /// Rounded towards zero. Any integer, if the divisor may be 0.
    fn div(self, other: Self) -> Self {
        let bounds = self.bounds() / other.bounds();
        match other.only() {
            Some(1) => self,
            Some(divisor) if divisor != 0 && bounds.only().is_none() => Self {
                reached: self.reaches_ends(),
                ..Self::between(self.zone, bounds, self.cut_of_quotients(divisor))
            },
            _ => Self::between(self.zone, bounds, None),
        }
    }
}

impl Rem for Affine<'_> {
    type Output = Self;
    /// The remainder of a division that rounds towards zero. It has the sign of the dividend.
    fn rem(self, other: Self) -> Self {
        let quotient = self / other;
        if quotient.only().is_some() {
            return self - other * quotient;
        }
        let bounds = self.bounds();
        Self {
            // Between two multiples, every remainder is attained.
            reached: self.reaches_all() && bounds.ends().0 >= 0 && other.is_number(),
            ..Self::between(self.zone, bounds % other.bounds(), quotient.halves())
        }
    }
}

#[cfg(test)]
mod tests;
