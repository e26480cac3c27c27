//! Expressions: names, numbers, and what operators make of them.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;

use super::{Frame, Lowering};
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::sizes;
use crate::model::syntax::{Expr, Operator};
use crate::model::types::{Axis, Same, Type, ValueKind};
use crate::ops::{Elementwise, Expand};
use crate::score::Binary;
use crate::spec::Real;

/// The operand of an operator.
enum Operand {
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
        expr: &Expr,
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        match self.operand(expr, name, frame)? {
            Operand::Tensor(value) => Some(value),
            Operand::Number(_) => {
                self.error(expr.span(), messages::NUMBER_ALONE);
                None
            }
        }
    }

    /// The same, of floats.
    pub(super) fn floats(&mut self, expr: &Expr, what: &str, frame: &mut Frame) -> Option<ValueId> {
        let value = self.tensor(expr, None, frame)?;
        if self.ty(value).kind != ValueKind::Floats {
            let message = messages::expected_floats(what, self.ty(value));
            self.error(expr.span(), message);
            return None;
        }
        Some(value)
    }

    /// Whether an expression is made of numbers and sizes.
    pub(super) fn is_number(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Name(name) => self.scopes.find(name).is_none() && self.sizes.has(name),
            Expr::Number(_) => true,
            Expr::Negate(_, inner) => self.is_number(inner),
            Expr::Binary { sides, .. } => sides.iter().all(|side| self.is_number(side)),
            Expr::Call(_) | Expr::Invalid(_) => false,
        }
    }

    /// After a mistake: operands that have mistakes of their own. Numbers have none.
    pub(super) fn read_all<'e>(
        &mut self,
        operands: impl IntoIterator<Item = &'e Expr>,
        frame: &mut Frame,
    ) {
        for operand in operands {
            if !self.is_number(operand) {
                self.tensor(operand, None, frame);
            }
        }
    }

    fn operand(&mut self, expr: &Expr, name: Option<&Ident>, frame: &mut Frame) -> Option<Operand> {
        match expr {
            Expr::Name(name) => self.variable(name),
            Expr::Number(tokens) => self.number(tokens).map(Operand::Number),
            Expr::Negate(at, inner) => {
                let inner = self.operand(inner, None, frame)?;
                let sign = Sign { at: *at, text: "-" };
                self.scale(inner, &Real::known(-1.0), sign, name, frame)
            }
            Expr::Binary {
                operator,
                at,
                sides,
            } => {
                let left = self.operand(&sides[0], None, frame);
                let right = self.operand(&sides[1], None, frame);
                self.binary(*operator, *at, [left?, right?], name, frame)
            }
            Expr::Call(call) => self.call(call, name, frame).map(Operand::Tensor),
            Expr::Invalid(_) => None,
        }
    }

    fn variable(&mut self, name: &Ident) -> Option<Operand> {
        match self.scopes.read(name) {
            Some(variable) => variable.value.map(Operand::Tensor),
            None if self.sizes.has(name) => {
                let size = self.sizes.get(name)?;
                Some(Operand::Number(size.to_real()))
            }
            None => {
                self.unknown_variable(name);
                None
            }
        }
    }

    fn number(&mut self, tokens: &TokenStream) -> Option<Real> {
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
        let mut number = crate::spec::parse_number(&number, "an operand", self.cx)?;
        self.constants.name(&mut number);
        Some(number)
    }

    fn binary(
        &mut self,
        operator: Operator,
        at: Span,
        sides: [Operand; 2],
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<Operand> {
        use Operand::{Number, Tensor};
        let sign = Sign {
            at,
            text: operator.text(),
        };
        match (operator, sides) {
            (_, [Tensor(a), Tensor(b)]) => self.tensors(operator, at, [a, b], name, frame),
            (_, [Number(a), Number(b)]) => real(operator, &a, &b).map(Number).or_else(|| {
                self.error(at, messages::NOT_A_NUMBER);
                None
            }),
            (Operator::Add, [Tensor(x), Number(c)] | [Number(c), Tensor(x)]) => {
                self.shift(x, c, sign, name, frame)
            }
            (Operator::Sub, [Tensor(x), Number(c)]) => {
                let c = real(Operator::Sub, &Real::known(0.0), &c)?;
                self.shift(x, c, sign, name, frame)
            }
            (Operator::Sub, [Number(c), Tensor(x)]) => {
                let minus = self.scale(Tensor(x), &Real::known(-1.0), sign, None, frame)?;
                match minus {
                    Tensor(minus) => self.shift(minus, c, sign, name, frame),
                    Number(_) => None,
                }
            }
            (Operator::Mul, [Tensor(x), Number(c)] | [Number(c), Tensor(x)]) => {
                self.scale(Tensor(x), &c, sign, name, frame)
            }
            (Operator::Div, [Tensor(x), Number(c)]) => {
                match real(Operator::Div, &Real::known(1.0), &c) {
                    Some(inverse) => self.scale(Tensor(x), &inverse, sign, name, frame),
                    None => {
                        self.error(at, messages::NOT_A_NUMBER);
                        None
                    }
                }
            }
            (Operator::Div, [Number(_), Tensor(_)]) => {
                self.error(at, messages::DIVISION_BY_TENSOR);
                None
            }
        }
    }

    fn scale(
        &mut self,
        x: Operand,
        factor: &Real,
        sign: Sign,
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<Operand> {
        match x {
            Operand::Number(number) => real(Operator::Mul, factor, &number).map(Operand::Number),
            Operand::Tensor(x) => {
                let op = Elementwise::with_number(Binary::Mul, factor);
                self.with_number(op, ("scale", x), sign, name, frame)
            }
        }
    }

    fn shift(
        &mut self,
        x: ValueId,
        by: Real,
        sign: Sign,
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<Operand> {
        let op = Elementwise::with_number(Binary::Add, &by);
        self.with_number(op, ("shift", x), sign, name, frame)
    }

    fn with_number(
        &mut self,
        op: Elementwise,
        (kind, x): (&str, ValueId),
        sign: Sign,
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<Operand> {
        let ty = self.ty(x).clone();
        if ty.kind != ValueKind::Floats {
            self.error(sign.at, messages::expected_floats(sign.text, &ty));
            return None;
        }
        let name = named(name, kind);
        Some(Operand::Tensor(self.node(frame, op, vec![x], (&name, ty))))
    }

    /// Of two tensors, whose axes are the same, or 1.
    fn tensors(
        &mut self,
        operator: Operator,
        at: Span,
        sides: [ValueId; 2],
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<Operand> {
        if let Operator::Div = operator {
            self.error(at, messages::DIVISION_BY_TENSOR);
            return None;
        }
        let [left, right] = sides.map(|side| self.ty(side).clone());
        let message = || messages::operands_differ(operator.text(), &left, &right);
        let floats = [&left, &right]
            .iter()
            .all(|side| side.kind == ValueKind::Floats);
        if !floats || left.axes.len() != right.axes.len() {
            self.error(at, message());
            return None;
        }
        let mut axes = Vec::new();
        let mut conditions = Vec::new();
        for (a, b) in left.axes.iter().zip(&right.axes) {
            let axis = match a.same(b) {
                Same::Yes => a,
                // A size that only rustc knows may be 1, too. Then the two are equal.
                _ if a.is_one() => b,
                _ if b.is_one() => a,
                Same::No => {
                    self.error(at, message());
                    return None;
                }
                Same::If(more) => {
                    conditions.extend(more);
                    a
                }
            };
            axes.push(axis.clone());
        }
        if !conditions.is_empty() {
            self.assume(conditions, at, message());
        }
        let ty = Type::floats(axes);
        let sides = sides.map(|side| self.expanded(side, &ty, frame));
        let (op, kind) = match operator {
            Operator::Add => (Binary::Add, "add"),
            Operator::Sub => (Binary::Sub, "sub"),
            Operator::Mul => (Binary::Mul, "mul"),
            Operator::Div => return None,
        };
        let is_again = sides[0] == sides[1];
        let op = Elementwise::binary(op, is_again);
        let sides = sides[..op.operands()].to_vec();
        let result = self.node(frame, op, sides, (&named(name, kind), ty));
        Some(Operand::Tensor(result))
    }

    /// The value with its axes of size 1 repeated, where `ty` has more.
    fn expanded(&mut self, value: ValueId, ty: &Type, frame: &mut Frame) -> ValueId {
        let axes = self.ty(value).axes.iter().zip(&ty.axes);
        let is_repeated = |(from, to): (&Axis, &Axis)| from.is_one() && !to.is_one();
        if axes.into_iter().any(is_repeated) {
            self.node(frame, Expand, vec![value], ("expand", ty.clone()))
        } else {
            value
        }
    }
}

/// The user's name for a value, or that of the operation.
pub(super) fn named(name: Option<&Ident>, kind: &str) -> String {
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
        };
        return value.is_finite().then(|| Real::known(value));
    }
    let tokens = match operator {
        Operator::Add => quote!(((#a) as f64 + (#b) as f64)),
        Operator::Sub => quote!(((#a) as f64 - (#b) as f64)),
        Operator::Mul => quote!(((#a) as f64 * (#b) as f64)),
        Operator::Div => quote!(((#a) as f64 / (#b) as f64)),
    };
    Real::from_expr(&syn::parse2(tokens).ok()?)
}
