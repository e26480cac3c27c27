//! `buffer slope: [heads] = |h| pow(2, -8 * (h + 1) / heads);`
//!
//! The value is an expression of numbers: constants, and the indices of a place. It becomes a function that the program runs once for each
//! place, in `f64`.

use std::cell::Cell;

use proc_macro2::{Ident, Literal};
use quote::quote;
use syn::ext::IdentExt;

use super::{Lowering, RegionBuilder};
use crate::emit::expr::host;
use crate::messages::model as messages;
use crate::model::graph::{self, ValueId};
use crate::model::sizes::{self, ConstValue};
use crate::model::syntax::{BufferDraft, Call, Comparison, Condition, Expr, Operator};
use crate::model::types::Type;
use crate::ops::Buffer;
use crate::score::{self, Binary};
use crate::spec::Real;
use crate::spec::body::{self, Function};

/// The indices along the axes, by name, and whether the expression reads them.
struct Indices<'d>(Vec<(&'d Ident, Cell<bool>)>);

impl Indices<'_> {
    fn place(&self, name: &Ident) -> Option<usize> {
        let place = self.0.iter().position(|(index, _)| *index == name)?;
        self.0[place].1.set(true);
        Some(place)
    }
}

impl Lowering<'_> {
    pub(super) fn buffer(
        &mut self,
        draft: &BufferDraft,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let ty = self.type_of_constants(&draft.name, &draft.ty, "a buffer");
        let value = self.value_of_buffer(draft);
        let (ty, value) = (ty?, value?);
        let sizes = ty.axes.iter().filter_map(|axis| axis.size().cloned());
        self.buffers.push(graph::Buffer {
            sizes: sizes.collect(),
            value: host(&value, 0),
        });
        let op = Buffer::new(self.buffers.len() - 1, &ty);
        let name = draft.name.unraw().to_string();
        Some(self.node(builder, op, Vec::new(), (&name, ty)))
    }

    /// A number as a value without axes.
    pub(super) fn constant(
        &mut self,
        name: &Ident,
        number: &Expr,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let value = self.number_at(number, &Indices(Vec::new()))?;
        let ty = Type::floats(Vec::new());
        self.buffers.push(graph::Buffer {
            sizes: Vec::new(),
            value: host(&value, 0),
        });
        let op = Buffer::new(self.buffers.len() - 1, &ty);
        let name = format!("initial_{}", name.unraw());
        Some(self.node(builder, op, Vec::new(), (&name, ty)))
    }

    fn value_of_buffer(&mut self, draft: &BufferDraft) -> Option<score::Expr> {
        let before = self.cx.count();
        let names = draft.indices.iter().flatten();
        let names: Vec<_> = names.map(|name| (name, Cell::new(false))).collect();
        for (place, (name, _)) in names.iter().enumerate() {
            let is_again = names[..place].iter().any(|(other, _)| other == name);
            if is_again && *name != "_" {
                self.cx.error(name, messages::index_twice(name));
            }
        }
        let axes = draft.ty.axes.len();
        if draft.indices.is_some() && names.len() != axes {
            let at = names.get(axes).or(names.last()).map(|(name, _)| *name);
            let message = messages::number_of_indices(&draft.name, axes, names.len());
            self.cx.error(at.unwrap_or(&draft.name), message);
        }
        let indices = Indices(names);
        let value = self.number_at(&draft.value, &indices);
        if self.cx.count() > before {
            return None;
        }
        for (name, is_read) in &indices.0 {
            if !is_read.get() && !name.to_string().starts_with('_') {
                self.cx.error(name, messages::unused_index(name));
            }
        }
        value
    }

    /// The number at a place.
    fn number_at(&mut self, expr: &Expr, indices: &Indices<'_>) -> Option<score::Expr> {
        Some(match expr {
            Expr::Name(name) => match indices.place(name) {
                Some(place) => index(place, name),
                None => self.constant_of_buffer(name, indices)?,
            },
            Expr::Number(tokens) => {
                let inside = sizes::names(tokens);
                if let Some(index) = inside.iter().find(|name| indices.place(name).is_some()) {
                    self.cx.error(index, messages::index_in_braces(index));
                    return None;
                }
                float(&self.number(tokens)?)
            }
            Expr::Negate(_, inner) => score::Expr::float(-1.0) * self.number_at(inner, indices)?,
            Expr::Binary {
                operator, sides, ..
            } => {
                let [left, right] = self.both(sides, indices)?;
                left.binary(binary(*operator), right)
            }
            Expr::Call(call) => return self.function_at(call, indices),
            Expr::If {
                condition,
                branches,
                ..
            } => {
                let condition = self.condition_at(condition, indices);
                let [then, otherwise] = self.both(branches, indices)?;
                match condition? {
                    score::Expr::Bool(true) => then,
                    score::Expr::Bool(false) => otherwise,
                    condition => condition.select(then, otherwise),
                }
            }
            Expr::Index { value, .. } | Expr::Rename { value, .. } => {
                self.error(value.span(), messages::VALUE_IN_BUFFER);
                return None;
            }
            Expr::Invalid(_) => return None,
        })
    }

    fn both(&mut self, sides: &[Expr; 2], indices: &Indices<'_>) -> Option<[score::Expr; 2]> {
        let [left, right] = sides.each_ref().map(|side| self.number_at(side, indices));
        Some([left?, right?])
    }

    /// A constant of the header, or a mistake.
    fn constant_of_buffer(&mut self, name: &Ident, indices: &Indices<'_>) -> Option<score::Expr> {
        let text = name.unraw().to_string();
        let is_elsewhere = self.axis_of_name(&text).is_some() || text.to_uppercase() == text;
        match self.sizes.get(name) {
            Some(ConstValue::Size(size)) => Some(score::Expr::Float(size.to_number())),
            Some(ConstValue::Number(number)) => Some(float(&number)),
            Some(ConstValue::Switch(_)) => {
                self.cx.error(name, messages::switch_as_value(name));
                None
            }
            Some(ConstValue::Numbers(_)) => {
                self.cx.error(name, messages::list_as_value(name));
                None
            }
            None if self.sizes.has(name) => None,
            None => {
                match self.scopes.read(name).map(|variable| variable.value) {
                    Some(Some(_)) => self.cx.error(name, messages::VALUE_IN_BUFFER),
                    Some(None) => {}
                    None if is_elsewhere => self.unknown_variable(name),
                    None => {
                        let indices = indices.0.iter().map(|(index, _)| index.to_string());
                        let names = indices.chain(self.sizes.names());
                        let message = messages::unknown_in_buffer(name, &names.collect::<Vec<_>>());
                        self.cx.error(name, message);
                    }
                }
                None
            }
        }
    }

    fn function_at(&mut self, call: &Call, indices: &Indices<'_>) -> Option<score::Expr> {
        let name = call.name.to_string();
        let args = call.operands.iter();
        let args: Vec<_> = args.map(|arg| self.number_at(arg, indices)).collect();
        let has_more = !call.arguments.is_empty() || !call.named.is_empty() || call.body.is_some();
        let function = Function::find(&name).filter(|_| !has_more && call.misplaced.is_none());
        let Some(function) = function else {
            self.cx
                .error(&call.name, messages::function_of_buffer(&call.name));
            return None;
        };
        let expected = function.arity();
        if args.len() != expected {
            let message = messages::arguments_in_buffer(&call.name, expected, args.len());
            self.cx.error(&call.name, message);
            return None;
        }
        let args = args.into_iter().collect::<Option<Vec<_>>>()?;
        if let Some([lo, hi]) = body::upside_down(&args) {
            let message = crate::messages::body::clamp_upside_down(lo, hi);
            self.cx.error(&call.name, message);
            return None;
        }
        Some(function.of(&args))
    }

    fn condition_at(
        &mut self,
        condition: &Condition,
        indices: &Indices<'_>,
    ) -> Option<score::Expr> {
        let mut both = |sides: &[Condition; 2]| {
            let [left, right] = sides
                .each_ref()
                .map(|side| self.condition_at(side, indices));
            Some((left?, right?))
        };
        Some(match condition {
            Condition::Switch(name) => match self.sizes.get(name) {
                Some(ConstValue::Switch(value)) => score::Expr::Bool(value),
                _ => {
                    self.no_switch(name);
                    return None;
                }
            },
            Condition::Not(inner) => !self.condition_at(inner, indices)?,
            Condition::And(sides) => {
                let (left, right) = both(sides)?;
                left & right
            }
            Condition::Or(sides) => {
                let (left, right) = both(sides)?;
                left | right
            }
            Condition::Compare { comparison, sides } => {
                let [left, right] = self.both(sides, indices)?;
                match comparison {
                    Comparison::Less => left.less(right),
                    Comparison::AtMost => left.at_most(right),
                    Comparison::Greater => right.less(left),
                    Comparison::AtLeast => right.at_most(left),
                    Comparison::Equal => left.equals(right),
                    Comparison::NotEqual => !left.equals(right),
                }
            }
        })
    }
}

/// An index of the place: an element of the argument of the function.
fn index(axis: usize, name: &Ident) -> score::Expr {
    let axis = Literal::usize_unsuffixed(axis);
    score::Expr::Float(Real::computed(quote!(at[#axis]), name.to_string()))
}

/// A constant, which may be a size, as a float.
fn float(number: &Real) -> score::Expr {
    score::Expr::Float(match number.value {
        Some(value) => Real::known(value),
        None => Real::computed(quote!(((#number) as f64)), number.to_string()),
    })
}

fn binary(operator: Operator) -> Binary {
    match operator {
        Operator::Add => Binary::Add,
        Operator::Sub => Binary::Sub,
        Operator::Mul => Binary::Mul,
        Operator::Div => Binary::Div,
        Operator::Rem => Binary::Rem,
    }
}
