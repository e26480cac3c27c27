//! The layout of a file tensor that consists of one or more model tensors, or of the parts of these that belong to one head.

use std::ops::Range;

use super::{MapProblem, Rule, rule::Split, view::View};
use crate::checkpoint::{TensorType, archive::Expected};

/// A tensor of a file.
#[derive(Debug)]
pub(super) struct FileTensor {
    pub(super) name: String,
    pub(super) described: TensorType,
    pub(super) optional: bool,
    /// The tensors of the model that it consists of.
    pub(super) parts: Vec<(String, TensorType)>,
}

/// The location in a file of a model tensor, or of the part of a head.
#[derive(Debug)]
pub(super) struct TensorSource {
    pub(super) theirs: String,
    /// Its location in the file tensor; `None` if it is the whole file tensor, unchanged.
    pub(super) view: Option<View>,
    /// The location of the part in the model tensor; `None` if it is the whole.
    pub(super) part: Option<View>,
}

/// A rule, and the model tensor that it maps, or the part of a head.
pub(super) struct RuleMatch<'a> {
    pub(super) rule: &'a Rule,
    pub(super) tensor: &'a Expected,
    /// The shape of what is mapped.
    shape: Vec<usize>,
    /// The location of the part in the model tensor.
    part: Option<View>,
}

impl<'a> RuleMatch<'a> {
    /// The whole tensor, or its parts, head by head.
    pub(super) fn all(rule: &'a Rule, tensor: &'a Expected) -> Result<Vec<Self>, MapProblem> {
        let ours = &tensor.described.shape;
        let Some(split) = rule.split else {
            let (shape, part) = (ours.clone(), None);
            return Ok(vec![Self {
                rule,
                tensor,
                shape,
                part,
            }]);
        };
        let shape = split
            .shape(ours)
            .map_err(|reason| refused(rule, tensor, reason))?;
        let heads = (0..split.heads).map(|head| Self {
            rule,
            tensor,
            shape: shape.clone(),
            part: Some(part_of_head(split, head, &shape, ours)),
        });
        Ok(heads.collect())
    }

    fn described(&self) -> TensorType {
        TensorType {
            dtype: self.tensor.described.dtype,
            shape: self.shape.clone(),
        }
    }
}

/// The location of the part of a head or of an expert, of this shape, in a model tensor.
fn part_of_head(split: Split, head: usize, shape: &[usize], ours: &[usize]) -> View {
    // The tensor of an expert lacks our first axis.
    let missing = ours.len() - shape.len();
    let stride = |axis: usize| ours[axis + 1..].iter().product::<usize>();
    let axes = shape.iter().enumerate().map(|(axis, &len)| {
        let start = match axis == split.axis {
            true if split.of_experts => head * stride(0),
            true => head * len * stride(axis),
            false => 0,
        };
        let stride = stride(axis + missing);
        (0..len).map(|i| start + i * stride).collect()
    });
    View {
        axes: axes.collect(),
    }
}

fn refused(rule: &Rule, tensor: &Expected, reason: String) -> MapProblem {
    MapProblem::Shape {
        rule: rule.to_string(),
        tensor: tensor.name.clone(),
        described: tensor.described.clone(),
        reason,
    }
}

/// A model tensor in the axes of its file tensor.
struct PlacedTensor {
    /// The shape of the file tensor if it contained this tensor alone.
    shape: Vec<usize>,
    /// The axis of the file tensor for each axis of the model tensor.
    axes: Vec<usize>,
    /// The axis of the file tensor along which this tensor is a part.
    along: Option<usize>,
    /// The range along that axis, in each of the groups.
    range: Range<usize>,
    groups: usize,
}

/// The layout of a file tensor, and the locations of its model tensors in it.
pub(super) fn assemble(
    name: &str,
    given: Vec<RuleMatch<'_>>,
) -> Result<(FileTensor, Vec<TensorSource>), MapProblem> {
    let mut placed: Vec<PlacedTensor> = Vec::new();
    for given in &given {
        let behind = placed.last().map_or(0, |before| before.range.end);
        placed.push(place(given, behind)?);
    }
    let parts = given
        .iter()
        .map(|given| (given.tensor.name.clone(), given.described()));
    let parts: Vec<_> = parts.collect();
    let mut shape = placed[0].shape.clone();
    if let Some(axis) = placed[0].along {
        shape[axis] = check_parts(name, &parts, &placed, axis)? * placed[0].groups;
    } else if let [(one, _), (other, _), ..] = &parts[..] {
        return Err(MapProblem::Overlap {
            theirs: name.into(),
            ours: [one.clone(), other.clone()],
        });
    }
    let theirs = FileTensor {
        name: name.into(),
        described: TensorType {
            dtype: given[0].tensor.described.dtype,
            shape: shape.clone(),
        },
        optional: given.iter().all(|given| given.tensor.optional),
        parts,
    };
    let sources = placed
        .iter()
        .zip(given)
        .map(|(placed, given)| TensorSource {
            theirs: name.into(),
            view: (!given.rule.is_plain()).then(|| view(given.rule, placed, &shape)),
            part: given.part,
        });
    Ok((theirs, sources.collect()))
}

/// Places a model tensor in its file tensor: the inverse of the rule.
fn place(given: &RuleMatch<'_>, behind: usize) -> Result<PlacedTensor, MapProblem> {
    let (rule, ours) = (given.rule, &given.shape);
    let refused = |reason: String| refused(rule, given.tensor, reason);
    let first = rule.first_axis();
    let Some(behind_experts) = ours.get(first..) else {
        return Err(refused("it has no axis of experts".into()));
    };
    if let Some(reason) = rule.heads.and_then(|heads| heads.refuses(behind_experts)) {
        return Err(refused(reason));
    }
    let rank = ours.len() + rule.squeezed.len();
    let mut axes: Vec<usize> = (0..rank)
        .filter(|axis| !rule.squeezed.contains(axis))
        .collect();
    if axes.len() != ours.len() {
        let axes = &rule.squeezed;
        return Err(refused(format!(
            "theirs cannot be without the axes {axes:?}"
        )));
    }
    if rule.transposed {
        axes[first..].reverse();
    }
    let mut shape = vec![1; rank];
    for (&axis, &len) in axes.iter().zip(ours) {
        shape[axis] = len;
    }
    let mut along = None;
    let mut range = 0..0;
    let mut groups = 1;
    if let Some(part) = &rule.part {
        let axis = first + part.axis;
        let (Some(&len), Some(&theirs)) = (ours.get(axis), axes.get(axis)) else {
            return Err(refused(format!("it has no axis {axis}")));
        };
        groups = part.groups;
        if groups == 0 || !len.is_multiple_of(groups) {
            return Err(refused(format!(
                "its {len} rows are not those of {groups} groups"
            )));
        }
        let len_of_group = len / groups;
        let taken = part.range.clone();
        range = taken.unwrap_or(behind..behind + len_of_group);
        along = Some(theirs);
        if range.end.checked_sub(range.start) != Some(len_of_group) {
            return Err(refused(format!("its axis {axis} has the length {len}")));
        }
    }
    Ok(PlacedTensor {
        shape,
        axes,
        along,
        range,
        groups,
    })
}

/// Checks that the parts cover the tensor exactly once. Returns its length along the axis.
fn check_parts(
    name: &str,
    parts: &[(String, TensorType)],
    placed: &[PlacedTensor],
    axis: usize,
) -> Result<usize, MapProblem> {
    let across = |placed: &PlacedTensor| {
        let mut shape = placed.shape.clone();
        if let Some(len) = shape.get_mut(axis) {
            *len = 0;
        }
        (placed.along, placed.groups, shape)
    };
    for (other, part) in placed.iter().zip(parts) {
        if across(other) != across(&placed[0]) || part.1.dtype != parts[0].1.dtype {
            return Err(MapProblem::Uneven {
                theirs: name.into(),
                ours: Box::new([parts[0].clone(), part.clone()]),
            });
        }
    }
    let mut order: Vec<_> = placed
        .iter()
        .map(|placed| &placed.range)
        .zip(parts)
        .collect();
    order.sort_by_key(|(range, _)| (range.start, range.end));
    let mut end = 0;
    let mut before = &order[0].1.0;
    for (range, (ours, _)) in order {
        if range.start > end {
            return Err(MapProblem::Gap {
                theirs: name.into(),
                axis,
                range: end..range.start,
            });
        }
        if range.start < end {
            return Err(MapProblem::Overlap {
                theirs: name.into(),
                ours: [before.clone(), ours.clone()],
            });
        }
        (end, before) = (range.end, ours);
    }
    Ok(end)
}

/// The location of a model tensor in a file tensor of this shape.
fn view(rule: &Rule, placed: &PlacedTensor, shape: &[usize]) -> View {
    let axes = placed.axes.iter().enumerate().map(|(ours, &theirs)| {
        let stride: usize = shape[theirs + 1..].iter().product();
        let (start, groups) = match placed.along {
            Some(along) if along == theirs => (placed.range.start, placed.groups),
            _ => (0, 1),
        };
        let len = placed.shape[theirs];
        let order = match rule.heads {
            Some(heads) if ours == rule.first_axis() => heads.order(len),
            _ => (0..len).collect(),
        };
        let (len_of_group, len_of_theirs) = (len / groups, shape[theirs] / groups);
        let place = |i: usize| i / len_of_group * len_of_theirs + start + i % len_of_group;
        order.into_iter().map(|i| place(i) * stride).collect()
    });
    View {
        axes: axes.collect(),
    }
}

impl Rule {
    /// The first axis of ours that the operations apply to.
    fn first_axis(&self) -> usize {
        usize::from(self.each_expert)
    }

    /// Whether the rule only renames, a tensor or that of each head.
    fn is_plain(&self) -> bool {
        let Self {
            squeezed,
            each_expert: _,
            transposed,
            part,
            heads,
            split: _,
            ours: _,
            theirs: _,
            optional: _,
        } = self;
        squeezed.is_empty() && !transposed && part.is_none() && heads.is_none()
    }
}
