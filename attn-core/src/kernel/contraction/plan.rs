//! The matrices of a product: which axes of memory are their rows, columns and depth.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Axes, Product};

/// How a product is computed.
#[derive(Debug)]
pub(super) enum Layout {
    /// The product of the second operand and the first one.
    Swapped,
    /// With a tensor, by its index, whose axes stand in this order.
    Copied(usize, Axes),
    Matrices(Plan),
    Pointwise(Pointwise),
}

/// Axes of memory that are one, the last of them first: their size, and the distance of its elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) size: usize,
    pub(super) stride: usize,
}

/// An axis in the two operands: its size, and the distances of its elements, 0 where an operand lacks the axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub(super) size: usize,
    pub(super) strides: [usize; 2],
}

/// Axes of both operands. Few of them need no heap memory.
pub(super) type Pairs = SmallVec<[Pair; 6]>;

/// The result is the matrix `[outer * rows, inner * cols]`, and for every index of the outer and the inner axes a product of matrices.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) outer: Pairs,
    pub(super) inner: Pairs,
    /// The axes of the first operand.
    pub(super) rows: Step,
    /// The axes of the second operand.
    pub(super) cols: Step,
    /// The axes of both.
    pub(super) depth: [Step; 2],
}

/// Every number of the result is a sum of products of its own.
#[derive(Debug)]
pub(super) struct Pointwise {
    /// The axes of the result.
    pub(super) of_result: Pairs,
    /// The axes that are summed over.
    pub(super) depth: Pairs,
    pub(super) direction: Direction,
}

/// The contiguous axes of both operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// So many numbers of the result.
    Result(usize),
    /// All that is summed.
    Depth,
}

impl Layout {
    pub(super) fn of(product: &Product<'_>) -> Self {
        let [rows, cols] = [product.shared(0, 1, false), product.shared(1, 0, false)];
        if rows.is_empty() && cols.is_empty() {
            return pointwise(product);
        }
        match product.axes[2].last() {
            Some(last) if cols.contains(last) => matrices(product),
            Some(last) if rows.contains(last) => Self::Swapped,
            _ => {
                let batch = product.axes[2]
                    .iter()
                    .filter(|axis| product.has(0, **axis) && product.has(1, **axis));
                Self::Copied(2, batch.chain(&rows).chain(&cols).copied().collect())
            }
        }
    }
}

/// The result ends in columns.
fn matrices(product: &Product<'_>) -> Layout {
    let to = &product.axes[2];
    let is_col = |axis: &usize| !product.has(0, *axis);
    let is_row = |axis: &usize| !product.has(1, *axis);
    let first_col = to.len() - to.iter().rev().take_while(|axis| is_col(axis)).count();
    let rows = longest_run(product, &to[..first_col], is_row);
    let (outer, others) = to[..first_col].split_at(rows.start);
    let (rows, inner) = others.split_at(rows.len());
    let cols = &to[first_col..];
    let loops: Axes = outer.iter().chain(inner).copied().collect();
    let orders = [product.shared(0, 2, false), product.shared(1, 2, false)];
    let unreadable = |depth: &Axes| -> [Option<Axes>; 2] {
        let sides = [[rows, depth], [depth, cols]];
        [0, 1].map(|operand| {
            let sides = sides[operand];
            (!is_readable(product, operand, sides)).then(|| {
                let loops = loops.iter().filter(|axis| product.has(operand, **axis));
                loops.chain(sides[0]).chain(sides[1]).copied().collect()
            })
        })
    };
    let copied = |depth: &&Axes| -> usize {
        let copies = unreadable(depth).into_iter().enumerate();
        copies
            .map(|(operand, copy)| copy.map_or(0, |_| product.len_of(operand)))
            .sum()
    };
    let depth = orders.iter().min_by_key(copied).unwrap_or(&orders[0]);
    for (operand, axes) in unreadable(depth).into_iter().enumerate() {
        if let Some(axes) = axes {
            return Layout::Copied(operand, axes);
        }
    }
    let merged = |operand, axes| merged(product, operand, axes).unwrap_or(ONE);
    Layout::Matrices(Plan {
        outer: pairs(product, outer),
        inner: pairs(product, inner),
        rows: merged(0, rows),
        cols: merged(1, cols),
        depth: [merged(0, depth), merged(1, depth)],
    })
}

fn pointwise(product: &Product<'_>) -> Layout {
    let to = &product.axes[2];
    let of_result = pairs(product, to);
    // The last axes of the result that are the last ones of both operands.
    let same = |place: usize| {
        let from_end = to.len() - place;
        product.axes[..2]
            .iter()
            .all(|axes| axes.len() >= from_end && axes[axes.len() - from_end..] == to[place..])
    };
    let start = (0..=to.len())
        .find(|place| same(*place))
        .unwrap_or(to.len());
    let run = product.count(&to[start..]);
    let summed = product.shared(0, 2, false);
    if run > 1 || summed.is_empty() && to.is_empty() {
        return Layout::Pointwise(Pointwise {
            of_result,
            depth: pairs(product, &summed),
            direction: Direction::Result(run),
        });
    }
    for operand in [0, 1] {
        let is_last = merged(product, operand, &summed)
            .is_some_and(|step| step.stride == 1 || step.size == 1);
        if !is_last {
            return Layout::Copied(operand, to.iter().chain(&summed).copied().collect());
        }
    }
    Layout::Pointwise(Pointwise {
        of_result,
        depth: pairs(product, &summed),
        direction: Direction::Depth,
    })
}

const ONE: Step = Step { size: 1, stride: 1 };

/// The range of neighbours with the most elements that are all of a kind.
fn longest_run(
    product: &Product<'_>,
    axes: &[usize],
    is_it: impl Fn(&usize) -> bool,
) -> Range<usize> {
    let mut longest = 0..0;
    let mut start = 0;
    for end in 1..=axes.len() {
        if !is_it(&axes[end - 1]) {
            start = end;
        } else if product.count(&axes[start..end]) > product.count(&axes[longest.clone()]) {
            longest = start..end;
        }
    }
    longest
}

/// Whether an operand is matrices with these rows and columns, where one of both is contiguous.
fn is_readable(product: &Product<'_>, operand: usize, sides: [&[usize]; 2]) -> bool {
    match sides.map(|side| merged(product, operand, side)) {
        [Some(rows), Some(cols)] => [rows, cols]
            .iter()
            .any(|step| step.stride == 1 || step.size == 1),
        _ => false,
    }
}

/// Axes as one, if they are one in the memory of an operand.
fn merged(product: &Product<'_>, operand: usize, axes: &[usize]) -> Option<Step> {
    let pairs = pairs(product, axes);
    let step = |pair: &Pair| Step {
        size: pair.size,
        stride: pair.strides[operand],
    };
    let mut merged = pairs.last().map_or(ONE, step);
    for outer in pairs.iter().rev().skip(1).map(step) {
        if outer.stride != merged.size * merged.stride {
            return None;
        }
        merged.size *= outer.size;
    }
    Some(merged)
}

fn pairs(product: &Product<'_>, axes: &[usize]) -> Pairs {
    let stride = |operand: usize, axis: usize| {
        let of = &product.axes[operand];
        let place = of.iter().position(|other| *other == axis);
        place.map_or(0, |place| product.count(&of[place + 1..]))
    };
    let pairs = axes.iter().map(|&axis| Pair {
        size: product.sizes[axis],
        strides: [stride(0, axis), stride(1, axis)],
    });
    pairs.collect()
}

/// The offsets in both operands of the element with this index.
pub(super) fn offsets(axes: &[Pair], mut index: usize) -> [usize; 2] {
    let mut offsets = [0, 0];
    for axis in axes.iter().rev() {
        let place = index % axis.size;
        index /= axis.size;
        for (offset, stride) in offsets.iter_mut().zip(axis.strides) {
            *offset += place * stride;
        }
    }
    offsets
}

/// The number of elements with these axes.
pub(super) fn count(axes: &[Pair]) -> usize {
    axes.iter().map(|axis| axis.size).product()
}
