//! A rule of a map.

use std::{
    fmt::{self, Display},
    ops::Range,
};

/// A rule of a [`WeightMap`](super::WeightMap): the name of a tensor in the model (ours), its name in the file (theirs), and the
/// operations that turn their tensor into ours.
///
/// In both names, `{}` matches an index, and a `*` at the end matches the rest of the name. If several rules match a name, those
/// without `*` take precedence, then the longest.
///
/// The operations always apply in this order: remove axes of length 1, transpose, take a part, reorder the rows of the heads. With
/// [`per_head`](Self::per_head) they apply to the tensor of each head, and these are joined then.
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
    /// Whether the operations that follow apply to what stands behind the first axis, which counts experts.
    pub(super) each_expert: bool,
    pub(super) transposed: bool,
    pub(super) part: Option<Part>,
    pub(super) heads: Option<Heads>,
    pub(super) split: Option<Split>,
}

/// Ours in as many equal parts as there are heads, each of which is a tensor of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) heads: usize,
    /// Our axis along which the heads stand side by side.
    pub(super) axis: usize,
    /// Whether a part is an index of our first axis, which their tensors lack: they are those of experts.
    pub(super) of_experts: bool,
}

/// The part of their tensor that ours is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Our axis along which it is a part.
    pub(super) axis: usize,
    /// The range of indices; `None` if it follows the part of the rule before.
    pub(super) range: Option<Range<usize>>,
    /// Their axis is cut into so many equal groups, and each has such a part.
    pub(super) groups: usize,
}

/// The order of the rows of each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) count: usize,
    /// Whether the two coordinates of a pair are adjacent in theirs and half a head apart in ours; else the reverse.
    pub(super) interleaved: bool,
}

impl Rule {
    /// Maps the tensor `theirs` unchanged.
    pub fn new(ours: impl Into<String>, theirs: impl Into<String>) -> Self {
        Self {
            ours: ours.into(),
            theirs: theirs.into(),
            optional: false,
            squeezed: Vec::new(),
            each_expert: false,
            transposed: false,
            part: None,
            heads: None,
            split: None,
        }
    }

    /// Allows a model without this tensor. If the model has it, the file must have it as well; to keep the initial values of a tensor of
    /// the model, use [`fresh`](super::WeightMap::fresh).
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Transposes their tensor: the weight of a `Conv1D` of GPT-2, a kernel of Flax. A tensor with one axis does not change, so a rule for
    /// `c_attn.*` applies to the weight and to the bias.
    ///
    /// PyTorch: `tensor.T`.
    pub fn transposed(mut self) -> Self {
        self.transposed = true;
        self
    }

    /// Removes this axis of theirs, which has length 1.
    ///
    /// PyTorch: `tensor.squeeze(axis)`.
    pub fn squeezed(mut self, axis: usize) -> Self {
        self.squeezed.push(axis);
        self
    }

    /// The first axis of both tensors counts experts, and the other operations apply to the tensor of each one: with [`transposed`](Self::transposed)
    /// theirs are the transposed weights of a `grouped_linear`.
    ///
    /// PyTorch: `tensor.mT` of a tensor `[experts, rows, columns]`.
    ///
    /// ```
    /// use attn::checkpoint::layout::Rule;
    ///
    /// let rule = Rule::new("moe.down_proj.weight", "mlp.experts.down_proj").each_expert().transposed();
    /// assert_eq!(rule.to_string(), "moe.down_proj.weight <- mlp.experts.down_proj, each expert transposed");
    /// ```
    #[doc(alias = "mT")]
    pub fn each_expert(mut self) -> Self {
        self.each_expert = true;
        self
    }

    /// Takes these rows of theirs. The rules for a tensor together must take every row exactly once.
    ///
    /// PyTorch: `tensor[range]`.
    pub fn rows(self, range: Range<usize>) -> Self {
        self.part(0, Some(range), 1)
    }

    /// Takes these columns of theirs.
    ///
    /// PyTorch: `tensor[:, range]`.
    pub fn columns(self, range: Range<usize>) -> Self {
        self.part(1, Some(range), 1)
    }

    /// Takes the rows of theirs that follow those of the rule before, as many as ours has: queries, keys and values in one projection,
    /// also with fewer key heads than query heads.
    ///
    /// PyTorch: theirs is `torch.cat(.., dim=0)` of ours.
    #[doc(alias = "cat")]
    pub fn stacked(self) -> Self {
        self.part(0, None, 1)
    }

    /// The same in each of these equal groups of rows: the query, key and value of a head stand behind each other, and then those of the next
    /// head, as in the `query_key_value` of GPT-NeoX and BLOOM. With fewer key heads than query heads a group is a key head with its queries,
    /// as in Falcon.
    ///
    /// PyTorch: theirs is `torch.cat([t.view(groups, -1, t.shape[-1]) for t in (q, k, v)], dim=1).flatten(0, 1)`.
    #[doc(alias = "cat")]
    pub fn stacked_in_groups(self, groups: usize) -> Self {
        self.part(0, None, groups)
    }

    /// Takes the columns of theirs that follow those of the rule before, as many as ours has.
    ///
    /// PyTorch: theirs is `torch.cat(.., dim=1)` of ours.
    #[doc(alias = "cat")]
    pub fn side_by_side(self) -> Self {
        self.part(1, None, 1)
    }

    /// Converts from interleaved rotary pairs: their rotary embedding rotates the coordinates `2i` and `2i + 1` of each of these heads, as
    /// in the files of Meta's Llama; ours rotates `i` and `i + d / 2`.
    ///
    /// PyTorch: `tensor.view(heads, d // 2, 2, ..).transpose(1, 2).reshape(tensor.shape)`.
    pub fn interleaved(self, heads: usize) -> Self {
        self.ordered(heads, true)
    }

    /// The inverse of [`interleaved`](Self::interleaved): their rotary embedding rotates `i` and `i + d / 2`, as `position = rope` does, and
    /// your module rotates `2i` and `2i + 1`.
    ///
    /// PyTorch: `tensor.view(heads, 2, d // 2, ..).transpose(1, 2).reshape(tensor.shape)`.
    pub fn halves(self, heads: usize) -> Self {
        self.ordered(heads, false)
    }

    /// Joins the tensors of the heads: theirs is a module for each of these heads, and `{head}` in the name is its index. The first rows of
    /// ours are those of head 0.
    ///
    /// PyTorch: `torch.cat([head.query.weight for head in heads], dim=0)`.
    ///
    /// ```
    /// use attn::checkpoint::layout::Rule;
    ///
    /// let rule = Rule::new("blocks.{}.attention.q_proj.*", "blocks.{}.sa.heads.{head}.query.*").per_head(6);
    /// assert_eq!(rule.to_string(), "blocks.{}.attention.q_proj.* <- blocks.{}.sa.heads.{head}.query.*, rows of 6 heads");
    /// ```
    #[doc(alias = "cat")]
    pub fn per_head(self, heads: usize) -> Self {
        self.split(heads, 0)
    }

    /// The same for columns: the output projection of a module that multiplies each head by a matrix of its own, and adds the results. It
    /// has one bias, or none, since only a matrix has columns.
    ///
    /// PyTorch: `torch.cat([head.proj.weight for head in heads], dim=1)`.
    #[doc(alias = "cat")]
    pub fn columns_per_head(self, heads: usize) -> Self {
        self.split(heads, 1)
    }

    /// Stacks the tensors of experts along our first axis, as a `grouped_linear` has them: theirs is a module for each of these experts, and
    /// `{expert}` in the name is its index.
    ///
    /// PyTorch: `torch.stack([expert.w1.weight for expert in experts])`.
    ///
    /// ```
    /// use attn::checkpoint::layout::Rule;
    ///
    /// let rule = Rule::new("blocks.{}.moe.w1.*", "layers.{}.block_sparse_moe.experts.{expert}.w1.*").per_expert(8);
    /// assert_eq!(rule.to_string(), "blocks.{}.moe.w1.* <- layers.{}.block_sparse_moe.experts.{expert}.w1.*, of 8 experts");
    /// ```
    #[doc(alias = "stack")]
    pub fn per_expert(mut self, experts: usize) -> Self {
        self.split = Some(Split {
            heads: experts,
            axis: 0,
            of_experts: true,
        });
        self
    }

    fn split(mut self, heads: usize, axis: usize) -> Self {
        self.split = Some(Split {
            heads,
            axis,
            of_experts: false,
        });
        self
    }

    fn part(mut self, axis: usize, range: Option<Range<usize>>, groups: usize) -> Self {
        self.part = Some(Part {
            axis,
            range,
            groups,
        });
        self
    }

    fn ordered(mut self, count: usize, interleaved: bool) -> Self {
        self.heads = Some(Heads { count, interleaved });
        self
    }
}

impl Split {
    /// The index of a head, or of an expert, in the name of a tensor of theirs.
    pub(super) const INDICES: [&str; 2] = ["{head}", "{expert}"];

    /// The name of the index of its parts.
    pub(super) fn index(self) -> &'static str {
        Self::INDICES[usize::from(self.of_experts)]
    }

    /// The shape of the part of a head, or the reason why there is none.
    pub(super) fn shape(self, ours: &[usize]) -> Result<Vec<usize>, String> {
        let Self {
            heads,
            axis,
            of_experts,
        } = self;
        if of_experts {
            return match ours {
                [experts, rest @ ..] if *experts == heads && !rest.is_empty() => Ok(rest.to_vec()),
                _ => Err(format!("its first axis does not count {heads} experts")),
            };
        }
        let what = ["rows", "columns"][axis];
        let Some(&len) = ours.get(axis) else {
            return Err(format!("it has no {what} that could be those of heads"));
        };
        if heads == 0 || !len.is_multiple_of(heads) {
            return Err(format!("its {len} {what} are not those of {heads} heads"));
        }
        let mut shape = ours.to_vec();
        shape[axis] = len / heads;
        Ok(shape)
    }
}

impl Heads {
    /// The row of theirs for each row of ours.
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

    /// The reason why rows of this shape cannot be reordered, if there is one.
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
        match (self.each_expert, self.transposed) {
            (false, false) => {}
            (false, true) => f.write_str(", transposed")?,
            (true, false) => f.write_str(", each expert")?,
            (true, true) => f.write_str(", each expert transposed")?,
        }
        if let Some(Part {
            axis,
            range,
            groups,
        }) = &self.part
        {
            let what = ["rows", "columns"][*axis];
            match range {
                Some(range) => write!(f, ", {what} {range:?}")?,
                None => write!(f, ", the next {what}")?,
            }
            if *groups != 1 {
                write!(f, " in each of {groups} groups")?;
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
        match self.split {
            Some(Split {
                heads,
                of_experts: true,
                ..
            }) => write!(f, ", of {heads} experts")?,
            Some(Split { heads, axis, .. }) => {
                let what = ["rows", "columns"][axis];
                write!(f, ", {what} of {heads} heads")?;
            }
            None => {}
        }
        Ok(())
    }
}
