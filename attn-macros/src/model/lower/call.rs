//! Calls of operations: their keys, and the shapes that they take and return.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::ext::IdentExt;

use super::arguments::{Arguments, word_of};
use super::operators::named;
use super::{Frame, Lowering};
use crate::messages::model as messages;
use crate::model::graph::{Activation, Op, Place, Step, Submodule, ValueId};
use crate::model::ops::{FEED_FORWARDS, Operation};
use crate::model::syntax::{Call, Expr, first};
use crate::model::types::{Axis, Kind, Type};
use crate::spec::parse::{Entry, Value};
use crate::spec::{Init, Real, Size};

impl Lowering<'_> {
    pub(super) fn call(
        &mut self,
        call: &Call,
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let Some(operation) = Operation::find(&call.name.to_string()) else {
            self.cx
                .error(&call.name, messages::unknown_operation(&call.name));
            // What stands in the parentheses has mistakes of its own, and is read.
            let named = call.named.iter().flat_map(|(_, values)| values);
            self.read_all(call.operands.iter().chain(named), frame);
            return None;
        };
        let arguments = self.arguments(call, operation);
        let label = arguments.name.as_ref().map(|name| name.unraw().to_string());
        if self.has_numbers(call, operation) {
            self.read_all(&call.operands, frame);
            return None;
        }
        let result = match operation.name {
            "attention" => self.attention(call, arguments, name, frame),
            _ => self.plain_call(call, operation, &arguments, name, frame),
        };
        if let (Some(_), Some(Step::Node(node))) = (result, frame.region.steps.last_mut()) {
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

    /// A call of anything but an attention.
    fn plain_call(
        &mut self,
        call: &Call,
        operation: &Operation,
        arguments: &Arguments,
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        if call.body.is_some() {
            self.cx.error(&call.name, messages::body_of(operation.name));
        }
        for (key, values) in &call.named {
            self.cx.error(key, messages::named_operand(operation, key));
            if operation.key(&key.to_string()).is_none() {
                self.read_all(values, frame);
            }
        }
        let operands: Vec<Option<ValueId>> = call
            .operands
            .iter()
            .map(|operand| self.tensor(operand, None, frame))
            .collect();
        let operands: Vec<ValueId> = operands.into_iter().collect::<Option<_>>()?;
        let (least, most) = match operation.name {
            "concat" => (2, usize::MAX),
            "mean_pool" => (1, 2),
            "module" => (1, usize::MAX),
            _ => (1, 1),
        };
        if !(least..=most).contains(&operands.len()) {
            self.cx.error(
                &call.name,
                messages::number_of_operands(operation, operands.len()),
            );
            return None;
        }
        self.operation(call, operation, arguments, &operands, name, frame)
    }

    /// The size of a required key.
    fn required(&mut self, call: &Call, arguments: &Arguments, key: &str) -> Option<Size> {
        let size = arguments.size(key);
        let is_given = arguments.is_given(key);
        if size.is_none() && !is_given && arguments.complete {
            self.cx
                .error(&call.name, messages::missing_key_of(&call.name, key));
        }
        let size = size?;
        let at = first(&size.origin);
        self.at_least_one(&size, at, messages::zero_size(key))
            .then_some(size)
    }

    fn operation(
        &mut self,
        call: &Call,
        operation: &Operation,
        arguments: &Arguments,
        operands: &[ValueId],
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let types: Vec<Type> = operands.iter().map(|id| self.ty(*id).clone()).collect();
        let kind = operation.name;
        let value_name = named(name, kind);
        let x = &types[0];
        let place = |this: &mut Self, layer: Submodule, output: &Type, frame: &Frame| {
            this.layer(kind, arguments, layer, output, frame)
        };
        let (op, ty): (Op, Type) = match kind {
            "embedding" => {
                if let Some(tied) = &arguments.tied {
                    let table = self.table(tied, arguments, frame)?;
                    let ty = self.appended(call, x, Kind::Ids, &table.width)?;
                    let op = Op::Embedding(table.place);
                    return Some(self.node(frame, op, operands.to_vec(), (&value_name, ty)));
                }
                let vocab = self.required(call, arguments, "vocab");
                let width = self.required(call, arguments, "d_model");
                let (vocab, width) = (vocab?, width?);
                let ty = self.appended(call, x, Kind::Ids, &width)?;
                let layer = Submodule::Embedding { vocab, width };
                (Op::Embedding(place(self, layer, &ty, frame)), ty)
            }
            "learned_position" => {
                let max_len = self.required(call, arguments, "max_len");
                let width = self.required(call, arguments, "d_model");
                let (max_len, width) = (max_len?, width?);
                let ty = self.positions(call, x, &width)?;
                let layer = Submodule::LearnedPosition { max_len, width };
                (Op::LearnedPosition(place(self, layer, &ty, frame)), ty)
            }
            "sinusoidal_position" => {
                let width = self.required(call, arguments, "d_model")?;
                (Op::SinusoidalPosition, self.positions(call, x, &width)?)
            }
            "linear" => return self.linear(call, arguments, operands[0], &value_name, frame),
            "feed_forward" => {
                let hidden = self.required(call, arguments, "hidden");
                let width = self.width(call, x);
                let (hidden, width) = (hidden?, width?);
                let layer = Submodule::FeedForward {
                    width,
                    hidden,
                    activation: activation(arguments.word("activation").unwrap_or("gelu")),
                };
                (Op::FeedForward(place(self, layer, x, frame)), x.clone())
            }
            "layer_norm" => {
                let layer = Submodule::LayerNorm {
                    epsilon: self.epsilon(arguments),
                    width: self.width(call, x)?,
                };
                (Op::LayerNorm(place(self, layer, x, frame)), x.clone())
            }
            "rms_norm" => {
                let layer = Submodule::RmsNorm {
                    epsilon: self.epsilon(arguments),
                    width: self.width(call, x)?,
                };
                (Op::RmsNorm(place(self, layer, x, frame)), x.clone())
            }
            "module" => return self.opaque(call, arguments, operands, &value_name, frame),
            "dropout" => (Op::Dropout(self.probability(call, arguments)?), x.clone()),
            "softmax" => (Op::Softmax, x.clone()),
            "concat" => return self.concat(call, operands, &value_name, frame),
            "mean_pool" => return self.mean_pool(call, operands, &value_name, frame),
            activation => (Op::Activation(self::activation(activation).ty), x.clone()),
        };
        self.takes(call, operation, &op, x)
            .then(|| self.node(frame, op, operands.to_vec(), (&value_name, ty)))
    }

    /// A field for a layer, with the name and the initial distribution that its keys ask for.
    fn layer(
        &mut self,
        kind: &str,
        arguments: &Arguments,
        layer: Submodule,
        output: &Type,
        frame: &Frame,
    ) -> Place {
        let asked = (kind, arguments.name.as_ref());
        let place = self.field(frame.module, asked, layer, output.to_string());
        let init = self.init(arguments);
        if let Some(field) = self.modules[frame.module.0].fields.last_mut() {
            field.init = init;
        }
        place
    }

    fn init(&mut self, arguments: &Arguments) -> Init {
        let Some(Value::Word(call)) = arguments.value("init") else {
            return Init::Torch;
        };
        match Init::of(call) {
            Init::Normal { std } if !self.is_positive(&std, Init::STD) => Init::Torch,
            init => init,
        }
    }

    /// All but the first layers take floats.
    fn takes(&mut self, call: &Call, operation: &Operation, op: &Op, x: &Type) -> bool {
        let any = matches!(
            op,
            Op::Embedding(_) | Op::LearnedPosition(_) | Op::SinusoidalPosition
        );
        if !any && x.kind != Kind::Floats {
            let message = messages::expected_floats(operation.name, x);
            self.cx.error(&call.name, message);
            return false;
        }
        true
    }

    /// Floats whose axes are those of `x`, and `width`.
    fn appended(&mut self, call: &Call, x: &Type, kind: Kind, width: &Size) -> Option<Type> {
        if x.kind != kind || x.axes.len() > 3 {
            self.cx
                .error(&call.name, messages::takes(&call.name, "ids[..]", x));
            return None;
        }
        let axes = x.axes.iter().cloned();
        Some(Type::floats(
            axes.chain([Axis::Size(width.clone())]).collect(),
        ))
    }

    /// A vector for each of the tokens of `x`.
    fn positions(&mut self, call: &Call, x: &Type, width: &Size) -> Option<Type> {
        let ty = match x.kind {
            Kind::Ids => self.appended(call, x, Kind::Ids, width)?,
            _ => x.ending_in(width.clone()),
        };
        let is_counted = matches!(x.kind, Kind::Ids | Kind::Floats);
        if !is_counted || !(2..=3).contains(&ty.axes.len()) {
            let takes = "ids[seq], ids[batch, seq], or floats of these axes and a width";
            self.cx
                .error(&call.name, messages::takes(&call.name, takes, x));
            return None;
        }
        Some(ty)
    }

    /// The last axis of `x`, which must be a constant.
    pub(super) fn width(&mut self, call: &Call, x: &Type) -> Option<Size> {
        let message = match x.axes.last() {
            Some(Axis::Size(width)) if x.kind == Kind::Floats => return Some(width.clone()),
            Some(Axis::Symbol(axis)) if x.kind == Kind::Floats => {
                messages::width_is_an_axis(&call.name, axis, &self.item.name, x)
            }
            _ => messages::takes(&call.name, messages::LAST_AXIS, x),
        };
        self.cx.error(&call.name, message);
        None
    }

    fn linear(
        &mut self,
        call: &Call,
        arguments: &Arguments,
        x: ValueId,
        name: &str,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let ty = self.ty(x).clone();
        if let Some(tied) = &arguments.tied {
            return self.tied_linear(call, tied, arguments, (x, &ty), name, frame);
        }
        let output = self.required(call, arguments, "out");
        let input = self.width(call, &ty);
        let (output, input) = (output?, input?);
        let result = ty.ending_in(output.clone());
        let layer = Submodule::Linear {
            input,
            output,
            bias: !arguments.entries.iter().any(is_without_bias),
        };
        let place = self.layer("linear", arguments, layer, &result, frame);
        Some(self.node(frame, Op::Linear(place), vec![x], (name, result)))
    }

    /// What a norm adds, if that is asked for.
    fn epsilon(&mut self, arguments: &Arguments) -> Option<Real> {
        let Some(Value::Number(epsilon)) = arguments.value("epsilon") else {
            return None;
        };
        self.is_positive(epsilon, "epsilon")
            .then(|| epsilon.clone())
    }

    /// Whether a number is positive; if that is for rustc to find out, the rule is noted.
    fn is_positive(&mut self, number: &Real, what: &str) -> bool {
        let message = crate::messages::not_positive(what, number);
        let at = first(&number.origin);
        match number.value {
            // What an f32 rounds to 0 is 0.
            Some(value) if value as f32 <= 0.0 => {
                self.error(at, message);
                return false;
            }
            Some(_) => {}
            None => {
                let number = quote!(((#number) as f32));
                let conditions = vec![quote!(#number > 0.0), quote!(#number.is_finite())];
                self.assume(conditions, at, message);
            }
        }
        true
    }

    fn probability(&mut self, call: &Call, arguments: &Arguments) -> Option<Real> {
        let Some(Value::Number(p)) = arguments.value("p") else {
            if arguments.value("p").is_none() && arguments.complete {
                self.cx
                    .error(&call.name, messages::missing_key_of(&call.name, "p"));
            }
            return None;
        };
        let message = || crate::messages::dropout_out_of_range(p);
        match p.value {
            Some(value) if !(0.0..1.0).contains(&value) => {
                self.error(first(&p.origin), message());
                None
            }
            Some(_) => Some(p.clone()),
            None => {
                let condition: TokenStream = quote!(#p >= 0.0 && #p < 1.0);
                self.assume(vec![condition], first(&p.origin), message());
                Some(p.clone())
            }
        }
    }

    fn concat(
        &mut self,
        call: &Call,
        operands: &[ValueId],
        name: &str,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let mut left = operands[0];
        for (index, right) in operands.iter().enumerate().skip(1) {
            let [a, b] = [left, *right].map(|side| self.ty(side).clone());
            let (a_width, b_width) = (self.width(call, &a)?, self.width(call, &b)?);
            let same_last = Type::floats(b.ending_in(a_width.clone()).axes);
            let message = || messages::concat_differs(&a, &b);
            if !self.agree(&a, &same_last, call.name.span(), message) {
                return None;
            }
            let ty = a.ending_in(a_width.plus(&b_width));
            let is_last = index + 1 == operands.len();
            let name = if is_last { name } else { "concat" };
            left = self.node(frame, Op::Concat, vec![left, *right], (name, ty));
        }
        Some(left)
    }

    fn mean_pool(
        &mut self,
        call: &Call,
        operands: &[ValueId],
        name: &str,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let x = self.ty(operands[0]).clone();
        let width = self.width(call, &x)?;
        if x.axes.len() < 2 {
            let message = messages::takes(&call.name, "[.., seq, d_model]", &x);
            self.cx.error(&call.name, message);
            return None;
        }
        let before = x.axes[..x.axes.len() - 2].iter().cloned();
        let ty = Type::floats(before.chain([Axis::Size(width)]).collect());
        let op = match operands.get(1) {
            None => Op::MeanPool,
            Some(_) if x.axes.len() != 3 => {
                let takes = "[batch, seq, d_model], and lens[batch] or bool[batch, seq]";
                self.cx
                    .error(&call.name, messages::takes(&call.name, takes, &x));
                return None;
            }
            Some(padding) => {
                let found = self.ty(*padding).clone();
                let (lens, mask) = (
                    Type::new(Kind::Lens, &x.axes[..1]),
                    Type::new(Kind::Bools, &x.axes[..2]),
                );
                let message = || messages::padding_of_pool(&lens, &mask, &found);
                let expected = if found.kind == Kind::Bools {
                    &mask
                } else {
                    &lens
                };
                if !self.agree(expected, &found, call.name.span(), message) {
                    return None;
                }
                Op::PaddedMeanPool
            }
        };
        Some(self.node(frame, op, operands.to_vec(), (name, ty)))
    }
}

/// `bias = false`
pub(super) fn is_without_bias(entry: &Entry) -> bool {
    entry.key.name == "bias" && word_of(&entry.value) == Some("false")
}

/// The nonlinearity of this name. The table knows it.
fn activation(name: &str) -> Activation {
    let found = FEED_FORWARDS.iter().find(|(word, ..)| *word == name);
    let (_, ty, gated) = found.copied().unwrap_or(("gelu", "Gelu", false));
    Activation { ty, gated }
}
