//! Calls of operations: their keys, and the shapes that they take and return.

use std::ops::RangeInclusive;

use proc_macro2::Ident;
use syn::ext::IdentExt;

use super::arguments::{Arguments, word_of};
use super::operators::named;
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::{ParamPath, Step, Submodule, ValueId};
use crate::model::syntax::{Call, Expr, first};
use crate::model::types::{Axis, MOST_AXES, Type, ValueKind};
use crate::ops::{CallSite, Layer, Lower, Operation};
use crate::spec::parse::{Entry, Value};
use crate::spec::{Distribution, Rules, Size};

impl Lowering<'_> {
    pub(super) fn call(
        &mut self,
        call: &Call,
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let Some(operation) = Operation::find(&call.name.to_string()) else {
            if let Some(block) = self.block(&call.name) {
                return self.result_of_block(call, block, builder);
            }
            let message = messages::unknown_operation(&call.name, &self.block_names());
            self.cx.error(&call.name, message);
            // Operands may have mistakes of their own, so they are read.
            let named = call.named.iter().flat_map(|(_, values)| values);
            self.read_all(call.operands.iter().chain(named), builder);
            return None;
        };
        let arguments = self.arguments(call, operation);
        let label = arguments.name.as_ref().map(|name| name.unraw().to_string());
        let result = match &operation.lower {
            // An operand of its own: it may be a number.
            Lower::Function(_) => None,
            Lower::Parts(_) => {
                let message = messages::parts_without_names(operation);
                self.cx.error(&call.name, message);
                self.read_all(&call.operands, builder);
                return None;
            }
            _ if self.has_numbers(call, operation) => {
                self.read_all(&call.operands, builder);
                return None;
            }
            Lower::Attention(lower) => {
                let names = name.map(std::slice::from_ref).unwrap_or_default();
                let attended = lower(self, call, arguments, names, builder);
                attended.and_then(|attended| attended.first().copied())
            }
            Lower::OperandsAnd(..) | Lower::Operands(..) | Lower::FunctionOrOperands(..) => {
                let (lower, operands) = match &operation.lower {
                    Lower::OperandsAnd(other, lower) => {
                        let operands = self.operands_and(call, operation, other, builder);
                        (*lower, operands)
                    }
                    Lower::Operands(number, lower)
                    | Lower::FunctionOrOperands(_, number, lower) => {
                        let operands = self.operands(call, operation, number, builder);
                        (*lower, operands)
                    }
                    _ => return None,
                };
                operands.and_then(|operands| {
                    let call = CallSite {
                        operation,
                        at: &call.name,
                        arguments: &arguments,
                        operands,
                        result: &named(name, operation.name),
                    };
                    lower.lower(self, &call, builder)
                })
            }
        };
        if let (Some(result), Some(Step::Node(node))) = (result, builder.region.steps.last_mut())
            && node.result == result
        {
            node.name = label;
        }
        result
    }

    /// Whether numbers stand among the operands, as the keys of an operation do in other languages.
    fn has_numbers(&mut self, call: &Call, operation: &Operation) -> bool {
        let numbers = call.operands.iter().filter(|expr| self.is_number(expr));
        let numbers: Vec<&Expr> = numbers.collect();
        if let Some(first) = numbers.first() {
            let texts: Vec<_> = numbers.iter().map(|number| number.text()).collect();
            let message = messages::number_as_operand(operation, &texts);
            self.error(first.span(), message);
        }
        !numbers.is_empty()
    }

    /// Reports keys, and the same as [`only_positions`](Self::only_positions), of an operation without keys.
    pub(super) fn keyless(
        &mut self,
        call: &Call,
        operation: &'static Operation,
        builder: &mut RegionBuilder,
    ) {
        self.arguments(call, operation);
        self.only_positions(call, operation, builder);
    }

    /// One operand by its position, and perhaps one by the name `other`.
    fn operands_and(
        &mut self,
        call: &Call,
        operation: &Operation,
        other: &str,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let operands = self.operands(call, operation, &(1..=1), builder);
        let mut named = call.named.iter().filter(|(key, _)| key == other);
        let Some((key, values)) = named.next() else {
            return operands;
        };
        if let Some((again, others)) = named.next() {
            self.read_all(values.iter().chain(others), builder);
            self.cx.error(again, messages::operand_twice(again));
            return None;
        }
        let [value] = values.as_slice() else {
            self.read_all(values, builder);
            self.cx.error(key, messages::one_value(key, values.len()));
            return None;
        };
        let value = self.tensor(value, None, builder)?;
        let mut operands = operands?;
        operands.push(value);
        Some(operands)
    }

    /// Reports a body, and operands by name.
    fn only_positions(&mut self, call: &Call, operation: &Operation, builder: &mut RegionBuilder) {
        if call.body.is_some() {
            self.cx.error(&call.name, messages::body_of(operation.name));
        }
        let is_other = |key: &Ident| match operation.lower {
            Lower::OperandsAnd(other, _) => key == other,
            _ => false,
        };
        for (key, values) in call.named.iter().filter(|(key, _)| !is_other(key)) {
            self.cx.error(key, messages::named_operand(operation, key));
            if operation.key(&key.to_string()).is_none() {
                self.read_all(values, builder);
            }
        }
    }

    /// The operands of a call, which are given by their position, and so many.
    pub(super) fn operands(
        &mut self,
        call: &Call,
        operation: &Operation,
        number: &RangeInclusive<usize>,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        self.only_positions(call, operation, builder);
        let operands: Vec<Option<ValueId>> = call
            .operands
            .iter()
            .map(|operand| self.tensor(operand, None, builder))
            .collect();
        let operands: Vec<ValueId> = operands.into_iter().collect::<Option<_>>()?;
        if !number.contains(&operands.len()) {
            let message = messages::number_of_operands(operation, operands.len());
            self.cx.error(&call.name, message);
            return None;
        }
        Some(operands)
    }

    /// The size of a required key.
    pub(crate) fn required(&mut self, call: &CallSite<'_>, key: &str) -> Option<Size> {
        let size = call.arguments.size(key);
        let is_given = call.arguments.is_given(key);
        if size.is_none() && !is_given && call.arguments.complete {
            self.cx
                .error(call.at, messages::missing_key_of(call.at, key));
        }
        let size = size?;
        let at = first(&size.origin);
        self.at_least_one(&size, at, messages::zero_size(key))
            .then_some(size)
    }

    /// A field for a layer, with the name and the initial distribution that its keys ask for.
    pub(crate) fn layer(
        &mut self,
        call: &CallSite<'_>,
        layer: impl Layer + 'static,
        output: &Type,
        builder: &RegionBuilder,
    ) -> ParamPath {
        let asked = (call.operation.name, call.arguments.name.as_ref());
        let layer = Submodule::Layer(Box::new(layer));
        let place = self.field(builder.module, asked, layer, output.to_string());
        let init = self.init(call.arguments);
        self.begin(&place, init);
        place
    }

    pub(crate) fn init(&mut self, arguments: &Arguments) -> Option<Distribution> {
        let Some(Value::Word(call)) = arguments.value("init") else {
            return None;
        };
        self.sound(Distribution::of(call))
    }

    /// The distribution, if its number is positive.
    pub(super) fn sound(&mut self, distribution: Distribution) -> Option<Distribution> {
        let is_sound = match distribution.scale() {
            Some((scale, what)) => self.is_positive(scale, what),
            None => true,
        };
        is_sound.then_some(distribution)
    }

    /// The type of the first operand, which must be floats.
    pub(crate) fn floats_of(&mut self, call: &CallSite<'_>) -> Option<Type> {
        let x = self.ty(call.operands[0]).clone();
        if x.kind != ValueKind::Floats {
            let message = messages::expected_floats(call.operation.name, &x);
            self.cx.error(call.at, message);
            return None;
        }
        Some(x)
    }

    /// Reports an operand that an operation does not take.
    pub(crate) fn takes(&self, operation: &Ident, takes: &str, found: &Type) {
        let message = messages::takes(operation, takes, found);
        self.cx.error(operation, message);
    }

    /// A vector for each of the ids.
    pub(crate) fn vector_per_id(&self, at: &Ident, ids: &Type, width: &Size) -> Option<Type> {
        if ids.kind != ValueKind::Ids {
            self.takes(at, "ids[..]", ids);
            return None;
        }
        let axes = ids.axes.len() + 1;
        if axes > MOST_AXES {
            let message = messages::too_many_axes(&at.to_string(), axes, MOST_AXES);
            self.cx.error(at, message);
            return None;
        }
        let axes = ids.axes.iter().cloned();
        Some(Type::floats(
            axes.chain([Axis::Size(width.clone())]).collect(),
        ))
    }

    /// A vector for each of the tokens of the first operand.
    pub(crate) fn vector_per_position(&self, call: &CallSite<'_>, width: &Size) -> Option<Type> {
        let x = self.ty(call.operands[0]);
        let ty = match x.kind {
            ValueKind::Ids => self.vector_per_id(call.at, x, width)?,
            _ => x.ending_in(width.clone()),
        };
        let is_counted = matches!(x.kind, ValueKind::Ids | ValueKind::Floats);
        if !is_counted || !(2..=3).contains(&ty.axes.len()) {
            let takes = "ids[seq], ids[batch, seq], or floats of these axes and a width";
            self.takes(call.at, takes, x);
            return None;
        }
        Some(ty)
    }

    /// The last axis of `x`, which must be a constant.
    pub(crate) fn width(&mut self, operation: &Ident, x: &Type) -> Option<Size> {
        let message = match x.axes.last() {
            Some(Axis::Size(width)) if x.kind == ValueKind::Floats => return Some(width.clone()),
            Some(Axis::Symbol(axis)) if x.kind == ValueKind::Floats => {
                messages::width_is_an_axis(operation, &axis.name, &self.item.name, x)
            }
            _ => messages::takes(operation, messages::LAST_AXIS, x),
        };
        self.cx.error(operation, message);
        None
    }
}

/// `bias = false`
pub(crate) fn is_without_bias(entry: &Entry) -> bool {
    entry.key.name == "bias" && word_of(&entry.value) == Some("false")
}
