//! Expressions: names, numbers, and what operators make of them.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;

use super::{Lowering, RegionBuilder};
use crate::diag::Diagnostics;
use crate::emit::expr::host;
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::sizes::{self, ConstValue};
use crate::model::syntax::{self, Call, Operator};
use crate::model::types::{Type, ValueKind};
use crate::ops::{Elementwise, Lower, Operation};
use crate::score::eval::{self, Value};
use crate::score::{Binary, Expr};
use crate::spec::Real;
use crate::spec::body::{self, Function};

/// The operand of an operator.
pub(super) enum Operand {
    Tensor(ValueId),
    Number(Real),
}

/// An operator where it stands.
#[derive(Clone, Copy)]
struct Sign {
    at: Span,
    text: &'static str,
}

impl Lowering<'_> {
    /// The value of an expression that has axes; named after `name`, or else after the operation.
    pub(super) fn tensor(
        &mut self,
        expr: &syntax::Expr,
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        match self.operand(expr, name, builder)? {
            Operand::Tensor(value) => Some(value),
            Operand::Number(_) => {
                self.error(expr.span(), messages::NUMBER_ALONE);
                None
            }
        }
    }

    /// The same, of floats.
    pub(super) fn floats(
        &mut self,
        expr: &syntax::Expr,
        what: &str,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let value = self.tensor(expr, None, builder)?;
        if self.ty(value).kind != ValueKind::Floats {
            let message = messages::expected_floats(what, self.ty(value));
            self.error(expr.span(), message);
            return None;
        }
        Some(value)
    }

    /// Whether an expression is made of numbers and sizes.
    pub(super) fn is_number(&self, expr: &syntax::Expr) -> bool {
        match expr {
            syntax::Expr::Name(name) => self.scopes.find(name).is_none() && self.sizes.has(name),
            syntax::Expr::Number(_) => true,
            syntax::Expr::Negate(_, inner) => self.is_number(inner),
            syntax::Expr::Binary { sides, .. } => sides.iter().all(|side| self.is_number(side)),
            syntax::Expr::Call(call) => {
                let mut operands = call.operands.iter();
                function_of(call).is_some() && operands.all(|operand| self.is_number(operand))
            }
            syntax::Expr::Index { .. }
            | syntax::Expr::Rename { .. }
            | syntax::Expr::If { .. }
            | syntax::Expr::Invalid(_) => false,
        }
    }

    /// After a mistake: operands that have mistakes of their own. Numbers have none.
    pub(super) fn read_all<'e>(
        &mut self,
        operands: impl IntoIterator<Item = &'e syntax::Expr>,
        builder: &mut RegionBuilder,
    ) {
        for operand in operands {
            if !self.is_number(operand) {
                self.tensor(operand, None, builder);
            }
        }
    }

    pub(super) fn operand(
        &mut self,
        expr: &syntax::Expr,
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        match expr {
            syntax::Expr::Name(name) => self.variable(name),
            syntax::Expr::Number(tokens) => self.number(tokens).map(Operand::Number),
            syntax::Expr::Negate(at, inner) => self.negate(*at, inner, name, builder),
            syntax::Expr::Binary {
                operator,
                at,
                sides,
            } => {
                let sides = self.sides(sides, builder)?;
                self.binary(*operator, *at, sides, name, builder)
            }
            syntax::Expr::Call(call) => match function_of(call) {
                Some(called) => self.function(call, called, name, builder),
                None => self.call(call, name, builder).map(Operand::Tensor),
            },
            syntax::Expr::Index { value, indices, .. } => {
                let part = self.index(value, indices, name, builder);
                part.map(Operand::Tensor)
            }
            syntax::Expr::Rename { value, at, axes } => {
                let value = self.rename(value, (*at, axes), name, builder);
                value.map(Operand::Tensor)
            }
            syntax::Expr::If {
                at,
                condition,
                branches,
            } => self.choice(*at, condition, branches, name, builder),
            syntax::Expr::Invalid(_) => None,
        }
    }

    fn negate(
        &mut self,
        at: Span,
        inner: &syntax::Expr,
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        let inner = self.operand(inner, None, builder)?;
        let sign = Sign { at, text: "-" };
        self.scale(inner, &Real::known(-1.0), sign, name, builder)
    }

    fn sides(
        &mut self,
        [left, right]: &[syntax::Expr; 2],
        builder: &mut RegionBuilder,
    ) -> Option<[Operand; 2]> {
        let left = self.operand(left, None, builder);
        let right = self.operand(right, None, builder);
        Some([left?, right?])
    }

    fn variable(&mut self, name: &Ident) -> Option<Operand> {
        match self.scopes.read(name) {
            Some(variable) => {
                let value = variable.value?;
                self.seen(name, value).map(Operand::Tensor)
            }
            None if self.sizes.has(name) => {
                let number = match self.sizes.get(name)? {
                    ConstValue::Size(size) => size.to_number(),
                    ConstValue::Number(number) => number,
                    ConstValue::Switch(_) => {
                        self.cx.error(name, messages::switch_as_value(name));
                        return None;
                    }
                    ConstValue::Numbers(_) => {
                        self.cx.error(name, messages::list_as_value(name));
                        return None;
                    }
                };
                Some(Operand::Number(number))
            }
            None => {
                self.unknown_variable(name);
                None
            }
        }
    }

    /// The value of an expression of numbers and sizes, if it is known during the expansion.
    pub(super) fn known_number(&self, expr: &syntax::Expr) -> Option<f64> {
        match expr {
            syntax::Expr::Name(name) => match self.sizes.get(name)? {
                ConstValue::Size(size) => size.to_real().value,
                ConstValue::Number(number) => number.value,
                ConstValue::Numbers(_) | ConstValue::Switch(_) => None,
            },
            syntax::Expr::Number(tokens) => {
                let tokens = self.sizes.substitute(tokens);
                crate::spec::parse_number(&tokens, "", &Diagnostics::default())?.value
            }
            syntax::Expr::Negate(_, inner) => self.known_number(inner).map(|value| -value),
            syntax::Expr::Binary {
                operator, sides, ..
            } => {
                let [left, right] = sides.as_ref();
                let number = |side| self.known_number(side).map(Real::known);
                real(*operator, &number(left)?, &number(right)?)?.value
            }
            syntax::Expr::Call(call) => {
                let (_, function) = function_of(call)?;
                let operands = call.operands.iter();
                let args: Option<Vec<Expr>> = operands
                    .map(|operand| Some(Expr::Float(Real::known(self.known_number(operand)?))))
                    .collect();
                match eval::value(&function.of(&args?))? {
                    Value::Float(value) => Some(value),
                    _ => None,
                }
            }
            syntax::Expr::Index { .. }
            | syntax::Expr::Rename { .. }
            | syntax::Expr::If { .. }
            | syntax::Expr::Invalid(_) => None,
        }
    }

    pub(super) fn number(&mut self, tokens: &TokenStream) -> Option<Real> {
        let names = sizes::names(tokens);
        let is_variable = |name: &&Ident| self.scopes.find(name).is_some() && !self.sizes.has(name);
        if let Some(name) = names.iter().find(is_variable) {
            self.cx.error(name, messages::variable_as_constant(name));
            names.iter().for_each(|name| {
                self.scopes.read(name);
            });
            return None;
        }
        let number = self.sizes.substitute(tokens);
        if !self.is_constant(tokens) {
            return None;
        }
        let mut number = crate::spec::parse_number(&number, crate::messages::OPERAND, self.cx)?;
        self.constants.name(&mut number);
        Some(number)
    }

    fn binary(
        &mut self,
        operator: Operator,
        at: Span,
        sides: [Operand; 2],
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        use Operand::{Number, Tensor};
        let sign = Sign {
            at,
            text: operator.text(),
        };
        match (operator, sides) {
            (Operator::Rem, [Tensor(_), _] | [_, Tensor(_)]) => {
                self.error(at, messages::REMAINDER_OF_VALUES);
                None
            }
            (_, [Number(a), Number(b)]) => real(operator, &a, &b).map(Number).or_else(|| {
                self.error(at, messages::NOT_A_NUMBER);
                None
            }),
            (_, [Tensor(a), Tensor(b)]) => self.tensors(operator, at, [a, b], name, builder),
            (Operator::Add, [Tensor(x), Number(c)] | [Number(c), Tensor(x)]) => {
                self.shift(x, c, sign, name, builder)
            }
            (Operator::Sub, [Tensor(x), Number(c)]) => {
                let c = real(Operator::Sub, &Real::known(0.0), &c)?;
                self.shift(x, c, sign, name, builder)
            }
            (Operator::Sub, [Number(c), Tensor(x)]) => {
                let minus = self.scale(Tensor(x), &Real::known(-1.0), sign, None, builder)?;
                match minus {
                    Tensor(minus) => self.shift(minus, c, sign, name, builder),
                    Number(_) => None,
                }
            }
            (Operator::Mul, [Tensor(x), Number(c)] | [Number(c), Tensor(x)]) => {
                self.scale(Tensor(x), &c, sign, name, builder)
            }
            (Operator::Div, [Tensor(x), Number(c)]) => {
                match real(Operator::Div, &Real::known(1.0), &c) {
                    Some(inverse) => self.scale(Tensor(x), &inverse, sign, name, builder),
                    None => {
                        self.error(at, messages::NOT_A_NUMBER);
                        None
                    }
                }
            }
            (Operator::Div, [Number(c), Tensor(x)]) => {
                let expr = Expr::Float(c) / Expr::Operand(0);
                self.with_number(Elementwise::new(expr, 1), ("div", x), sign, name, builder)
            }
        }
    }

    fn scale(
        &mut self,
        x: Operand,
        factor: &Real,
        sign: Sign,
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        match x {
            Operand::Number(number) => real(Operator::Mul, factor, &number).map(Operand::Number),
            Operand::Tensor(x) => {
                let op = Elementwise::with_number(Binary::Mul, factor);
                self.with_number(op, ("scale", x), sign, name, builder)
            }
        }
    }

    fn shift(
        &mut self,
        x: ValueId,
        by: Real,
        sign: Sign,
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        let op = Elementwise::with_number(Binary::Add, &by);
        self.with_number(op, ("shift", x), sign, name, builder)
    }

    fn with_number(
        &mut self,
        op: Elementwise,
        (kind, x): (&str, ValueId),
        sign: Sign,
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        let ty = self.ty(x).clone();
        if ty.kind != ValueKind::Floats {
            self.error(sign.at, messages::expected_floats(sign.text, &ty));
            return None;
        }
        let name = named(name, kind);
        Some(Operand::Tensor(self.node(
            builder,
            op,
            vec![x],
            (&name, ty),
        )))
    }

    /// An operator of two tensors: the axes of one are among those of the other.
    fn tensors(
        &mut self,
        operator: Operator,
        at: Span,
        sides: [ValueId; 2],
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        let [left, right] = sides.map(|side| self.ty(side).clone());
        let lengths = self.lengths_differ(&left, &right);
        let differ = messages::operands_differ(operator.text(), &left, &right, lengths);
        let ty = self.common([&left, &right], at, &differ)?;
        let (op, kind) = match operator {
            Operator::Add => (Binary::Add, "add"),
            Operator::Sub => (Binary::Sub, "sub"),
            Operator::Mul => (Binary::Mul, "mul"),
            Operator::Div => (Binary::Div, "div"),
            Operator::Rem => (Binary::Rem, "rem"),
        };
        let [left, right] = [0, 1].map(Expr::Operand);
        let result = self.elementwise(
            left.binary(op, right),
            &sides,
            (&named(name, kind), ty),
            builder,
        );
        Some(Operand::Tensor(result))
    }

    /// A function of values with axes, and of numbers. Of numbers alone it is a number.
    fn function(
        &mut self,
        call: &Call,
        (operation, function): (&'static Operation, &Function),
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        self.keyless(call, operation, builder);
        let operands = self.read_operands(call, builder)?;
        self.function_of_operands(call, function, operands, name, builder)
    }

    fn read_operands(&mut self, call: &Call, builder: &mut RegionBuilder) -> Option<Vec<Operand>> {
        let mut operands = Vec::new();
        for operand in &call.operands {
            operands.push(self.operand(operand, None, builder));
        }
        operands.into_iter().collect()
    }

    fn function_of_operands(
        &mut self,
        call: &Call,
        function: &Function,
        operands: Vec<Operand>,
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        let at = call.name.span();
        if operands.len() != function.arity() {
            let has_axes =
                Operation::find(function.name).is_some_and(|found| !found.keys.is_empty());
            let message = messages::number_of_arguments(function, operands.len(), has_axes);
            self.error(at, message);
            return None;
        }
        let mut args = Vec::new();
        let mut values = Vec::new();
        for (index, operand) in operands.into_iter().enumerate() {
            args.push(match operand {
                Operand::Number(number) => Expr::Float(number),
                Operand::Tensor(_) if function.is_number(index) => {
                    self.error(call.operands[index].span(), messages::EXPONENT);
                    return None;
                }
                Operand::Tensor(value) => {
                    values.push(value);
                    Expr::Operand(values.len() - 1)
                }
            });
        }
        if let Some([lo, hi]) = body::upside_down(&args) {
            self.error(at, crate::messages::body::clamp_upside_down(lo, hi));
            return None;
        }
        if values.is_empty() {
            return self.function_of_numbers(function, &args, at);
        }
        let ty = self.common_of(&values, at, function.name)?;
        let result = (&*named(name, function.name), ty);
        let result = self.elementwise(function.of(&args), &values, result, builder);
        Some(Operand::Tensor(result))
    }

    /// Computed here if the numbers are known, left to the program if not.
    fn function_of_numbers(
        &mut self,
        function: &Function,
        args: &[Expr],
        at: Span,
    ) -> Option<Operand> {
        let number = match eval::value(&function.of(args)) {
            Some(Value::Float(value)) if value.is_finite() => Real::known(value),
            Some(_) => {
                self.error(at, messages::NOT_A_NUMBER);
                return None;
            }
            None => {
                let texts: Vec<_> = args.iter().map(Expr::to_string).collect();
                let floats = args.iter().zip(&texts).map(|(arg, text)| {
                    let arg = host(arg, 0);
                    Expr::Float(Real::computed(quote!(((#arg) as f64)), text.clone()))
                });
                let value = host(&function.of(&floats.collect::<Vec<_>>()), 0);
                let text = format!("{}({})", function.name, texts.join(", "));
                Real::computed(quote!((#value)), text)
            }
        };
        Some(Operand::Number(number))
    }

    /// An elementwise operation of values, which are repeated to its type. A value that stands there twice is one operand.
    pub(crate) fn elementwise(
        &mut self,
        expr: Expr,
        values: &[ValueId],
        (name, ty): (&str, Type),
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let mut operands: Vec<ValueId> = Vec::new();
        let values = values.iter().map(|value| {
            let value = self.expanded(*value, &ty, builder);
            let value = self.memory(value);
            let known = operands.iter().position(|operand| *operand == value);
            known.unwrap_or_else(|| {
                operands.push(value);
                operands.len() - 1
            })
        });
        let places: Vec<_> = values.collect();
        let expr = expr.with_operands(&|index| Expr::Operand(places[index]));
        let op = Elementwise::new(expr, operands.len());
        self.node(builder, op, operands, (name, ty))
    }
}

/// The function that is called, if it is one of values and of numbers.
fn function_of(call: &Call) -> Option<(&'static Operation, &'static Function)> {
    let operation = Operation::find(&call.name.to_string())?;
    let has_axis = || {
        let keys = call.arguments.iter().map(|argument| &argument.key);
        keys.into_iter()
            .any(|key| key.as_ref().is_none_or(|key| key == "axis"))
    };
    match operation.lower {
        Lower::Function(function) => Some((operation, function)),
        Lower::FunctionOrOperands(function, ..) if !has_axis() => Some((operation, function)),
        _ => None,
    }
}

/// The user's name for a value, or that of the operation.
pub(crate) fn named(name: Option<&Ident>, kind: &str) -> String {
    name.map_or_else(|| kind.to_owned(), |name| name.unraw().to_string())
}

/// Arithmetic on constants: done here if they are known, left to rustc if not.
fn real(operator: Operator, a: &Real, b: &Real) -> Option<Real> {
    if let (Some(a), Some(b)) = (a.value, b.value) {
        let value = match operator {
            Operator::Add => a + b,
            Operator::Sub => a - b,
            Operator::Mul => a * b,
            Operator::Div => a / b,
            Operator::Rem => a % b,
        };
        return value.is_finite().then(|| Real::known(value));
    }
    let tokens = match operator {
        Operator::Add => quote!(((#a) as f64 + (#b) as f64)),
        Operator::Sub => quote!(((#a) as f64 - (#b) as f64)),
        Operator::Mul => quote!(((#a) as f64 * (#b) as f64)),
        Operator::Div => quote!(((#a) as f64 / (#b) as f64)),
        Operator::Rem => quote!(((#a) as f64 % (#b) as f64)),
    };
    Real::from_expr(&syn::parse2(tokens).ok()?)
}
