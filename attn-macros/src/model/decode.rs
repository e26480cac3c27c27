//! Whether a network can go on token by token: whether what it makes of a token depends on nothing behind it.

use super::emit::operation_name;
use super::graph::{Field, Model, Module, ModuleId, Node, Region, Step, Submodule, ValueId};
use super::transposes::without_transposes;
use super::types::{Axis, ValueKind};
use crate::messages::model as messages;
use crate::ops::Decode;

/// Why it cannot, in the user's words.
pub(crate) fn check(model: &Model) -> Result<(), String> {
    let [input] = model.inputs.as_slice() else {
        return Err(messages::session_inputs(model.inputs.len()));
    };
    let tokens = Tokens {
        model,
        input: *input,
    };
    tokens.input()?;
    tokens.once()?;
    tokens.region(&without_transposes(model))?;
    tokens.results()
}

impl Model {
    /// The length of a sequence of tokens: the last axis of the first input.
    pub(crate) fn sequence(&self) -> Option<&str> {
        match self.value(*self.inputs.first()?).ty.axes.last()? {
            Axis::Symbol(symbol) => Some(&symbol.length),
            Axis::Size(_) => None,
        }
    }

    /// The layers of a module that remember something in a session: attentions that run in it, and loops and blocks with such layers.
    pub(crate) fn remembering<'m>(&'m self, module: &'m Module) -> impl Iterator<Item = &'m Field> {
        module.fields.iter().filter(|field| match &field.layer {
            Submodule::Attention(index) => self.runs(*index),
            Submodule::Repeat { module, .. } | Submodule::Block { module, .. } => {
                self.remembers(*module)
            }
            _ => false,
        })
    }

    pub(crate) fn remembers(&self, module: ModuleId) -> bool {
        self.remembering(self.module(module)).next().is_some()
    }
}

struct Tokens<'m> {
    model: &'m Model,
    input: ValueId,
}

impl<'m> Tokens<'m> {
    fn axes(&self, value: ValueId) -> &'m [Axis] {
        &self.model.value(value).ty.axes
    }

    /// Each attention runs once for a token: it remembers one sequence.
    fn once(&self) -> Result<(), String> {
        let mut known = Vec::new();
        for node in self.model.nodes() {
            let Some(attention) = node.attention() else {
                continue;
            };
            if known.contains(&attention.index) {
                let name = self.model.path(&attention.place);
                return Err(messages::session_twice(&name));
            }
            known.push(attention.index);
        }
        Ok(())
    }

    /// The input is tokens, of any number of sequences of any length.
    fn input(&self) -> Result<(), String> {
        let axes = self.axes(self.input);
        let mut names: Vec<&str> = axes
            .iter()
            .filter_map(|axis| match axis {
                Axis::Symbol(symbol) => Some(symbol.length.as_str()),
                Axis::Size(_) => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        let ty = &self.model.value(self.input).ty;
        if ty.kind == ValueKind::Ids && names.len() == axes.len() && !axes.is_empty() {
            Ok(())
        } else {
            Err(messages::session_input(ty))
        }
    }

    fn results(&self) -> Result<(), String> {
        match self.model.results.as_slice() {
            [result] if self.axes_per_token(*result) == Some(1) => Ok(()),
            [result] => Err(messages::session_result(&self.model.value(*result).ty)),
            results => Err(messages::session_results(results.len())),
        }
    }

    /// How many axes a value has for every token, if it has numbers for each of them: 0 for one number, 1 for a vector.
    fn axes_per_token(&self, value: ValueId) -> Option<usize> {
        let before = self.axes(self.input);
        let (tokens, others) = self.axes(value).split_at_checked(before.len())?;
        let same = tokens.iter().zip(before).all(|(a, b)| match (a, b) {
            (Axis::Symbol(a), Axis::Symbol(b)) => a.length == b.length,
            _ => false,
        });
        let all_sizes = others.iter().all(|axis| matches!(axis, Axis::Size(_)));
        (same && all_sizes).then_some(others.len())
    }

    /// Whether a value is the same for all tokens.
    fn is_constant(&self, value: ValueId) -> bool {
        let mut axes = self.axes(value).iter();
        axes.all(|axis| matches!(axis, Axis::Size(_)))
    }

    fn region(&self, region: &Region) -> Result<(), String> {
        region.steps.iter().try_for_each(|step| match step {
            Step::Node(node) => self.node(node),
            Step::Repeat(repeat) => self.region(&repeat.body),
        })
    }

    fn node(&self, node: &Node) -> Result<(), String> {
        let has_numbers = self.axes_per_token(node.result).is_some();
        let stands_alone = has_numbers || self.is_constant(node.result);
        match node.op.decode(self.model)? {
            Decode::WithPast => Ok(()),
            Decode::PerToken if stands_alone => Ok(()),
            Decode::PerToken | Decode::Never => {
                let name = operation_name(self.model, node);
                Err(messages::session_operation(&name))
            }
        }
    }
}
