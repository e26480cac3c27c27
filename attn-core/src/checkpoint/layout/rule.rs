//! One row of a map.

use std::{
    fmt::{self, Display},
    ops::Range,
};

/// One row of a [`WeightMap`](super::WeightMap): our name, their name, and what has to be done to their tensor to become ours.
///
/// In both names `{}` stands for an index, the same ones in the same order, and a `*` at the end for whatever is left of the
/// name. Where rules with a `*` and others fit a name, those without it decide, then the longest.
///
/// In whatever order they are written, their axes of length 1 are left out first, then it is transposed, then a part of it is
/// taken, and then the rows of the heads are put in order.
///
/// ```
/// use attn::checkpoint::layout::Rule;
///
/// let rule = Rule::new("blocks.{}.attention.q_proj.*", "h.{}.attn.c_attn.*").transposed().rows(0..768);
/// assert_eq!(rule.to_string(), "blocks.{}.attention.q_proj.* <- h.{}.attn.c_attn.*, transposed, rows 0..768");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) optional: bool,
    pub(super) squeezed: Vec<usize>,
    pub(super) transposed: bool,
    pub(super) part: Option<Part>,
    pub(super) heads: Option<Heads>,
}

/// The part of their tensor that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The axis, of ours, along which it is a part.
    pub(super) axis: usize,
    /// Which indices; none if those behind the part of the rule before.
    pub(super) range: Option<Range<usize>>,
}

/// Another order of the rows of each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) count: usize,
    /// Whether theirs has the two coordinates of a pair beside each other, and ours has them half a head apart.
    pub(super) interleaved: bool,
}

impl Rule {
    /// The tensor `theirs` as it is.
    pub fn new(ours: impl Into<String>, theirs: impl Into<String>) -> Self {
        Self {
            ours: ours.into(),
            theirs: theirs.into(),
            optional: false,
            squeezed: Vec::new(),
            transposed: false,
            part: None,
            heads: None,
        }
    }

    /// That models may have nothing of that name. What the model has, a file must have, all the same; to leave a tensor of the model
    /// as it was built, say that it is [fresh](super::WeightMap::fresh).
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Their axes in the reverse order: the weight of a `Conv1D` of GPT-2, a kernel of Flax. It does nothing to a tensor with one
    /// axis, so that a rule for `c_attn.*` is good for the weight and for the bias.
    ///
    /// PyTorch: `tensor.T`.
    pub fn transposed(mut self) -> Self {
        self.transposed = true;
        self
    }

    /// Without this axis of theirs, which has the length 1.
    ///
    /// PyTorch: `tensor.squeeze(axis)`.
    pub fn squeezed(mut self, axis: usize) -> Self {
        self.squeezed.push(axis);
        self
    }

    /// These rows of theirs. All rules for a tensor together must take every row, and none of them twice.
    ///
    /// PyTorch: `tensor[range]`.
    pub fn rows(self, range: Range<usize>) -> Self {
        self.part(0, Some(range))
    }

    /// These columns of theirs.
    ///
    /// PyTorch: `tensor[:, range]`.
    pub fn columns(self, range: Range<usize>) -> Self {
        self.part(1, Some(range))
    }

    /// As many rows of theirs as ours has, behind those of the rule before that takes some of the same tensor: queries, keys and
    /// values in one projection, also where there are fewer key heads than query heads.
    ///
    /// PyTorch: `torch.cat(.., dim=0)` of ours is theirs.
    #[doc(alias = "cat")]
    pub fn stacked(self) -> Self {
        self.part(0, None)
    }

    /// As many columns of theirs as ours has, behind those of the rule before.
    ///
    /// PyTorch: `torch.cat(.., dim=1)` of ours is theirs.
    #[doc(alias = "cat")]
    pub fn side_by_side(self) -> Self {
        self.part(1, None)
    }

    /// Their rotary embedding turns the coordinates `2i` and `2i + 1` of each of these heads, as the files of Meta's Llama have
    /// it; ours turns `i` and `i + d / 2`.
    ///
    /// PyTorch: `tensor.view(heads, d // 2, 2, ..).transpose(1, 2).reshape(tensor.shape)`.
    pub fn interleaved(self, heads: usize) -> Self {
        self.ordered(heads, true)
    }

    /// The reverse of [`interleaved`](Self::interleaved): theirs turns `i` and `i + d / 2`, as `position = rope` does, and a module
    /// of yours `2i` and `2i + 1`.
    ///
    /// PyTorch: `tensor.view(heads, 2, d // 2, ..).transpose(1, 2).reshape(tensor.shape)`.
    pub fn halves(self, heads: usize) -> Self {
        self.ordered(heads, false)
    }

    fn part(mut self, axis: usize, range: Option<Range<usize>>) -> Self {
        self.part = Some(Part { axis, range });
        self
    }

    fn ordered(mut self, count: usize, interleaved: bool) -> Self {
        self.heads = Some(Heads { count, interleaved });
        self
    }
}

impl Heads {
    /// The row of theirs for each of ours.
    pub(super) fn order(self, rows: usize) -> Vec<usize> {
        let width = rows / self.count;
        let half = width / 2;
        let within = |i: usize| {
            if self.interleaved {
                2 * (i % half) + i / half
            } else {
                i / 2 + half * (i % 2)
            }
        };
        (0..rows)
            .map(|row| row / width * width + within(row % width))
            .collect()
    }

    /// Why these rows cannot be put in order, if they cannot.
    pub(super) fn refuses(self, shape: &[usize]) -> Option<String> {
        let Self { count, .. } = self;
        let Some(&rows) = shape.first() else {
            return Some("it has no rows that could be those of heads".into());
        };
        let pairs = count.checked_mul(2);
        let fits = pairs.is_some_and(|pairs| pairs > 0 && rows.is_multiple_of(pairs));
        (!fits).then(|| format!("its {rows} rows are not pairs of {count} heads"))
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <- {}", self.ours, self.theirs)?;
        for axis in &self.squeezed {
            write!(f, ", without axis {axis}")?;
        }
        if self.transposed {
            f.write_str(", transposed")?;
        }
        if let Some(Part { axis, range }) = &self.part {
            let what = ["rows", "columns"][*axis];
            match range {
                Some(range) => write!(f, ", {what} {range:?}")?,
                None => write!(f, ", the next {what}")?,
            }
        }
        if let Some(Heads { count, interleaved }) = self.heads {
            let order = if interleaved {
                "interleaved"
            } else {
                "in halves"
            };
            write!(f, ", {order} in {count} heads")?;
        }
        Ok(())
    }
}
