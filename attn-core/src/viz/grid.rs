//! The weights of one head, for drawings without a browser.

use super::{Labels, VizError};
use crate::maps::AttentionMap;

/// The head of a drawing. A number converts to a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The head with this index.
    Index(usize),
    /// The mean of all heads.
    Mean,
}

impl From<usize> for Head {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// The weight with the strongest colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// The largest of each query: shows its preferences, for any number of keys.
    #[default]
    Query,
    /// The largest of the head: queries are comparable.
    Head,
    /// The weight 1: heads are comparable.
    One,
}

/// The weights of a head in one sequence, with their labels.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    /// The name of the map and the head.
    pub(super) title: String,
    pub(super) queries: Vec<String>,
    pub(super) keys: Vec<String>,
    /// `[query, key]`
    weights: Vec<f64>,
}

impl Grid {
    pub(super) fn of(
        map: &AttentionMap,
        sequence: usize,
        head: Head,
        labels: &Labels,
    ) -> Result<Self, VizError> {
        labels.check(map)?;
        check(map, "sequence", sequence, map.batch())?;
        let (heads, name) = match head {
            Head::Index(head) => {
                check(map, "head", head, map.heads())?;
                (head..head + 1, format!("head {head}"))
            }
            Head::Mean => (0..map.heads(), "mean of heads".into()),
        };
        let mut weights = vec![0.0; map.queries() * map.keys()];
        let count = heads.len() as f64;
        for head in heads {
            for (mean, weight) in weights.iter_mut().zip(map.head(sequence, head)) {
                *mean += f64::from(*weight) / count;
            }
        }
        Ok(Self {
            title: format!("{}, {name}", map.name()),
            queries: (0..map.queries())
                .map(|i| labels.query(sequence, i))
                .collect(),
            keys: (0..map.keys()).map(|i| labels.key(sequence, i)).collect(),
            weights,
        })
    }

    /// The weights of a query.
    pub(super) fn row(&self, query: usize) -> &[f64] {
        &self.weights[query * self.keys.len()..][..self.keys.len()]
    }

    /// The divisor of the weights of each query, or 0 if no weight is positive.
    pub(super) fn largest(&self, scale: Scale) -> Vec<f64> {
        let largest = |weights: &[f64]| {
            let finite = weights.iter().filter(|w| w.is_finite());
            finite.fold(0.0, |a: f64, b| a.max(*b))
        };
        let queries = 0..self.queries.len();
        match scale {
            Scale::Query => queries.map(|query| largest(self.row(query))).collect(),
            Scale::Head => vec![largest(&self.weights); queries.len()],
            Scale::One => vec![1.0; queries.len()],
        }
    }
}

/// The fraction of the largest weight, or NaN for a weight that is not finite.
pub(super) fn share(weight: f64, largest: f64) -> f64 {
    match (weight.is_finite(), largest > 0.0) {
        (false, _) => f64::NAN,
        (true, true) => weight / largest,
        (true, false) => 0.0,
    }
}

fn check(map: &AttentionMap, what: &'static str, index: usize, len: usize) -> Result<(), VizError> {
    if index < len {
        return Ok(());
    }
    Err(VizError::Missing {
        map: map.name().into(),
        what,
        index,
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> AttentionMap {
        let weights = vec![0.25, 0.75, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0];
        AttentionMap::new("a", [1, 2, 2, 2], weights)
    }

    #[test]
    fn the_mean_head_is_the_mean_of_the_heads() -> Result<(), VizError> {
        let grid = Grid::of(&map(), 0, Head::Mean, &Labels::indices())?;
        assert_eq!(grid.title, "a, mean of heads");
        assert_eq!([grid.row(0), grid.row(1)], [[0.625, 0.375], [0.0, 0.25]]);
        let one = Grid::of(&map(), 0, 0.into(), &Labels::indices())?;
        assert_eq!(one.row(0), [0.25, 0.75]);
        Ok(())
    }

    #[test]
    fn scales_divide_by_the_largest_weight() -> Result<(), VizError> {
        let grid = Grid::of(&map(), 0, 0.into(), &Labels::indices())?;
        assert_eq!(grid.largest(Scale::Query), [0.75, 0.5]);
        assert_eq!(grid.largest(Scale::Head), [0.75, 0.75]);
        assert_eq!(grid.largest(Scale::One), [1.0, 1.0]);
        assert_eq!((share(0.5, 2.0), share(0.0, 0.0)), (0.25, 0.0));
        assert!(share(f64::INFINITY, 1.0).is_nan());
        Ok(())
    }

    #[test]
    fn missing_heads_and_sequences_are_errors() {
        let refused = |sequence, head: Head| {
            let grid = Grid::of(&map(), sequence, head, &Labels::indices());
            grid.err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(refused(1, Head::Mean), "there is no sequence 1: `a` has 1");
        assert_eq!(refused(0, 2.into()), "there is no head 2: `a` has 2");
    }
}
