//! Values of an `attend` that are a part of its keys, as in multi-head latent attention: a session remembers the keys alone.

use super::graph::{Model, Node, ValueId};
use super::types::{Axis, Same};
use crate::graph::AttentionLayer;
use crate::graph::block::LayerBlock;
use crate::ops::{Fusion, Offset};
use crate::spec::Size;

/// Of every attention: the first column of its values among those of its keys, if they are columns of these wherever it stands.
pub(crate) fn latents(models: &[Model]) -> Vec<Option<Size>> {
    let attentions = models.first().map_or(0, |model| model.attentions.len());
    let of = |index| {
        let nodes = models.iter().flat_map(|model| {
            let nodes = model.grouped.nodes().into_iter();
            nodes.map(move |node| (model, node))
        });
        let mut starts = nodes.filter_map(|(model, node)| {
            let attention = node.attention()?;
            (attention.index == index).then(|| start(model, node))
        });
        let first = starts.next()??;
        let agree = starts.all(|start| start.is_some_and(|start| is_same(&start, &first)));
        agree.then_some(first)
    };
    (0..attentions).map(of).collect()
}

/// Whether one head of keys is remembered as the values are: none of their columns is changed on the way.
pub(crate) fn remembers_keys(layer: &AttentionLayer, start: &Size) -> bool {
    let Some(attention) = layer.fused.as_ref().and_then(LayerBlock::attention) else {
        return false;
    };
    let [_, keys, values] = attention.transforms();
    let is_behind = |dims: &Size| match (dims.value, start.value) {
        (Some(dims), Some(start)) => dims <= start,
        _ => is_same(dims, start),
    };
    let is_one_head = layer.spec.kv_heads.value == Some(1) && !layer.graph.cross;
    let is_kept = keys.bias.is_none() && keys.norm.is_none();
    let rope = keys.rope.as_ref();
    is_one_head && is_kept && rope.is_none_or(|rope| is_behind(&rope.dims)) && values.is_nothing()
}

fn is_same(a: &Size, b: &Size) -> bool {
    let same = Axis::Size(a.clone()).same(&Axis::Size(b.clone()));
    matches!(same, Same::Yes)
}

/// The first column of the values of an `attend` among those of its keys.
fn start(model: &Model, node: &Node) -> Option<Size> {
    let inputs = &node.attention()?.inputs;
    let [_, keys, values, ..] = *node.operands.as_slice() else {
        return None;
    };
    // Queries, keys and values, and no sequences or projections of them.
    let is_of_vectors = inputs.saves_result && inputs.len() == 3;
    is_of_vectors.then(|| column(model, keys, values))?
}

/// The first of the columns of `whole` that are those of `part`.
fn column(model: &Model, whole: ValueId, part: ValueId) -> Option<Size> {
    let [whole, part] = [whole, part].map(|id| rows(model, id));
    if whole == part {
        return Some(Size::known(0));
    }
    if let Some(node) = producer(model, part)
        && let Fusion::Slice(axis, Offset::FromStart(start)) = node.fusion()
        && is_last(model, part, axis)
        && rows(model, node.operands[0]) == whole
    {
        return Some(start.clone());
    }
    let node = producer(model, whole)?;
    match node.fusion() {
        Fusion::Concat(axis) if is_last(model, whole, axis) => {
            let [left, right] = *node.operands.as_slice() else {
                return None;
            };
            column(model, left, part).or_else(|| {
                let before = model.value(left).ty.width()?.clone();
                Some(before.plus(&column(model, right, part)?))
            })
        }
        _ => None,
    }
}

fn is_last(model: &Model, id: ValueId, axis: usize) -> bool {
    axis + 1 == model.value(id).ty.axes.len()
}

/// The value that is this one in another shape, with the same rows.
fn rows(model: &Model, id: ValueId) -> ValueId {
    let width = |id: ValueId| model.value(id).ty.width();
    let before = producer(model, id)
        .filter(|node| matches!(node.fusion(), Fusion::Reshape))
        .map(|node| node.operands[0]);
    match before
        .filter(|before| matches!((width(*before), width(id)), (Some(a), Some(b)) if is_same(a, b)))
    {
        Some(before) => rows(model, before),
        None => id,
    }
}

fn producer(model: &Model, id: ValueId) -> Option<&Node> {
    let nodes = model.grouped.nodes();
    nodes.into_iter().find(|node| node.result == id)
}
