//! The operations of a graph, in their order, with loops.

use std::rc::Rc;

use proc_macro2::Ident;

use super::{ModuleId, ParamPath, Scan, Value, ValueId, View};
use crate::ops::{Attention, Fusion, Gradient, ModelOp, Op, Saved};
use crate::spec::Size;

/// Operations one after the other, with loops.
pub(crate) struct Region<O: ?Sized = dyn ModelOp> {
    pub(crate) steps: Vec<Step<O>>,
}

impl<O: ?Sized> Default for Region<O> {
    fn default() -> Self {
        Region { steps: Vec::new() }
    }
}

pub(crate) enum Step<O: ?Sized = dyn ModelOp> {
    Node(Node<O>),
    Repeat(Repeat<O>),
    Scan(Box<Scan<O>>),
}

pub(crate) struct Node<O: ?Sized = dyn ModelOp> {
    pub(crate) op: Rc<O>,
    pub(crate) operands: Vec<ValueId>,
    pub(crate) result: ValueId,
    /// Its results beside that, each at a place of its own. `None` is one that nobody reads: it is not computed.
    pub(crate) others: Vec<Option<ValueId>>,
    /// The user's name for it.
    pub(crate) name: Option<String>,
}

/// A loop over sets of parameters.
pub(crate) struct Repeat<O: ?Sized = dyn ModelOp> {
    pub(crate) place: ParamPath,
    pub(crate) module: ModuleId,
    pub(crate) count: Size,
    pub(crate) share: bool,
    /// The number of this one among the loops over the same parameters, from 1 on.
    pub(crate) run: usize,
    /// The rounds that it has of a loop, if not all.
    pub(crate) part: Option<Box<Part>>,
    pub(crate) carried: Vec<Carried>,
    pub(crate) body: Region<O>,
}

impl<O: ?Sized> Repeat<O> {
    /// Whether both are parts of one loop.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let [at, of_other] = [self, other].map(|of| of.part.as_ref().map(|part| &part.at));
        at.is_some() && at == of_other
    }
}

/// The rounds of a loop before one of them, or from that one on.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) is_last: bool,
    /// The variable with the number of the first rounds.
    pub(crate) at: Ident,
    /// The number of all rounds.
    pub(crate) whole: Size,
}

/// A variable that a loop changes.
#[derive(Clone)]
pub(crate) struct Carried {
    /// Its value before the loop.
    pub(crate) before: ValueId,
    /// Its value when a round begins, and after the last one.
    pub(crate) value: ValueId,
    /// Its value when a round ends.
    pub(crate) after: ValueId,
}

/// The operations from some inputs to some results.
pub(crate) struct Block<'m, O: ?Sized = dyn ModelOp> {
    pub(crate) values: &'m [Value],
    pub(crate) inputs: &'m [ValueId],
    pub(crate) body: &'m Region<O>,
    pub(crate) results: &'m [ValueId],
    /// Whether the caller hands the results to the derivative. Then they are not kept.
    pub(crate) results_are_given: bool,
}

impl<O: ?Sized> Clone for Block<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: ?Sized> Copy for Block<'_, O> {}

impl<'m, O: ?Sized> Block<'m, O> {
    pub(crate) fn value(&self, id: ValueId) -> &'m Value {
        &self.values[id.0]
    }

    /// Whether the memory of a value is that of an input, or the value is one: the body of a scan has detached values as inputs.
    pub(crate) fn is_input(&self, id: ValueId) -> bool {
        self.inputs.contains(&self.memory(id)) || self.inputs.contains(&id)
    }

    /// Whether the memory of a value is that of a result which the derivative is given.
    pub(crate) fn is_given(&self, id: ValueId) -> bool {
        let id = self.memory(id);
        let mut results = self.results.iter();
        self.results_are_given && results.any(|result| self.memory(*result) == id)
    }

    /// The parts of a value, or the value itself.
    pub(crate) fn parts(&self, id: ValueId) -> Vec<ValueId> {
        let all = (0..self.values.len()).map(ValueId);
        let is_part = |view: View| view.of == id && view.is_part();
        let parts = all.filter(|part| self.value(*part).view.is_some_and(is_part));
        let parts: Vec<_> = parts.collect();
        match parts.as_slice() {
            [] => vec![id],
            _ => parts,
        }
    }

    /// The value of which this one is another shape, or the value itself.
    pub(crate) fn whole(&self, id: ValueId) -> ValueId {
        match self.value(id).view {
            Some(View { of, part: None }) => of,
            _ => id,
        }
    }

    /// The value whose memory a value is in.
    pub(crate) fn memory(&self, id: ValueId) -> ValueId {
        let Value { view, alias, .. } = self.value(id);
        match alias.or(view.map(|view| view.of)) {
            Some(of) => self.memory(of),
            None => id,
        }
    }

    /// The value whose gradient has that of this one. That of a detached value is of the value itself, and nobody reads it.
    pub(crate) fn holder(&self, id: ValueId) -> ValueId {
        self.value(id).view.map_or(id, |view| view.of)
    }

    /// The value that has its numbers.
    pub(crate) fn source(&self, id: ValueId) -> ValueId {
        self.value(id).alias.unwrap_or(id)
    }

    /// Whether it is another value without a gradient.
    pub(crate) fn is_alias(&self, id: ValueId) -> bool {
        self.value(id).alias.is_some()
    }
}

/// The values of the variables of loops, and those that are read to carry them.
#[derive(Default)]
pub(crate) struct CarriedValues {
    pub(crate) values: Vec<ValueId>,
    pub(crate) reads: Vec<ValueId>,
}

impl<O: ?Sized> Region<O> {
    /// The variables of the loops in it.
    pub(crate) fn carried(&self) -> CarriedValues {
        let mut all = CarriedValues::default();
        for step in &self.steps {
            if let Step::Repeat(repeat) = step {
                let inner = repeat.body.carried();
                all.values.extend(inner.values);
                all.reads.extend(inner.reads);
                for carried in &repeat.carried {
                    all.values.push(carried.value);
                    all.reads.extend([carried.before, carried.after]);
                }
            }
        }
        all
    }

    /// The operations, those in loops included.
    pub(crate) fn nodes(&self) -> Vec<&Node<O>> {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Node(node) => vec![node],
            Step::Repeat(repeat) => repeat.body.nodes(),
            Step::Scan(scan) => scan.body.nodes(),
        });
        steps.collect()
    }

    /// The loops over sets of parameters, those in other loops included.
    pub(crate) fn repeats(&self) -> Vec<&Repeat<O>> {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Node(_) => Vec::new(),
            Step::Repeat(repeat) => {
                let inside = repeat.body.repeats();
                std::iter::once(repeat).chain(inside).collect()
            }
            Step::Scan(scan) => scan.body.repeats(),
        });
        steps.collect()
    }

    /// The scans, those in loops included.
    pub(crate) fn scans(&self) -> Vec<&Scan<O>> {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Node(_) => Vec::new(),
            Step::Repeat(repeat) => repeat.body.scans(),
            Step::Scan(scan) => vec![&**scan],
        });
        steps.collect()
    }
}

// `O` itself need not be `Clone`.
impl<O: ?Sized> Clone for Region<O> {
    fn clone(&self) -> Self {
        Region {
            steps: self.steps.clone(),
        }
    }
}

impl<O: ?Sized> Clone for Step<O> {
    fn clone(&self) -> Self {
        match self {
            Step::Node(node) => Step::Node(node.clone()),
            Step::Repeat(repeat) => Step::Repeat(repeat.clone()),
            Step::Scan(scan) => Step::Scan(scan.copy(scan.body.clone())),
        }
    }
}

impl<O: ?Sized> Clone for Repeat<O> {
    fn clone(&self) -> Self {
        Repeat {
            place: self.place.clone(),
            module: self.module,
            count: self.count.clone(),
            share: self.share,
            run: self.run,
            part: self.part.clone(),
            carried: self.carried.clone(),
            body: self.body.clone(),
        }
    }
}

impl<O: ?Sized> Clone for Node<O> {
    fn clone(&self) -> Self {
        Node {
            op: Rc::clone(&self.op),
            operands: self.operands.clone(),
            result: self.result,
            others: self.others.clone(),
            name: self.name.clone(),
        }
    }
}

impl<O: ?Sized> Node<O> {
    /// All results.
    pub(crate) fn results(&self) -> impl Iterator<Item = ValueId> + use<'_, O> {
        let others = self.others.iter().copied();
        [self.result].into_iter().chain(others.flatten())
    }
}

impl<O: Op + ?Sized> Node<O> {
    /// The operands that have a gradient, with what that is.
    pub(crate) fn gradients(&self) -> impl Iterator<Item = (usize, Gradient)> {
        let gradients = self.op.gradients(self.operands.len());
        let gradients = gradients.into_iter().enumerate();
        gradients.filter(|(_, gradient)| *gradient != Gradient::None)
    }

    /// The values of floats that its derivative reads.
    pub(crate) fn saved(&self) -> Vec<ValueId> {
        let operands = self.gradients().map(|(index, _)| self.operands[index]);
        match self.op.properties().saved {
            Saved::Nothing => Vec::new(),
            Saved::Operands => operands.collect(),
            Saved::Reads(operands) => {
                let operands = operands.into_iter();
                operands
                    .map(|index| self.operands.get(index).copied().unwrap_or(self.result))
                    .collect()
            }
            Saved::Result => vec![self.result],
            Saved::OperandsAndResult => operands.chain([self.result]).collect(),
            Saved::OperandsAndWeights { with_result } => {
                let result = with_result.then_some(self.result);
                let weights = self.others.first().copied().flatten();
                operands.chain(result).chain(weights).collect()
            }
        }
    }

    pub(crate) fn fusion(&self) -> Fusion<'_> {
        self.op.properties().fusion
    }
}

impl Node {
    pub(crate) fn attention(&self) -> Option<&Attention> {
        self.op.description().attention
    }
}
