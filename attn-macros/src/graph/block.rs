//! The operations of a layer.

use std::rc::Rc;

use crate::model::graph::{Block, Node, Region, Step, Value, ValueId};
use crate::model::types::{Axis, Symbol, Type};
use crate::ops::attention_layer::{Attend, LayerOp};
use crate::spec::Dim;

/// The operations from the inputs to the output, in order. As built, vectors of heads are `[batch, heads, len, width]`; for the fused form
/// every value is a matrix with a row for every token, `[batch, len, width]`.
#[derive(Clone)]
pub(crate) struct LayerBlock {
    pub(crate) values: Vec<Value>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) body: Region<dyn LayerOp>,
    /// The only result.
    pub(crate) results: [ValueId; 1],
}

impl LayerBlock {
    pub(crate) fn new() -> Self {
        LayerBlock {
            values: Vec::new(),
            inputs: Vec::new(),
            body: Region::default(),
            results: [ValueId(0)],
        }
    }

    pub(crate) fn add_value(&mut self, name: &str, ty: Type) -> ValueId {
        self.values.push(Value {
            name: name.to_owned(),
            source: name.to_owned(),
            ty,
            view: None,
            alias: None,
        });
        ValueId(self.values.len() - 1)
    }

    /// Adds an operation. Its result is that of the block until another one comes.
    pub(crate) fn push(
        &mut self,
        name: &str,
        op: impl LayerOp + 'static,
        operands: &[ValueId],
        ty: Type,
    ) -> ValueId {
        let result = self.add_value(name, ty);
        self.body.steps.push(Step::Node(Node {
            op: Rc::new(op),
            operands: operands.to_vec(),
            result,
            others: Vec::new(),
            name: None,
        }));
        self.results = [result];
        result
    }

    pub(crate) fn block(&self) -> Block<'_, dyn LayerOp> {
        Block {
            values: &self.values,
            inputs: &self.inputs,
            body: &self.body,
            results: &self.results,
            results_are_given: true,
        }
    }

    pub(crate) fn output(&self) -> ValueId {
        self.results[0]
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node<dyn LayerOp>> {
        self.body.steps.iter().filter_map(|step| match step {
            Step::Node(node) => Some(node),
            Step::Repeat(_) | Step::Scan(_) => None,
        })
    }

    pub(crate) fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node<dyn LayerOp>> {
        self.body.steps.iter_mut().filter_map(|step| match step {
            Step::Node(node) => Some(node),
            Step::Repeat(_) | Step::Scan(_) => None,
        })
    }

    pub(crate) fn attention(&self) -> Option<&Attend> {
        self.nodes()
            .find_map(|node| node.op.description().attention)
    }

    /// Whether queries, keys or values are inputs.
    pub(crate) fn attention_reads_inputs(&self) -> bool {
        let mut nodes = self.nodes();
        nodes.any(|node| {
            let attention = node.op.description().attention;
            let vectors = attention.map_or(0, |attention| node.operands.len() - attention.given);
            let mut vectors = node.operands[..vectors].iter();
            vectors.any(|id| self.inputs.contains(id))
        })
    }

    pub(crate) fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// Whether an operation reads the value, or a part of it.
    pub(crate) fn reads(&self, id: ValueId) -> bool {
        let block = self.block();
        let mut operands = self.nodes().flat_map(|node| &node.operands);
        operands.any(|operand| block.memory(*operand) == id)
    }
}

const BATCH: &str = "batch";
const QUERY: &str = "query";
const KEY: &str = "key";

/// An axis of a layer's values.
pub(crate) fn axis(dim: &Dim) -> Axis {
    let symbol = |name: &str| Axis::Symbol(Symbol::of_inputs(name));
    match dim {
        Dim::Batch => symbol(BATCH),
        Dim::Query => symbol(QUERY),
        Dim::Key => symbol(KEY),
        Dim::Size(size) => Axis::Size(size.clone()),
    }
}

/// The same, the other way round.
pub(crate) fn dim(axis: &Axis) -> Dim {
    match axis {
        Axis::Size(size) => Dim::Size(size.clone()),
        Axis::Symbol(symbol) if symbol.length == BATCH => Dim::Batch,
        Axis::Symbol(symbol) if symbol.length == KEY => Dim::Key,
        Axis::Symbol(_) => Dim::Query,
    }
}

/// Whether a value with these axes has a vector for every key, not for every query.
pub(crate) fn is_by_key(axes: &[Axis]) -> bool {
    axes.iter()
        .any(|axis| matches!(axis, Axis::Symbol(symbol) if symbol.length == KEY))
}
