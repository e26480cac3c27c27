//! Sets of pairs of a query and a key.

use std::ops::Range;

use super::Interval;

/// A set of pairs of a query and a key: a range of queries, a range of keys, and a range of distances between the two.
///
/// Each range is as narrow as the other two allow: each end of a range belongs to a pair, and a cut across it leaves pairs on both
/// sides. (Such sets are the *zones* of Dill 1989. The matrices of difference bounds have three rows here.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    query: Interval,
    key: Interval,
    /// The distance from the query back to the key, `q_idx - kv_idx`.
    back: Interval,
}

/// The coordinates of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coordinate {
    Query,
    Key,
    Back,
}

/// A line through a zone: on one side are the pairs up to a value of one coordinate, on the other those beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub(super) along: Coordinate,
    pub(super) at: i64,
}

impl Zone {
    /// The pairs of a non-empty rectangle.
    pub fn of(q: &Range<usize>, k: &Range<usize>) -> Self {
        let query = Interval::of(q);
        let key = Interval::of(k);
        let back = query - key;
        Self { query, key, back }
    }

    /// The pairs on either side of a cut.
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

    pub(super) fn range(&self, along: Coordinate) -> Interval {
        match along {
            Coordinate::Query => self.query,
            Coordinate::Key => self.key,
            Coordinate::Back => self.back,
        }
    }

    fn range_mut(&mut self, along: Coordinate) -> &mut Interval {
        match along {
            Coordinate::Query => &mut self.query,
            Coordinate::Key => &mut self.key,
            Coordinate::Back => &mut self.back,
        }
    }
}
