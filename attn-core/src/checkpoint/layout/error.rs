//! The errors of a map.

use std::{
    fmt::{self, Display},
    ops::Range,
};

use crate::checkpoint::TensorType;

/// All problems of a map with a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapError {
    /// The problems, at least one.
    pub problems: Vec<MapProblem>,
}

/// A problem of a map, alone or with a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapProblem {
    /// The two names of a rule have different holes.
    #[error(
        "`{ours}` and `{theirs}` must have the same number of `{{}}`, and a `*` at the end of both or of none"
    )]
    Holes {
        /// The name in the model.
        ours: String,
        /// The name in the file.
        theirs: String,
    },

    /// A rule whose name in the file says nothing of heads, or that is not per head.
    #[error(
        "a rule is `.per_head(..)`, or `.columns_per_head(..)`, where the name in the file has a `{{head}}`, and `.per_expert(..)` where it has an `{{expert}}`: {rule}"
    )]
    HeadName {
        /// The rule.
        rule: String,
    },

    /// A rule that matches no tensor of the model.
    #[error("no tensor of the model is for the rule {rule}")]
    Unused {
        /// The rule.
        rule: String,
    },

    /// A tensor of the model that no rule matches.
    #[error(
        "no rule gives {tensor}, {described}; `.fresh(\"{tensor}\")` leaves it as it was built"
    )]
    NotGiven {
        /// The tensor.
        tensor: String,
        /// Its type and its shape.
        described: TensorType,
    },

    /// A [fresh](super::WeightMap::fresh) name that matches no tensor of the model.
    #[error("no tensor of the model is `.fresh(\"{ours}\")`")]
    UnusedFresh {
        /// The name.
        ours: String,
    },

    /// A [grown](super::WeightMap::grown) name that matches no tensor of the model.
    #[error("no tensor of the model is `.grown(\"{ours}\")`")]
    UnusedGrown {
        /// The name.
        ours: String,
    },

    /// A tensor of the model that two rules match.
    #[error("two rules give {tensor}: {}; {}", rules[0], rules[1])]
    GivenTwice {
        /// The tensor.
        tensor: String,
        /// The rules.
        rules: [String; 2],
    },

    /// The prefix of the map matches nothing in the model.
    #[error("no tensor of the model has a name that begins with `{prefix}`")]
    NoModelPrefix {
        /// The prefix.
        prefix: String,
    },

    /// A rule that cannot apply to a tensor of this shape.
    #[error("{tensor}, {described}, cannot come from the rule {rule}: {reason}")]
    Shape {
        /// The rule.
        rule: String,
        /// The tensor of the model.
        tensor: String,
        /// Its type and its shape.
        described: TensorType,
        /// The reason.
        reason: String,
    },

    /// Two tensors of the model that cannot be parts of one tensor, because of their shapes or types.
    #[error("{}, {}, and {}, {}, cannot both be parts of {theirs}", ours[0].0, ours[0].1, ours[1].0, ours[1].1)]
    Uneven {
        /// The tensor of the file.
        theirs: String,
        /// The tensors of the model.
        ours: Box<[(String, TensorType); 2]>,
    },

    /// Two tensors of the model that overlap in one tensor of the file.
    #[error("{} and {} overlap in {theirs}", ours[0], ours[1])]
    Overlap {
        /// The tensor of the file.
        theirs: String,
        /// The tensors of the model.
        ours: [String; 2],
    },

    /// Rows or columns of a tensor of the file that are not mapped to the model.
    #[error("nothing in the model is {range:?} of axis {axis} of {theirs}")]
    Gap {
        /// The tensor of the file.
        theirs: String,
        /// Its axis.
        axis: usize,
        /// The range along the axis.
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
