//! An attention layer in a model: its operations are written one by one, as the composed form has them.

use super::node::OnnxNode;
use super::term::{Term, call};
use crate::graph::block::{axis, dim};
use crate::graph::{CallData, Graph};
use crate::model::types::{Axis, Symbol, Type, ValueKind};
use crate::ops::Attention;
use crate::spec::Dim;

/// The values that the operations of a layer read beside their operands.
pub(crate) struct LayerScope<'m> {
    /// The path of its parameters.
    path: String,
    pub(crate) graph: &'m Graph,
    /// The axes batch, query and key, as the model has them. Without a batch it is 1.
    axes: [Axis; 3],
    /// The data of the call, with a batch axis in front.
    pub(super) data: Vec<(&'m CallData, Vec<Tensor>)>,
    /// The entry of the table of what was proved that says whether every query attends to a key.
    pub(crate) every_query_attends: usize,
    has_own_score: bool,
    /// The weights and the logarithms of their sums, where they are read.
    pub(crate) wanted: [bool; 2],
}

/// A tensor of data, with a batch axis in front unless it is a table.
pub(super) struct Tensor {
    pub(super) term: Term,
    pub(super) kind: ValueKind,
    /// The number of its axes.
    pub(super) axes: usize,
}

impl LayerScope<'_> {
    /// The axis of the model that a layer calls so.
    pub(super) fn axis(&self, name: &str) -> Option<Axis> {
        let of_layer = Axis::Symbol(Symbol::of_inputs(name));
        let [batch, query, key] = self.axes.clone();
        let is = |of: &Dim| matches!((&axis(of), &of_layer), (Axis::Symbol(a), Axis::Symbol(b)) if a.length == b.length);
        [(Dim::Batch, batch), (Dim::Query, query), (Dim::Key, key)]
            .into_iter()
            .find_map(|(of, axis)| is(&of).then_some(axis))
    }

    /// The parameter of this name.
    pub(crate) fn weight(&self, field: &str) -> Term {
        Term::new(format!("%{}.{field}.weight", self.path))
    }
}

impl<'m> OnnxNode<'_, 'm> {
    /// The weight of a parameter of the layer.
    pub(crate) fn parameter(&self, field: &str) -> Term {
        let layer = self.layer;
        layer.map_or_else(Term::none, |layer| layer.weight(field))
    }

    /// The bias of a projection of the layer, if it has one.
    pub(crate) fn parameter_bias(&self, field: &str) -> Option<Term> {
        let layer = self.layer?;
        let has_bias = layer.graph.has_bias(field);
        has_bias.then(|| Term::new(format!("%{}.{field}.bias", layer.path)))
    }

    /// Whether the body of the layer has a function of the score.
    pub(crate) fn has_own_score(&self) -> bool {
        self.layer.is_some_and(|layer| layer.has_own_score)
    }

    pub(crate) fn scope(&self) -> Option<&LayerScope<'m>> {
        self.layer
    }

    /// The positions of queries or keys that the call passes, `[batch, 1, len, 1]`, or `0, 1, ..` as `[len, 1]`.
    pub(crate) fn positions(&mut self, len: &Axis, is_given: bool, of_keys: bool) -> Term {
        let given = self.layer.filter(|_| is_given).and_then(|layer| {
            let mut data = layer.data.iter();
            let (_, ids) = data.find(|(data, _)| matches!(data, CallData::PositionIds))?;
            let ids = if of_keys { ids.last() } else { ids.first() };
            // Without a batch axis they are the same for all sequences.
            ids.map(|ids| match ids.axes {
                1 => ids.term.clone().unsqueeze(&[1]),
                _ => ids.term.clone().unsqueeze(&[1, 3]),
            })
        });
        match given {
            Some(positions) => positions,
            None => self.indices(len).unsqueeze(&[1]),
        }
    }

    /// `[batch, len, heads width]` to `[batch, heads, len, width]`
    pub(crate) fn split_heads(&mut self) -> Term {
        let axes = &self.result_type().axes;
        let sizes = [&axes[1], &axes[3]].map(|axis| axis.size().cloned());
        let [heads, width] = sizes.map(|size| size.map(|size| self.size(&size)));
        let zero = || Some("0".to_owned());
        let shape = [zero(), zero(), heads, width].into_iter().flatten();
        let split = call("Reshape", [self.operand(0), Term::ints(shape)]);
        split.transpose(&[0, 2, 1, 3])
    }

    /// `[batch, heads, len, width]` to `[batch, len, heads width]`
    pub(crate) fn merge_heads(&mut self) -> Term {
        let width = self.result_type().width().cloned();
        let width = width.map(|width| self.size(&width));
        let zero = || Some("0".to_owned());
        let shape = [zero(), zero(), width].into_iter().flatten();
        let moved = self.operand(0).transpose(&[0, 2, 1, 3]);
        call("Reshape", [moved, Term::ints(shape)])
    }

    /// The result of an attention, which is a layer of the model.
    pub(crate) fn attention(&mut self, attention: &Attention) -> Result<Term, String> {
        let model = self.writer.model;
        let layer = &model.attentions[attention.index];
        let graph = &layer.graph;
        let is_batched = self.operands[0].1.axes.len() == 3;
        let last_but_one = |ty: &Type| ty.axes[ty.axes.len() - 2].clone();
        let query = last_but_one(self.operands[0].1);
        let key = last_but_one(self.operands[attention.inputs.keys].1);
        let batch = match is_batched {
            true => self.operands[0].1.axes[0].clone(),
            false => Axis::Size(crate::spec::Size::known(1)),
        };
        let with_batch = |(term, ty): &(Term, &'m Type)| match is_batched {
            true => (term.clone(), *ty),
            false => (term.clone().unsqueeze(&[0]), *ty),
        };
        let mut others = self.operands[attention.inputs.len()..].iter();
        let data = graph.data.iter().map(|data| {
            let count = data.tensors(graph.cross);
            let is_table = matches!(data, CallData::Declared(of) if !of.dims.contains(&Dim::Batch));
            let tensors = others.by_ref().take(count).map(|operand| {
                let (term, ty) = if is_table {
                    operand.clone()
                } else {
                    with_batch(operand)
                };
                let is_new = !is_table && !is_batched;
                Tensor {
                    term,
                    kind: ty.kind,
                    axes: ty.axes.len() + usize::from(is_new),
                }
            });
            (data, tensors.collect())
        });
        let data: Vec<_> = data.collect();
        let name = &layer.spec.item.name;
        let proved = quote::quote!(<#name>::EVERY_QUERY_ATTENDS);
        let scope = LayerScope {
            path: self.writer.path(&attention.place),
            graph,
            axes: [batch, query, key],
            data,
            every_query_attends: self.writer.tables.proved.index(proved),
            has_own_score: layer.spec.body.score.is_some(),
            wanted: [self.is_wanted(0), self.is_wanted(1)],
        };
        let result = &model.value(self.of_model.result).name;
        let block = &graph.block;
        let var = |name: &str| Term::new(format!("{result}.{name}"));
        let given = graph.sequences();
        for (index, id) in block.inputs.iter().enumerate() {
            let operand = &self.operands[index];
            let has_batch = index < given
                || block
                    .value(*id)
                    .ty
                    .axes
                    .first()
                    .is_some_and(|axis| dim(axis) == Dim::Batch);
            let (term, _) = if has_batch {
                with_batch(operand)
            } else {
                operand.clone()
            };
            let name = var(&block.value(*id).name);
            self.writer.line(format_args!("{name} = {term}"));
        }
        for node in block.nodes() {
            let operands = node.operands.iter();
            let operands = operands.map(|id| {
                let value = block.value(*id);
                (var(&value.name), &value.ty)
            });
            let value = block.value(node.result);
            let operands = operands.collect();
            let mut of = OnnxNode::new(self.writer, self.of_model, operands, &value.ty, Vec::new());
            of.layer = Some(&scope);
            let term = node.op.onnx(&mut of)?;
            let beside = of.into_beside();
            let name = var(&value.name);
            self.writer.line(format_args!("{name} = {term}"));
            for term in beside {
                self.define_beside(match is_batched {
                    true => term,
                    false => term.squeeze(&[0]),
                });
            }
        }
        let result = var(&block.value(block.output()).name);
        Ok(match is_batched {
            true => result,
            false => result.squeeze(&[0]),
        })
    }
}
