//! The layer as operations over matrices in memory: what the graph is for the fused lowering.

use super::Dim;
use crate::model::graph::{Block, Node, Region, Step, Value, ValueId};
use crate::model::types::{Axis, Type};
use crate::ops::fused::{Attend, LayerOp};
use crate::spec::Size;

/// The steps of the forward pass, in order. A value is a matrix with a row for every token: `[batch, len, width]`.
pub(crate) struct Steps {
    pub(crate) values: Vec<Value>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) body: Region<dyn LayerOp>,
    /// The only result.
    pub(crate) results: [ValueId; 1],
}

impl Steps {
    pub(crate) fn block(&self) -> Block<'_, dyn LayerOp> {
        Block {
            values: &self.values,
            inputs: &self.inputs,
            body: &self.body,
            results: &self.results,
        }
    }

    pub(crate) fn output(&self) -> ValueId {
        self.results[0]
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node<dyn LayerOp>> {
        self.body.steps.iter().filter_map(|step| match step {
            Step::Node(node) => Some(node),
            Step::Repeat(_) => None,
        })
    }

    pub(crate) fn attention(&self) -> Option<&Attend> {
        self.nodes().find_map(|node| node.op.properties().attention)
    }

    pub(crate) fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// Whether a step reads the value, or a part of it.
    pub(crate) fn reads(&self, id: ValueId) -> bool {
        let block = self.block();
        let mut operands = self.nodes().flat_map(|node| &node.operands);
        operands.any(|operand| block.memory(*operand) == id)
    }
}

/// The type of a matrix with a row for every query or key.
pub(super) fn matrix(rows: &Dim, width: Size) -> Type {
    let symbol = |name: &str| Axis::Symbol(name.to_owned());
    let len = match rows {
        Dim::Key => symbol(KEY),
        _ => symbol("query"),
    };
    Type::floats(vec![symbol("batch"), len, Axis::Size(width)])
}

const KEY: &str = "key";

/// Whether a matrix with these axes has a row for every key, not for every query.
pub(crate) fn is_by_key(axes: &[Axis]) -> bool {
    matches!(axes, [_, Axis::Symbol(len), ..] if len == KEY)
}
