//! `dot(q, table[i])` in the body of an `attend`: the products of all queries, or keys, with all rows are a value before it, which the body
//! reads as data.

use proc_macro2::{Ident, TokenStream};
use quote::format_ident;
use syn::parse::Parser;

use super::attend::{Role, Vectors};
use super::scope::Changes;
use super::{Lowering, RegionBuilder};
use crate::messages::body as messages;
use crate::model::expression::parse_expr;
use crate::model::graph::ValueId;
use crate::model::syntax::{self, Call};
use crate::model::types::{Axis, MOST_AXES_OF_TENSOR, Same, Type, ValueKind};
use crate::ops::Einsum;
use crate::score::{Expr, Var};
use crate::spec::body::{Dot, IndexOfProducts};
use crate::spec::parse::Draft;
use crate::spec::{Dim, Size};

/// Whose places a vector has.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Queries,
    Keys,
}

/// The vectors of an attention, and the values that they are written with.
struct Operands<'v> {
    sides: [(&'v Vectors, Vec<ValueId>); 2],
    texts: [String; 2],
    /// Their names, where the model has no variables of these.
    names: [Option<Ident>; 2],
}

/// Where an axis of the products is read.
type Read = (Dim, IndexOfProducts);

impl Lowering<'_> {
    /// Adds the products that the body reads, each with its name as data.
    pub(super) fn products(
        &mut self,
        call: &Call,
        draft: &mut Draft,
        [q, k]: [&Vectors; 2],
        builder: &mut RegionBuilder,
    ) -> Vec<(Ident, ValueId)> {
        let dots = draft.body.dots();
        if dots.is_empty() {
            return Vec::new();
        }
        let [of_queries, of_keys] = [0, 1].map(|operand| {
            let value = [q, k][operand].value;
            let mut values = self.values_in(&call.operands[operand], builder);
            values.push(value);
            values
        });
        let names = ["q", "k"].map(|name| format_ident!("{name}", span = call.name.span()));
        let operands = Operands {
            sides: [(q, of_queries), (k, of_keys)],
            texts: [0, 1].map(|operand| call.operands[operand].text()),
            names: names.map(|name| Some(name).filter(|name| self.scopes.find(name).is_none())),
        };
        let before = self.cx.count();
        self.scopes.open();
        for (name, (vectors, _)) in operands.names.iter().zip(&operands.sides) {
            if let Some(name) = name {
                self.scopes
                    .declare(name, Some(vectors.value), Changes::Never);
                self.scopes.set(name, vectors.value, true);
            }
        }
        let products = dots.into_iter().filter_map(|dot| {
            let (value, reads) = self.product(&dot, draft, &operands, builder)?;
            Some((draft.body.give_products(dot, reads), value))
        });
        let products = products.collect();
        self.scopes.close(self.cx);
        if self.cx.count() > before {
            draft.body.poison();
        }
        products
    }

    /// The products of a call, with the places where its axes are read.
    fn product(
        &mut self,
        dot: &Dot,
        draft: &Draft,
        operands: &Operands<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<(ValueId, Vec<Read>)> {
        let table = &dot.table;
        if draft.body.declares(table) && self.scopes.find(table).is_none() {
            self.cx.error(table, messages::table_of_the_body(table));
            return None;
        }
        let (value, side) = self.vector(&dot.vector, operands, builder)?;
        let of_table = self.tensor(&syntax::Expr::Name(table.clone()), None, builder)?;
        let ty = self.ty(of_table).clone();
        if ty.kind != ValueKind::Floats || ty.axes.len() < 2 {
            self.cx
                .error(table, messages::table_without_rows(table, &ty));
            return None;
        }
        if ty.axes.len() != dot.row.len() + 1 {
            let message = messages::row_of_table(table, &ty, dot.row.len());
            self.cx.error(table, message);
            return None;
        }
        let of = self.ty(value).clone();
        let widths =
            [&of, &ty].map(|ty| Type::floats(ty.axes.last().cloned().into_iter().collect()));
        let message = || messages::width_of_rows(table, &ty, &messages::vector(&dot.vector), &of);
        if !self.agree(&widths[0], &widths[1], table.span(), message) {
            return None;
        }
        let reads = self.reads(dot, (&of, &ty), side, operands)?;
        let (op, axes) = reads.product(&of, &ty);
        if axes.len() > MOST_AXES_OF_TENSOR {
            let message = messages::too_many_products(axes.len(), MOST_AXES_OF_TENSOR);
            self.cx.error(table, message);
            return None;
        }
        let name = format!("dots_of_{table}");
        let result = (&*name, Type::floats(axes));
        let products = self.node(builder, op, vec![value, of_table], result);
        Some((products, reads.all))
    }

    /// The vectors that a call multiplies, and whose places they have.
    fn vector(
        &mut self,
        tokens: &TokenStream,
        operands: &Operands<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<(ValueId, Side)> {
        let text = messages::vector(tokens);
        let at = syntax::first(tokens);
        let parsed = (|input: syn::parse::ParseStream<'_>| parse_expr(input, self.cx))
            .parse2(tokens.clone());
        let expr = match parsed {
            Ok(expr) => expr,
            Err(error) => {
                self.cx.push(error);
                return None;
            }
        };
        let value = self.floats(&expr, "dot", builder)?;
        let mut read = self.values_in(&expr, builder);
        read.push(value);
        let mut names = Vec::new();
        expr.for_each_name(&mut |name| names.push(name.clone()));
        let is_named = |name: &Option<Ident>| names.iter().any(|read| name.as_ref() == Some(read));
        let named = operands.names.each_ref().map(is_named);
        let [of_queries, of_keys] = [0, 1].map(|side: usize| {
            if named != [false; 2] {
                return named[side];
            }
            let [own, other] = [side, 1 - side].map(|side| &operands.sides[side].1);
            let is_own = |value: &ValueId| own.contains(value) && !other.contains(value);
            read.iter().any(is_own)
        });
        let side = match (of_queries, of_keys) {
            (true, false) => Side::Queries,
            (false, true) => Side::Keys,
            (is_both, _) => {
                let is_shared = |value| operands.sides.iter().all(|(_, of)| of.contains(value));
                let message = match is_both || read.iter().any(is_shared) {
                    true => messages::dot_of_both(&text),
                    false => {
                        let [queries, keys] = operands.texts.each_ref();
                        messages::dot_of_other(&text, [queries, keys])
                    }
                };
                self.error(at, message);
                return None;
            }
        };
        let (vectors, _) = &operands.sides[side as usize];
        let found = self.ty(value).clone();
        let what = ["queries", "keys"][side as usize];
        let message = || messages::vector_differs(&found, &vectors.ty, what);
        self.agree(&vectors.ty, &found, at, message)
            .then_some((value, side))
    }

    /// The values of the variables of an expression.
    fn values_in(&mut self, expr: &syntax::Expr, builder: &mut RegionBuilder) -> Vec<ValueId> {
        let mut names = Vec::new();
        expr.for_each_name(&mut |name| names.push(name.clone()));
        let known = |name: &Ident| {
            self.scopes
                .find(name)
                .is_some_and(|known| known.value.is_some())
        };
        names.retain(known);
        let names = names.into_iter().map(syntax::Expr::Name);
        names
            .filter_map(|name| self.tensor(&name, None, builder))
            .collect()
    }

    /// Where the products are read: at the place of the vector, and at the row.
    fn reads(
        &mut self,
        dot: &Dot,
        (of, table): (&Type, &Type),
        side: Side,
        operands: &Operands<'_>,
    ) -> Option<Reads> {
        let [(queries, _), (keys, _)] = &operands.sides;
        let vectors = [queries, keys][side as usize];
        let mut all = Vec::new();
        let mut places = Vec::new();
        for index in 0..of.axes.len() - 1 {
            let (dim, at) = match vectors.role(index) {
                Role::Batch => (Dim::Batch, Var::B.into()),
                Role::Sequence if side == Side::Queries => (Dim::Query, Var::QIdx.into()),
                Role::Sequence => (Dim::Key, Var::KvIdx.into()),
                Role::Heads => (
                    Dim::Size(vectors.count()?),
                    head(vectors.count()?, queries.count()?),
                ),
            };
            places.push(match &at {
                Expr::Var(var) => Some(*var),
                _ => None,
            });
            all.push((dim, IndexOfProducts::Place(at)));
        }
        let mut shared = Vec::new();
        for (number, (index, axis)) in dot.row.iter().zip(&table.axes).enumerate() {
            let place = Dot::place(index).and_then(|var| {
                let place = places.iter().position(|place| *place == Some(var))?;
                matches!(of.axes[place].same(axis), Same::Yes).then_some(place)
            });
            if place.is_none() {
                let dim = self.dim_of_rows(dot, axis, table, [queries, keys])?;
                all.push((dim, IndexOfProducts::Row(number)));
            }
            shared.push(place);
        }
        Some(Reads { all, shared })
    }

    /// The axis of a row, as data have it.
    fn dim_of_rows(
        &self,
        dot: &Dot,
        axis: &Axis,
        table: &Type,
        [queries, keys]: [&Vectors; 2],
    ) -> Option<Dim> {
        if let Axis::Size(size) = axis {
            return Some(Dim::Size(size.clone()));
        }
        let is = |other: &Axis| matches!(other.same(axis), Same::Yes);
        let batch = queries.batch().axes;
        match (is(&keys.len()), is(&queries.len()), batch.iter().any(is)) {
            (true, ..) => Some(Dim::Key),
            (_, true, _) => Some(Dim::Query),
            (.., true) => Some(Dim::Batch),
            _ => {
                let message = messages::rows_of_any_number(&dot.table, axis, table);
                self.cx.error(&dot.table, message);
                None
            }
        }
    }
}

/// The axes of the products.
struct Reads {
    all: Vec<Read>,
    /// For each index of a row, the axis of the vectors that it is the place of.
    shared: Vec<Option<usize>>,
}

impl Reads {
    /// The product of vectors and rows, and its axes.
    fn product(&self, of: &Type, table: &Type) -> (Einsum, Vec<Axis>) {
        let width = of.axes.len() - 1;
        let mut all = of.axes.clone();
        let mut of_table = Vec::new();
        for (axis, shared) in table.axes.iter().zip(&self.shared) {
            of_table.push(shared.unwrap_or(all.len()));
            if shared.is_none() {
                all.push(axis.clone());
            }
        }
        of_table.push(width);
        let of_vectors = (0..=width).collect();
        let result: Vec<usize> = (0..all.len()).filter(|axis| *axis != width).collect();
        let axes = result.iter().map(|axis| all[*axis].clone()).collect();
        (Einsum::new(all, [of_vectors, of_table, result]), axes)
    }
}

/// The head of the vectors, of which there are `count`, that the head of a query reads.
fn head(count: Size, heads: Size) -> Expr {
    let h = Expr::from(Var::H);
    match (count.value, count == heads) {
        (Some(1), _) => Expr::from(0),
        (_, true) => h,
        _ => h * Expr::from(&count) / Expr::from(&heads),
    }
}
