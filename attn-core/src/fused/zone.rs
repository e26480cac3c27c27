//! Masks on rectangles: properties of a whole rectangle are derived without visiting its pairs.

use std::ops::Range;

use super::{Affine, Interval, Truth};
use crate::kernel::attention::Coverage;

/// A set of pairs of a query and a key: a range of queries, a range of keys, and a range of distances between the two.
///
/// Each range is as narrow as the other two allow: every end of a range belongs to a pair, and a cut across it leaves pairs on
/// both sides. (Such sets are the *zones* of Dill 1989. Their difference bound matrices have three rows here.)
///
/// A mask that is unknown on a zone is evaluated again on both sides of a cut. After the cuts `causal & !sliding_window(64)` is
/// known everywhere:
///
/// ```
/// use attn::__private::runtime::{fused::Zone, kernel::attention::Coverage};
///
/// let far = |at: &Zone| {
///     let (q_idx, kv_idx) = (at.q_idx(), at.kv_idx());
///     kv_idx.at_most(q_idx) & !(q_idx - kv_idx).less(at.number(64))
/// };
/// assert_eq!(Zone::of(&(48..96), &(16..32)).coverage(&far), Coverage::Partial);
/// assert_eq!(Zone::of(&(48..96), &(48..64)).coverage(&far), Coverage::Empty);
/// assert_eq!(Zone::of(&(96..144), &(16..32)).coverage(&far), Coverage::Full);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    query: Interval,
    key: Interval,
    /// The distance from the query back to the key.
    back: Interval,
}

/// The coordinates of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Query,
    Key,
    Back,
}

/// A line through a zone: on one side are the pairs up to a value of one coordinate, on the other those beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub(super) along: Along,
    pub(super) at: i64,
}

/// The maximum number of zones per mask. Beyond this number it counts as partial. Common masks need one to ten.
const MOST_ZONES: usize = 256;

impl Zone {
    /// The pairs of a non-empty rectangle.
    pub fn of(q: &Range<usize>, k: &Range<usize>) -> Self {
        let query = Interval::of(q);
        let key = Interval::of(k);
        let back = query - key;
        Self { query, key, back }
    }

    /// The query.
    pub fn q_idx(&self) -> Affine<'_> {
        match self.query.only() {
            Some(q) => self.number(q),
            None => Affine::of(self, [1, 0], Interval::exactly(0)),
        }
    }

    /// The key.
    pub fn kv_idx(&self) -> Affine<'_> {
        match self.key.only() {
            Some(k) => self.number(k),
            None => Affine::of(self, [0, 1], Interval::exactly(0)),
        }
    }

    /// A constant.
    pub fn number(&self, value: i64) -> Affine<'_> {
        self.within(Interval::exactly(value))
    }

    /// A value of which only the bounds are known.
    pub fn within(&self, bounds: Interval) -> Affine<'_> {
        Affine::of(self, [0, 0], bounds)
    }

    /// The coverage of the zone, from that of its pieces.
    pub fn coverage(&self, mask: &dyn Fn(&Self) -> Truth) -> Coverage {
        let mut found = None;
        let mut left = MOST_ZONES;
        match (self.is_alike(mask, &mut found, &mut left), found) {
            (true, Some(true)) => Coverage::Full,
            (true, Some(false)) => Coverage::Empty,
            _ => Coverage::Partial,
        }
    }

    /// Whether the mask is `found` on the whole zone. The first piece with a known value determines `found`.
    fn is_alike(
        &self,
        mask: &dyn Fn(&Self) -> Truth,
        found: &mut Option<bool>,
        left: &mut usize,
    ) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        match mask(self) {
            Truth::True => *found.get_or_insert(true),
            Truth::False => !*found.get_or_insert(false),
            Truth::Mixed(_) | Truth::Unknown(None) => false,
            Truth::Unknown(Some(cut)) => {
                let sides = self.sides(cut);
                sides.iter().all(|side| side.is_alike(mask, found, left))
            }
        }
    }

    pub(super) fn sides(&self, cut: Cut) -> [Self; 2] {
        let (least, greatest) = self.range(cut.along).ends();
        let ranges = [(least, cut.at), (cut.at.saturating_add(1), greatest)];
        ranges.map(|(least, greatest)| {
            let mut side = *self;
            *side.range_mut(cut.along) = Interval::between(least, greatest);
            side.query = side.query.and(side.key + side.back);
            side.key = side.key.and(side.query - side.back);
            side.back = side.back.and(side.query - side.key);
            side
        })
    }

    pub(super) fn range(&self, along: Along) -> Interval {
        match along {
            Along::Query => self.query,
            Along::Key => self.key,
            Along::Back => self.back,
        }
    }

    fn range_mut(&mut self, along: Along) -> &mut Interval {
        match along {
            Along::Query => &mut self.query,
            Along::Key => &mut self.key,
            Along::Back => &mut self.back,
        }
    }
}

#[cfg(test)]
mod tests;
