//! The errors of a map.

use std::{
    fmt::{self, Display},
    ops::Range,
};

use crate::checkpoint::TensorType;

/// Everything in which a map does not fit a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapError {
    /// The problems. There is at least one.
    pub problems: Vec<MapProblem>,
}

/// One thing that is wrong with a map, or with a map and a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapProblem {
    /// The two names of a rule have not the same holes.
    #[error(
        "`{ours}` and `{theirs}` must have the same number of `{{}}`, and a `*` at the end of both or of none"
    )]
    Holes {
        /// Our name.
        ours: String,
        /// Theirs.
        theirs: String,
    },

    /// A rule that is good for nothing in the model.
    #[error("no tensor of the model is for the rule {rule}")]
    Unused {
        /// The rule.
        rule: String,
    },

    /// A tensor of the model that no rule gives.
    #[error(
        "no rule gives {tensor}, {described}; `.fresh(\"{tensor}\")` leaves it as it was built"
    )]
    NotGiven {
        /// The tensor.
        tensor: String,
        /// Its type and its shape.
        described: TensorType,
    },

    /// No tensor of the model is [fresh](super::WeightMap::fresh) in this way.
    #[error("no tensor of the model is `.fresh(\"{ours}\")`")]
    UnusedFresh {
        /// The name.
        ours: String,
    },

    /// A tensor of the model that two rules give.
    #[error("two rules give {tensor}: {}; {}", rules[0], rules[1])]
    GivenTwice {
        /// The tensor.
        tensor: String,
        /// The rules.
        rules: [String; 2],
    },

    /// The map is for a part of the model that is not there.
    #[error("no tensor of the model has a name that begins with `{prefix}`")]
    NoModelPrefix {
        /// How the names of that part begin.
        prefix: String,
    },

    /// A rule asks for what a tensor of this shape cannot be.
    #[error("{tensor}, {described}, cannot come from the rule {rule}: {reason}")]
    Shape {
        /// The rule.
        rule: String,
        /// The tensor of the model.
        tensor: String,
        /// Its type and its shape.
        described: TensorType,
        /// Why.
        reason: String,
    },

    /// Two tensors of the model that are not parts of one tensor, as their shapes say.
    #[error("{}, {}, and {}, {}, cannot both be parts of {theirs}", ours[0].0, ours[0].1, ours[1].0, ours[1].1)]
    Uneven {
        /// Their tensor.
        theirs: String,
        /// The tensors of the model.
        ours: Box<[(String, TensorType); 2]>,
    },

    /// Two tensors of the model that have the same numbers of one tensor.
    #[error("{} and {} overlap in {theirs}", ours[0], ours[1])]
    Overlap {
        /// Their tensor.
        theirs: String,
        /// The tensors of the model.
        ours: [String; 2],
    },

    /// Rows, or columns, of a tensor that are nothing in the model.
    #[error("nothing in the model is {range:?} of axis {axis} of {theirs}")]
    Gap {
        /// Their tensor.
        theirs: String,
        /// Its axis.
        axis: usize,
        /// The rest of the axis.
        range: Range<usize>,
    },
}

impl Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the map does not fit the model")?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for MapError {}
