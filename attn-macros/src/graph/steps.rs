//! The layer as steps over matrices in memory: the graph of the fused form.

use super::{Dim, Normalizer};
use crate::score::Expr;
use crate::score::split::BiasTerm;
use crate::spec::{Real, Size};

/// The steps of the forward pass, in order.
pub(crate) struct Steps {
    pub(crate) arrays: Vec<Array>,
    pub(crate) steps: Vec<Step>,
    pub(crate) output: ArrayId,
}

/// An index into [`Steps::arrays`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ArrayId(pub(crate) usize);

/// Matrices side by side, with a row for every token: `[batch * len, Σ widths]`.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) name: String,
    /// The axis of its rows: [`Dim::Query`] or [`Dim::Key`].
    pub(crate) rows: Dim,
    pub(crate) parts: Vec<Part>,
    pub(crate) role: Role,
}

#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) width: Size,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// An input. Its gradient is on the tape.
    Input,
    /// An intermediate value.
    Interim,
    /// The result of the last step. Its gradient is given.
    Output,
}

/// One of the matrices of an array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct View {
    pub(crate) array: ArrayId,
    pub(crate) part: usize,
}

pub(crate) enum Step {
    /// `to = x Wᵀ + b`, with the parameters of all fields stacked: a part of `to` for each.
    Linear {
        x: ArrayId,
        fields: Vec<&'static str>,
        /// Whether the readers of `to` add `b`: [`HeadTransform::bias`].
        leaves_bias: bool,
        to: ArrayId,
    },
    /// The transformed vectors of all heads.
    HeadTransform {
        x: View,
        heads: Size,
        how: HeadTransform,
        to: ArrayId,
    },
    /// The product of the vectors of every head with the head's matrix.
    PerHeadLinear {
        x: View,
        heads: Size,
        field: &'static str,
        to: ArrayId,
    },
    /// All operations from queries, keys and values to the attended values of all heads. Scores and weights are never stored.
    Attention(Box<Attention>),
}

/// The transform of vectors before they are used: bias, then norm, then rotation.
#[derive(Clone, Default, Debug)]
pub(crate) struct HeadTransform {
    /// The part of a projection that left its bias.
    pub(crate) bias: Option<View>,
    pub(crate) norm: Option<Norm>,
    /// The base of the angles.
    pub(crate) rope: Option<Real>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Norm {
    /// With the gain in this field.
    Rms(&'static str),
    L2,
}

pub(crate) struct Attention {
    /// Queries and keys. `None` if the score is a function of positions only: then their width is 0.
    pub(crate) vectors: Option<[Vectors; 2]>,
    pub(crate) values: Vectors,
    pub(crate) similarity: Similarity,
    /// An expression of the score and of the bias terms.
    pub(crate) score: Option<Expr>,
    /// The bias terms that it reads.
    pub(crate) bias_terms: Vec<BiasTerm>,
    pub(crate) mask: Option<Expr>,
    pub(crate) normalizer: Normalizer,
    pub(crate) dropout: Option<Real>,
    pub(crate) to: ArrayId,
}

/// Queries, keys or values in memory, and their transform when they are loaded.
#[derive(Clone, Debug)]
pub(crate) struct Vectors {
    pub(crate) view: View,
    pub(crate) prepare: HeadTransform,
}

#[derive(Clone, Debug)]
pub(crate) enum Similarity {
    /// The product, times a constant. `None` is 1.
    Dot { scale: Option<Real> },
    /// With the weights in this field.
    Additive { field: &'static str },
}

impl HeadTransform {
    pub(crate) fn is_nothing(&self) -> bool {
        self.bias.is_none() && self.norm.is_none() && self.rope.is_none()
    }
}

impl Step {
    /// Whether it reads the array.
    pub(crate) fn reads(&self, id: ArrayId) -> bool {
        self.operands().iter().any(|view| view.array == id)
    }

    /// The matrices that it reads, each once. A [`Step::Linear`] reads the whole of an array of one part.
    pub(crate) fn operands(&self) -> Vec<View> {
        match self {
            Step::Linear { x, .. } => vec![View { array: *x, part: 0 }],
            Step::HeadTransform { x, .. } | Step::PerHeadLinear { x, .. } => vec![*x],
            Step::Attention(attention) => attention.operands().map(|of| of.view).collect(),
        }
    }

    /// The array that it computes.
    pub(crate) fn result(&self) -> ArrayId {
        match self {
            Step::Linear { to, .. }
            | Step::HeadTransform { to, .. }
            | Step::PerHeadLinear { to, .. } => *to,
            Step::Attention(attention) => attention.to,
        }
    }
}

impl Attention {
    /// The vectors that it reads.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Vectors> {
        self.vectors.iter().flatten().chain([&self.values])
    }

    /// The vectors that it reads, to change their transforms.
    pub(crate) fn operands_mut(&mut self) -> impl Iterator<Item = &mut Vectors> {
        let vectors = self.vectors.iter_mut().flatten();
        vectors.chain([&mut self.values])
    }

    /// The transforms of queries and keys.
    pub(crate) fn prepares(&self) -> [HeadTransform; 2] {
        self.vectors
            .clone()
            .map_or_else(Default::default, |both| both.map(|of| of.prepare))
    }
}

impl Steps {
    /// Whether a step reads the array.
    pub(crate) fn reads(&self, id: ArrayId) -> bool {
        self.steps.iter().any(|step| step.reads(id))
    }

    pub(crate) fn array(&self, id: ArrayId) -> &Array {
        &self.arrays[id.0]
    }
}
