//! `dot(q, table[i])`: the product of a query or a key and a row of a table. The model around an `attend` multiplies all of them before,
//! and the function reads the number of its pair.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{ExprCall, Token};

use super::lower::Lower;
use super::names::{places, variable};
use super::operand::Operand;
use super::parse::{DataDraft, DimsDraft};
use super::{BodyDraft, FunctionKind, data, index, params};
use crate::messages::body as messages;
use crate::score::{Expr, Type, Var};
use crate::spec::Dim;
use crate::spec::keys::Key;

/// A call as written.
#[derive(Clone)]
pub(crate) struct Dot {
    /// What is multiplied, in the language of a model.
    pub(crate) vector: TokenStream,
    pub(crate) table: Ident,
    /// The indices of a row.
    pub(crate) row: Vec<syn::Expr>,
}

impl Dot {
    /// `None` if the call has another form.
    fn of(args: &Punctuated<syn::Expr, Token![,]>) -> Option<Dot> {
        let mut args = args.iter();
        let (Some(vector), Some(syn::Expr::Index(read)), None) =
            (args.next(), args.next(), args.next())
        else {
            return None;
        };
        let syn::Expr::Path(table) = &*read.expr else {
            return None;
        };
        Some(Dot {
            vector: index::without_tuples(vector.to_token_stream()),
            table: table.path.get_ident()?.clone(),
            row: places(&read.index).into_iter().cloned().collect(),
        })
    }

    /// The index that is the place of the pair in the batch, among the heads, or in a sequence.
    pub(crate) fn place(index: &syn::Expr) -> Option<Var> {
        let syn::Expr::Path(path) = index else {
            return None;
        };
        let var = variable(path.path.get_ident()?)?;
        (!matches!(var, Var::QLen | Var::KvLen)).then_some(var)
    }

    /// Whether both read the same products.
    fn is(&self, other: &Dot) -> bool {
        let [a, b] = [self, other].map(|dot| index::text_of(dot.vector.clone()));
        let places = |dot: &Dot| dot.row.iter().map(Dot::place).collect::<Vec<_>>();
        a == b && self.table == other.table && places(self) == places(other)
    }
}

/// The numbers that a model computes for a call, and for those that are equal but for the row: data of the body.
#[derive(Clone)]
pub(super) struct Products {
    of: Dot,
    data: Ident,
    /// For each axis of the data, its length and where it is read.
    axes: Vec<(Dim, IndexOfProducts)>,
}

/// Data that are products, in the words of a user.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    /// The name of the table.
    pub(crate) table: String,
    /// For each axis of the data, which index of a row of the table it has.
    pub(crate) index: Vec<Option<usize>>,
}

/// Where the products are read along an axis.
#[derive(Clone)]
pub(crate) enum IndexOfProducts {
    /// At the query or the key.
    Place(Expr),
    /// At the index of this number in the brackets.
    Row(usize),
}

impl BodyDraft {
    /// The calls of `dot`, each once but for the row.
    pub(crate) fn dots(&self) -> Vec<Dot> {
        let mut dots: Vec<Dot> = Vec::new();
        for kind in FunctionKind::ALL {
            if let Some(function) = self.function(kind) {
                find(function.block.to_token_stream(), &mut |dot| {
                    if dots.iter().all(|known| !known.is(&dot)) {
                        dots.push(dot);
                    }
                });
            }
        }
        dots
    }

    /// Adds the products of a call, and returns the name of these data.
    pub(crate) fn give_products(&mut self, of: Dot, axes: Vec<(Dim, IndexOfProducts)>) -> Ident {
        let data = self.name_like(&of.table);
        let index = axes.iter().map(|(_, at)| match at {
            IndexOfProducts::Place(_) => None,
            IndexOfProducts::Row(number) => Some(*number),
        });
        let rows = Rows {
            table: of.table.unraw().to_string(),
            index: index.collect(),
        };
        let dims = axes.iter().map(|(dim, _)| dim.clone()).collect();
        self.data.push(DataDraft {
            attrs: Vec::new(),
            name: data.clone(),
            ty: Type::Float,
            dims: DimsDraft::Products(dims, rows),
            given: true,
        });
        let products = Products {
            of,
            data: data.clone(),
            axes,
        };
        self.products.push(products);
        data
    }

    /// A name that no tensor of the body has.
    fn name_like(&self, wanted: &Ident) -> Ident {
        let numbered = (2_u64..).map(|number| quote::format_ident!("{}_{}", wanted, number));
        let is_free = |name: &Ident| {
            let is_key = Key::find(&name.to_string()).is_some();
            params::may_be_field(name) && data::may_be_named(name) && !is_key
        };
        let mut names = [wanted.clone()].into_iter().chain(numbered);
        let name = names.find(|name| is_free(name) && !self.declares(name));
        name.unwrap_or_else(|| wanted.clone())
    }
}

/// Calls `found` for each well-formed `dot(..)`.
fn find(tokens: TokenStream, found: &mut dyn FnMut(Dot)) {
    let mut after_dot = false;
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            if after_dot && group.delimiter() == Delimiter::Parenthesis {
                let args = Punctuated::<syn::Expr, Token![,]>::parse_terminated;
                let args = syn::parse::Parser::parse2(args, group.stream());
                args.ok().and_then(|args| Dot::of(&args)).map(&mut *found);
            }
            find(group.stream(), found);
        }
        after_dot = matches!(&token, TokenTree::Ident(name) if name == "dot");
    }
}

impl Lower<'_, '_> {
    /// The number of the pair among the products.
    pub(super) fn dot(&mut self, call: &ExprCall) -> Operand {
        let number = Operand::unknown(Type::Float);
        if self.scope.function.kind == FunctionKind::Mask {
            self.error(&call.func, messages::DOT_IN_MASK);
            return number;
        }
        if !self.checker.has_vectors() {
            self.error(&call.func, messages::DOT_WITHOUT_VECTORS);
            return number;
        }
        let Some(dot) = Dot::of(&call.args) else {
            self.error(&call.func, messages::DOT_USAGE);
            return number;
        };
        if let Some(local) = self.shadowed(&dot) {
            self.error(&call.args, messages::dot_of_a_number(&local));
            return number;
        }
        let before = self.checker.cx.count();
        let row: Vec<_> = dot.row.iter().map(|index| self.row(index)).collect();
        let products = self.scope.products.iter().find(|known| known.of.is(&dot));
        // Without products, lowering the model found the mistake.
        let Some(products) = products.filter(|_| self.checker.cx.count() == before) else {
            return number;
        };
        for (dim, at) in &products.axes {
            if let (IndexOfProducts::Row(place), Dim::Size(size)) = (at, dim) {
                let message = |found: &_, rows| messages::leaves_table(&dot.table, rows, found);
                self.check_bounds(&dot.row[*place], &row[*place], size, message);
            }
        }
        let index = products.axes.iter().map(|(_, at)| match at {
            IndexOfProducts::Place(expr) => expr.clone(),
            IndexOfProducts::Row(place) => row[*place].clone(),
        });
        let read = Expr::Param {
            name: products.data.to_string().into(),
            index: index.collect(),
        };
        Operand::new(read, Type::Float)
    }

    /// An index in the brackets. The name of a place means the place.
    fn row(&mut self, index: &syn::Expr) -> Expr {
        let lowered = self.typed(index, Type::Int, "an index is");
        if let Some(var) = Dot::place(index)
            && lowered != Expr::Var(var)
        {
            self.error(index, messages::dot_of_a_number(&var));
        }
        lowered
    }

    /// The `let` of the function whose name stands for a value of the model.
    fn shadowed(&self, dot: &Dot) -> Option<Ident> {
        let mut names = vec![dot.table.clone()];
        add_names(dot.vector.clone(), &mut names);
        let is_local = |name: &Ident| self.locals.iter().any(|(local, _)| local == name);
        names.into_iter().find(is_local)
    }
}

/// Adds the names of values, which are those of no operation: these stand before parentheses or `::`.
fn add_names(tokens: TokenStream, names: &mut Vec<Ident>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => add_names(group.stream(), names),
            TokenTree::Ident(name) => match tokens.peek() {
                Some(TokenTree::Punct(next)) if next.as_char() == ':' => {}
                Some(TokenTree::Group(next)) if next.delimiter() == Delimiter::Parenthesis => {}
                _ => names.push(name),
            },
            _ => {}
        }
    }
}
