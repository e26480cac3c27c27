//! Passes over the steps of a layer: each finds a pattern, and puts what is faster in its place. The results stay the same.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::steps::Steps;
use super::{Graph, Param};
use crate::model::graph::{Node, Step, Value, ValueId, View};
use crate::ops::fused::{Attend, HeadTransform, LayerOp, PackedLinear, TransformHeads};

/// Projections of one value become one product: their results are parts of its result.
pub(crate) fn pack_projections(steps: &mut Steps) {
    for x in operands_of_projections(steps) {
        let reads_x = |node: &&Node<dyn LayerOp>| is_projection(node) && node.operands == [x];
        let packed: Vec<ValueId> = steps
            .nodes()
            .filter(reads_x)
            .map(|node| node.result)
            .collect();
        // The gradient of what a product reads is a matrix by itself.
        let is_projected =
            |node: &Node<dyn LayerOp>| is_projection(node) && packed.contains(&node.operands[0]);
        if packed.len() < 2 || steps.nodes().any(is_projected) {
            continue;
        }
        let projections = steps.nodes().filter(reads_x);
        let fields = projections.filter_map(|node| node.op.properties().linear);
        let fields = fields.flat_map(|linear| linear.fields.iter().copied());
        let product = PackedLinear {
            fields: fields.collect(),
            leaves_bias: false,
        };
        let whole = side_by_side(steps, &packed);
        let product = Step::Node(Node {
            op: Rc::new(product) as Rc<dyn LayerOp>,
            operands: vec![x],
            result: whole,
            name: None,
        });
        let is_packed = |step: &Step<dyn LayerOp>| matches!(step, Step::Node(node) if packed.contains(&node.result));
        let first = steps.body.steps.iter().position(is_packed).unwrap_or(0);
        steps.body.steps.retain(|step| !is_packed(step));
        steps.body.steps.insert(first, product);
    }
}

/// What projections read, each once.
fn operands_of_projections(steps: &Steps) -> Vec<ValueId> {
    let projections = steps.nodes().filter(|node| is_projection(node));
    let mut operands: Vec<_> = projections.map(|node| node.operands[0]).collect();
    operands.sort_unstable_by_key(|id| id.0);
    operands.dedup();
    operands
}

fn is_projection(node: &Node<dyn LayerOp>) -> bool {
    node.op.properties().linear.is_some()
}

/// A new value, of which these are the parts.
fn side_by_side(steps: &mut Steps, parts: &[ValueId]) -> ValueId {
    let whole = ValueId(steps.values.len());
    let values = parts.iter().map(|part| steps.value(*part));
    let names: Vec<_> = values.clone().map(|value| value.name.as_str()).collect();
    let widths = values.filter_map(|value| value.ty.width().cloned());
    let width = widths.reduce(|a, b| a.plus(&b));
    let first = &steps.value(parts[0]).ty;
    let ty = width.map_or_else(|| first.clone(), |width| first.ending_in(width));
    let name = names.join("_");
    steps.values.push(Value {
        name,
        ty,
        view: None,
    });
    for (part, id) in parts.iter().enumerate() {
        steps.values[id.0].view = Some(View { of: whole, part });
    }
    whole
}

/// A norm and a rotation of queries and keys happen as attention loads them. Those that another step reads are computed in one step.
pub(crate) fn load_transforms(steps: &mut Steps) {
    for index in 0..steps.body.steps.len() {
        let Step::Node(node) = &steps.body.steps[index] else {
            continue;
        };
        let properties = node.op.properties();
        let (op, operands): (Rc<dyn LayerOp>, _) = if let Some(last) = properties.transform {
            let Some((x, first)) = transform_of(steps, node.operands[0]) else {
                continue;
            };
            let Some(how) = first.how.then(&last.how) else {
                continue;
            };
            let heads = last.heads.clone();
            (Rc::new(TransformHeads { heads, how }), vec![x])
        } else if let Some(attention) = properties.attention {
            let (attention, operands) = with_transforms(steps, attention, &node.operands);
            (Rc::new(attention), operands)
        } else {
            continue;
        };
        if let Step::Node(node) = &mut steps.body.steps[index] {
            (node.op, node.operands) = (op, operands);
        }
    }
    remove_unread(steps);
}

/// What a value is the transform of.
fn transform_of(steps: &Steps, id: ValueId) -> Option<(ValueId, &TransformHeads)> {
    let node = steps.nodes().find(|node| node.result == id)?;
    Some((node.operands[0], node.op.properties().transform?))
}

/// Attention with the transforms of what it reads, and what it reads then.
fn with_transforms(
    steps: &Steps,
    attention: &Attend,
    operands: &[ValueId],
) -> (Attend, Vec<ValueId>) {
    let mut attention = attention.clone();
    let mut operands = operands.to_vec();
    // Vectors are queries and keys.
    for (how, operand) in attention.vectors.iter_mut().flatten().zip(&mut operands) {
        let transform = transform_of(steps, *operand);
        let all = transform.and_then(|(x, transform)| Some((x, transform.how.then(how)?)));
        if let Some((x, all)) = all {
            (*operand, *how) = (x, all);
        }
    }
    (attention, operands)
}

fn remove_unread(steps: &mut Steps) {
    let block = steps.block();
    let operands = steps.nodes().flat_map(|node| &node.operands);
    let read = operands.map(|operand| block.memory(*operand).0);
    let read: BTreeSet<usize> = read.chain([steps.output().0]).collect();
    let is_read = |step: &Step<_>| match step {
        Step::Node(Node { result, .. }) => read.contains(&result.0),
        Step::Repeat(_) => true,
    };
    steps.body.steps.retain(is_read);
}

/// A product that only attention reads leaves its bias to it. Queries and keys are copied there anyway, and values then; a product
/// would have the bias written to its whole result first, and read again.
pub(crate) fn leave_biases(graph: &Graph, steps: &mut Steps) {
    let has_bias = |linear: &PackedLinear| {
        let mut params = linear.fields.iter().filter_map(|field| graph.param(field));
        params.any(Param::has_bias)
    };
    let left = steps.nodes().filter(|node| {
        let linear = node.op.properties().linear;
        linear.is_some_and(has_bias) && only_attention_reads(steps, node.result)
    });
    let left: Vec<ValueId> = left.map(|node| node.result).collect();
    let memories = (0..steps.values.len()).map(|id| steps.block().memory(ValueId(id)));
    let memories: Vec<ValueId> = memories.collect();
    for step in &mut steps.body.steps {
        let Step::Node(node) = step else {
            continue;
        };
        let properties = node.op.properties();
        let op: Rc<dyn LayerOp> = if let Some(linear) = properties.linear {
            Rc::new(PackedLinear {
                fields: linear.fields.clone(),
                leaves_bias: left.contains(&node.result),
            })
        } else if let Some(attention) = properties.attention {
            let mut attention = attention.clone();
            let transforms = attention.transforms_mut();
            for (HeadTransform { bias, .. }, operand) in transforms.zip(&node.operands) {
                *bias = left.contains(&memories[operand.0]).then_some(*operand);
            }
            Rc::new(attention)
        } else {
            continue;
        };
        node.op = op;
    }
}

fn only_attention_reads(steps: &Steps, id: ValueId) -> bool {
    let block = steps.block();
    let reads = |node: &&Node<dyn LayerOp>| {
        let mut operands = node.operands.iter();
        operands.any(|operand| block.memory(*operand) == id)
    };
    let mut readers = steps.nodes().filter(reads);
    id != steps.output() && readers.all(|node| node.op.properties().attention.is_some())
}

/// Gives every value in memory a name of its own.
pub(crate) fn name_values(steps: &mut Steps) {
    let results = steps.nodes().map(|node| node.result);
    let in_memory: Vec<ValueId> = steps.inputs.iter().copied().chain(results).collect();
    let mut names = BTreeSet::new();
    for id in in_memory {
        let name = &mut steps.values[id.0].name;
        while !names.insert(name.clone()) {
            name.push_str("_prepared");
        }
    }
}
