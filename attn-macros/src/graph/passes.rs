//! Passes over the block of a layer, for the fused form: each finds a pattern, and puts what is faster in its place. The results stay
//! the same.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::block::LayerBlock;
use super::{Operand, Projected};
use crate::model::graph::{Node, Step, Value, ValueId, View};
use crate::model::types::{Axis, Type};
use crate::ops::attention_layer::{Attend, HeadTransform, LayerOp, Linear, TransformHeads};

/// Makes queries, keys and values of an `attend` projections of its inputs, where they are.
pub(crate) fn project_inputs(layer: &mut LayerBlock, operands: &[Operand]) {
    if operands.is_empty() {
        return;
    }
    let vectors = std::mem::take(&mut layer.inputs);
    let names = ["x", "context", "source"];
    let mut projections = Vec::new();
    let (vectors, others) = vectors.split_at(operands.len());
    for (vector, operand) in vectors.iter().copied().zip(operands) {
        let Operand::Projected(Projected {
            input,
            field,
            width,
            ..
        }) = operand
        else {
            layer.inputs.push(vector);
            continue;
        };
        if *input == layer.inputs.len() {
            let ty = layer.value(vector).ty.ending_in(width.clone());
            let x = layer.add_value(names[*input], ty);
            layer.inputs.push(x);
        }
        projections.push(Step::Node(Node {
            op: Rc::new(Linear::new(field)) as Rc<dyn LayerOp>,
            operands: vec![layer.inputs[*input]],
            result: vector,
            others: Vec::new(),
            name: None,
        }));
    }
    layer.inputs.extend(others);
    layer.body.steps.splice(0..0, projections);
}

/// Splits the functions of the scores into the parts that the kernels take. `None` if these do not know what the functions read.
pub(crate) fn split_scores(layer: &mut LayerBlock) -> Option<()> {
    for node in layer.nodes_mut() {
        if let Some(attention) = node.op.description().attention {
            let (attention, operands) = attention.split(&node.operands)?;
            (node.op, node.operands) = (Rc::new(attention), operands);
        }
    }
    Some(())
}

/// Vectors of heads become columns of a matrix, where the kernels find them: splitting and merging heads moves nothing.
pub(crate) fn flatten_heads(layer: &mut LayerBlock) {
    let mut replaced: Vec<(ValueId, ValueId)> = Vec::new();
    let origin = |replaced: &[(ValueId, ValueId)], id: ValueId| {
        let mut replaced = replaced.iter();
        replaced
            .find(|(view, _)| *view == id)
            .map_or(id, |(_, of)| *of)
    };
    for node in layer.nodes_mut() {
        for operand in &mut node.operands {
            *operand = origin(&replaced, *operand);
        }
        if node.op.description().is_view {
            replaced.push((node.result, node.operands[0]));
        }
    }
    layer.results = layer.results.map(|result| origin(&replaced, result));
    let is_view = |step: &Step<dyn LayerOp>| matches!(step, Step::Node(node) if node.op.description().is_view);
    layer.body.steps.retain(|step| !is_view(step));
    for value in &mut layer.values {
        value.ty = columns(&value.ty);
    }
}

/// `[batch, len, heads width]` of `[batch, heads, len, width]`.
fn columns(ty: &Type) -> Type {
    match ty.axes.as_slice() {
        [batch, Axis::Size(heads), len, Axis::Size(width)] => {
            let columns = Axis::Size(heads.times(width));
            Type::floats(vec![batch.clone(), len.clone(), columns])
        }
        _ => ty.clone(),
    }
}

/// Projections of one value become one product: their results are parts of its result.
pub(crate) fn pack_projections(layer: &mut LayerBlock) {
    for x in operands_of_projections(layer) {
        let reads_x = |node: &&Node<dyn LayerOp>| is_projection(node) && node.operands == [x];
        let projections = layer.nodes().filter(reads_x);
        let packed: Vec<ValueId> = projections.map(|node| node.result).collect();
        // The gradient of what a product reads is a matrix by itself.
        let is_projected =
            |node: &Node<dyn LayerOp>| is_projection(node) && packed.contains(&node.operands[0]);
        if packed.len() < 2 || layer.nodes().any(is_projected) {
            continue;
        }
        let projections = layer.nodes().filter(reads_x);
        let fields = projections.filter_map(|node| node.op.description().linear);
        let fields = fields.flat_map(|linear| linear.fields.iter().copied());
        let product = Linear {
            fields: fields.collect(),
            leaves_bias: false,
        };
        let whole = side_by_side(layer, &packed);
        let product = Step::Node(Node {
            op: Rc::new(product) as Rc<dyn LayerOp>,
            operands: vec![x],
            result: whole,
            others: Vec::new(),
            name: None,
        });
        let is_packed = |step: &Step<dyn LayerOp>| matches!(step, Step::Node(node) if packed.contains(&node.result));
        let first = layer.body.steps.iter().position(is_packed).unwrap_or(0);
        layer.body.steps.retain(|step| !is_packed(step));
        layer.body.steps.insert(first, product);
    }
}

/// The operands of projections, each once.
fn operands_of_projections(layer: &LayerBlock) -> Vec<ValueId> {
    let projections = layer.nodes().filter(|node| is_projection(node));
    let mut operands: Vec<_> = projections.map(|node| node.operands[0]).collect();
    operands.sort_unstable_by_key(|id| id.0);
    operands.dedup();
    operands
}

fn is_projection(node: &Node<dyn LayerOp>) -> bool {
    node.op.description().linear.is_some()
}

/// A new value, of which these are the parts.
fn side_by_side(layer: &mut LayerBlock, parts: &[ValueId]) -> ValueId {
    let whole = ValueId(layer.values.len());
    let values = parts.iter().map(|part| layer.value(*part));
    let names: Vec<_> = values.clone().map(|value| value.name.as_str()).collect();
    let widths = values.filter_map(|value| value.ty.width().cloned());
    let width = widths.reduce(|a, b| a.plus(&b));
    let first = &layer.value(parts[0]).ty;
    let ty = width.map_or_else(|| first.clone(), |width| first.ending_in(width));
    let name = names.join("_");
    layer.values.push(Value {
        source: name.clone(),
        name,
        ty,
        view: None,
        alias: None,
    });
    for (part, id) in parts.iter().enumerate() {
        layer.values[id.0].view = Some(View {
            of: whole,
            part: Some(part),
        });
    }
    whole
}

/// A norm and a rotation of queries and keys happen as attention loads them. Those that another operation reads are computed at once.
pub(crate) fn load_transforms(layer: &mut LayerBlock) {
    for index in 0..layer.body.steps.len() {
        let Step::Node(node) = &layer.body.steps[index] else {
            continue;
        };
        let description = node.op.description();
        let (op, operands): (Rc<dyn LayerOp>, _) = if let Some(last) = description.transform {
            let Some((x, first)) = transform_of(layer, node.operands[0]) else {
                continue;
            };
            let Some(how) = first.how.then(&last.how) else {
                continue;
            };
            let heads = last.heads.clone();
            (Rc::new(TransformHeads { heads, how }), vec![x])
        } else if let Some(attention) = description.attention {
            let (attention, operands) = with_transforms(layer, attention, &node.operands);
            (Rc::new(attention), operands)
        } else {
            continue;
        };
        if let Step::Node(node) = &mut layer.body.steps[index] {
            (node.op, node.operands) = (op, operands);
        }
    }
    remove_unread(layer);
}

/// The operand and the transform that a value is the result of.
fn transform_of(layer: &LayerBlock, id: ValueId) -> Option<(ValueId, &TransformHeads)> {
    let node = layer.nodes().find(|node| node.result == id)?;
    Some((node.operands[0], node.op.description().transform?))
}

/// Attention with the transforms of what it reads, and what it reads then.
fn with_transforms(
    layer: &LayerBlock,
    attention: &Attend,
    operands: &[ValueId],
) -> (Attend, Vec<ValueId>) {
    let mut attention = attention.clone();
    let mut operands = operands.to_vec();
    let vectors = attention.vectors_mut().iter_mut().zip(&mut operands);
    for (how, operand) in vectors {
        let transform = transform_of(layer, *operand);
        let all = transform.and_then(|(x, transform)| Some((x, transform.how.then(how)?)));
        if let Some((x, all)) = all {
            (*operand, *how) = (x, all);
        }
    }
    (attention, operands)
}

fn remove_unread(layer: &mut LayerBlock) {
    let block = layer.block();
    let operands = layer.nodes().flat_map(|node| &node.operands);
    let read = operands.map(|operand| block.memory(*operand).0);
    let read: BTreeSet<usize> = read.chain([layer.output().0]).collect();
    let is_read = |step: &Step<_>| match step {
        Step::Node(Node { result, .. }) => read.contains(&result.0),
        Step::Repeat(_) | Step::Scan(_) => true,
    };
    layer.body.steps.retain(is_read);
}

/// A product that only attention reads leaves its bias to it. Queries and keys are copied there anyway, and values then; a product
/// would have the bias written to its whole result first, and read again.
pub(crate) fn leave_biases(has_bias: impl Fn(&str) -> bool, layer: &mut LayerBlock) {
    let has_bias = |linear: &Linear| linear.fields.iter().any(|field| has_bias(field));
    let left = layer.nodes().filter(|node| {
        let linear = node.op.description().linear;
        linear.is_some_and(has_bias) && only_attention_reads(layer, node.result)
    });
    let left: Vec<ValueId> = left.map(|node| node.result).collect();
    let memories = (0..layer.values.len()).map(|id| layer.block().memory(ValueId(id)));
    let memories: Vec<ValueId> = memories.collect();
    for node in layer.nodes_mut() {
        let description = node.op.description();
        let op: Rc<dyn LayerOp> = if let Some(linear) = description.linear {
            Rc::new(Linear {
                fields: linear.fields.clone(),
                leaves_bias: left.contains(&node.result),
            })
        } else if let Some(attention) = description.attention {
            let mut attention = attention.clone();
            for (HeadTransform { bias, .. }, operand) in
                attention.loads.iter_mut().zip(&node.operands)
            {
                *bias = left.contains(&memories[operand.0]).then_some(*operand);
            }
            Rc::new(attention)
        } else {
            continue;
        };
        node.op = op;
    }
}

fn only_attention_reads(layer: &LayerBlock, id: ValueId) -> bool {
    let block = layer.block();
    let reads = |node: &&Node<dyn LayerOp>| {
        let mut operands = node.operands.iter();
        operands.any(|operand| block.memory(*operand) == id)
    };
    let mut readers = layer.nodes().filter(reads);
    id != layer.output() && readers.all(|node| node.op.description().attention.is_some())
}

/// Gives every value in memory a name of its own.
pub(crate) fn name_values(layer: &mut LayerBlock) {
    let results = layer.nodes().map(|node| node.result);
    let in_memory: Vec<ValueId> = layer.inputs.iter().copied().chain(results).collect();
    let mut names = BTreeSet::new();
    for id in in_memory {
        let name = &mut layer.values[id.0].name;
        while !names.insert(name.clone()) {
            name.push_str("_prepared");
        }
    }
}
