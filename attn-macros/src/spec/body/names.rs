//! The meaning of a name: a `let`, an argument, a tensor, a size of the header, or a constant of the user.

use proc_macro2::Ident;
use syn::{ExprIndex, ExprPath};

use super::lower::Lower;
use super::operand::Operand;
use super::parse::{FunctionKind, VARS};
use super::{Found, Function, Tensor, range};
use crate::messages::{body as messages, grid};
use crate::score::eval::{self, Value};
use crate::score::{Data, Expr, Type, Var};
use crate::spec::keys::{Key, nearest};
use crate::spec::value::Size;
use crate::spec::{Coordinate, Dim};

/// The variable of this name.
pub(super) fn variable(name: &Ident) -> Option<Var> {
    VARS.into_iter().find(|var| name == &var.to_string())
}

/// Constants are written in capitals: any other name that is not known is a mistake.
pub(crate) fn may_be_constant(name: &Ident) -> bool {
    name.to_string().chars().any(char::is_uppercase)
}

/// Whether it is the name of infinity or NaN in Rust or in another language.
pub(super) fn is_not_finite(name: &Ident) -> bool {
    let name = name.to_string().to_lowercase();
    matches!(&*name, "infinity" | "neg_infinity" | "inf" | "nan")
}

impl<'a> Lower<'a, '_> {
    pub(super) fn path(&mut self, path: &ExprPath) -> Operand {
        let Some(name) = path.path.get_ident().filter(|_| path.qself.is_none()) else {
            return self.constant_path(path);
        };
        if let Some(value) = self.local(name) {
            return value;
        }
        if let Some(value) = self.argument(name) {
            return value;
        }
        if let Some(value) = self.coordinate(name) {
            return value;
        }
        let mistaken = [&self.scope.function.unknown_args, &self.undeclared];
        if mistaken.iter().any(|names| names.contains(name)) {
            return Operand::mistake();
        }
        if let Some(tensor) = self.tensor(name) {
            // Missing sizes are a mistake that is reported elsewhere.
            return match tensor.dims().is_empty() {
                true => Operand::mistake(),
                false => self.error(name, messages::without_index(tensor)),
            };
        }
        if let Some((_, size)) = self.scope.sizes.iter().find(|(size, _)| name == size) {
            return Operand::new(Expr::from(*size), Type::Int);
        }
        if may_be_constant(name) {
            return self.constant_path(path);
        }
        if let Some(function) = Function::find(&name.to_string()) {
            return self.error(name, messages::function_without_arguments(function));
        }
        if is_not_finite(name) {
            return self.error(name, messages::NOT_FINITE);
        }
        self.undeclared.push(name.clone());
        let named = self.named();
        if let Some(message) = self.in_another_form(name, &named) {
            return self.error(name, message);
        }
        let sizes = self.scope.sizes.iter().map(|(size, _)| (*size).to_owned());
        let further = self.scope.function.kind.args().into_iter().chain(sizes);
        self.error(name, messages::unknown_name(name, &named, further))
    }

    /// The help for a normalizer, a vector, or another name with another notation.
    fn in_another_form(&self, name: &Ident, named: &[String]) -> Option<String> {
        let kind = self.scope.function.kind;
        let mut normalizers = Key::find("normalizer")?.words().iter();
        match normalizers.find(|word| name == word.name) {
            Some(word) if kind == FunctionKind::Normalize => {
                Some(messages::normalizer_in_expression(word))
            }
            _ if nearest(&name.to_string(), named.iter().map(String::as_str)).is_some() => None,
            _ => messages::name_from_elsewhere(name),
        }
    }

    fn local(&mut self, name: &Ident) -> Option<Operand> {
        let (_, value) = self.locals.iter().rev().find(|(local, _)| local == name)?;
        let value = value.clone();
        if self.count(value.expr.size(), name) {
            Some(value)
        } else {
            Some(Operand::mistake())
        }
    }

    /// `score`, an index or a length: a name that the function has as an argument, or could have.
    fn argument(&mut self, name: &Ident) -> Option<Operand> {
        let function = self.scope.function;
        let value = match variable(name) {
            Some(var) => Operand::new(var.into(), Type::Int),
            None if name == "score" => Operand::new(Expr::SCORE, Type::Float),
            None => return None,
        };
        if function.args.contains(name) {
            return Some(value);
        }
        let message = if name == "score" && function.kind == FunctionKind::Mask {
            messages::SCORE_IN_MASK.to_owned()
        } else {
            messages::not_an_argument(function.kind, name, &function.args)
        };
        self.error(name, message);
        Some(value)
    }

    /// A coordinate of the grid, which the function takes or could take.
    fn coordinate(&mut self, name: &Ident) -> Option<Operand> {
        let coordinate = Coordinate::find(&name.to_string())?;
        let function = self.scope.function;
        let is_taken = function.args.contains(name);
        if self.undeclared.contains(name) || !is_taken && self.tensor(name).is_some() {
            return None;
        }
        let value = self.scope.grid.map(|grid| grid.coordinate(coordinate));
        let message = match value {
            Some(Some(value)) if is_taken => return Some(Operand::new(value, Type::Int)),
            Some(Some(_)) => messages::not_an_argument(function.kind, name, &function.args),
            Some(None) => grid::no_axis(&name.to_string()),
            // The mistake in the key is reported.
            None if self.checker.has("grid") => return Some(Operand::mistake()),
            None => grid::coordinate_without_grid(&name.to_string()),
        };
        self.undeclared.push(name.clone());
        self.error(name, message);
        Some(Operand::mistake())
    }

    fn tensor(&self, name: &Ident) -> Option<Tensor<'a>> {
        let mut tensors = self.scope.tensors.iter().copied();
        tensors.find(|tensor| tensor.name() == name)
    }

    /// Names that may be used, beside sizes.
    fn named(&self) -> Vec<String> {
        let locals = self.locals.iter().map(|(name, _)| name);
        let args = self.scope.function.args.iter();
        let tensors = self.scope.tensors.iter().map(|tensor| tensor.name());
        let names = locals.chain(args).chain(tensors);
        names.map(Ident::to_string).collect()
    }

    fn constant_path(&mut self, path: &ExprPath) -> Operand {
        let last = path.path.segments.last().map(|last| &last.ident);
        if last.is_some_and(is_not_finite) {
            return self.error(path, messages::NOT_FINITE);
        }
        let constant = Size::from_expr(&syn::Expr::Path(path.clone()));
        constant.map_or_else(Operand::mistake, Operand::constant)
    }

    /// An element of a tensor.
    pub(super) fn index(&mut self, index: &ExprIndex) -> Operand {
        let mut places = places(&index.index);
        let mut base = &*index.expr;
        while let syn::Expr::Index(outer) = base {
            places.splice(..0, self::places(&outer.index));
            base = &outer.expr;
        }
        let tensor = self.indexed(base, &places);
        let subject = "an index is";
        let lowered = places
            .iter()
            .map(|place| self.typed(place, Type::Int, subject));
        let lowered: Vec<_> = lowered.collect();
        let Some(tensor) = tensor else {
            return Operand::mistake();
        };
        if !std::ptr::eq(base, &*index.expr) {
            self.error(index, messages::indexed_twice(tensor, &places));
        }
        let dims = tensor.dims();
        // Axes that were not understood are missing.
        if !dims.is_empty() && dims.len() != places.len() {
            self.error(&index.index, messages::wrong_axes(tensor, places.len()));
        }
        for ((place, index), dim) in places.iter().zip(&lowered).zip(&dims) {
            if let Dim::Size(size) = dim {
                let message = |found: &_, dim| messages::leaves_tensor(tensor, dim, found);
                self.check_bounds(place, index, size, message);
            }
        }
        Operand::new(element(tensor, lowered), tensor.ty())
    }

    /// The tensor that stands before the brackets.
    fn indexed(&mut self, base: &syn::Expr, places: &[&syn::Expr]) -> Option<Tensor<'a>> {
        let name = match base {
            syn::Expr::Path(path) => path.path.get_ident(),
            _ => None,
        };
        let name = name.filter(|name| self.locals.iter().all(|(local, _)| local != *name));
        let Some(tensor) = name.and_then(|name| self.tensor(name)) else {
            let is_new = name.is_some_and(|name| name != "score" && variable(name).is_none());
            if name.is_some_and(|name| self.undeclared.contains(name)) {
                return None;
            }
            self.undeclared.extend(name.filter(|_| is_new).cloned());
            let message = match name.filter(|_| is_new) {
                Some(name) => messages::undeclared(name, places, self.scope.tensors),
                None => messages::not_a_tensor(base, self.scope.tensors),
            };
            self.error(base, message);
            return None;
        };
        if self.scope.function.kind == FunctionKind::Mask {
            match tensor {
                Tensor::Param(_) => _ = self.error(base, messages::PARAM_IN_MASK),
                Tensor::Data(data) if data.given => _ = self.error(base, messages::VALUE_IN_MASK),
                Tensor::Data(_) => {}
            }
        }
        Some(tensor)
    }

    /// An index whose bounds are constants stays inside of the axis; the call checks the others.
    pub(super) fn check_bounds(
        &self,
        place: &syn::Expr,
        index: &Expr,
        dim: &Size,
        leaves: impl FnOnce(&Found, u64) -> String,
    ) {
        let heads = self.scope.sizes.iter().find(|(name, _)| *name == "heads");
        let (Some(dim), Some((_, heads))) = (dim.value, heads) else {
            return;
        };
        match eval::value(index) {
            Some(Value::Int(index)) if !u64::try_from(index).is_ok_and(|index| index < dim) => {
                self.error(place, messages::out_of_bounds(index, dim));
            }
            Some(_) => {}
            None => {
                if let Some(found) = range::outside(index, dim, heads) {
                    self.error(place, leaves(&found, dim));
                }
            }
        }
    }
}

/// The places in brackets.
pub(super) fn places(index: &syn::Expr) -> Vec<&syn::Expr> {
    match index {
        syn::Expr::Tuple(places) => places.elems.iter().collect(),
        place => vec![place],
    }
}

fn element(tensor: Tensor<'_>, index: Vec<Expr>) -> Expr {
    match tensor {
        Tensor::Param(param) => Expr::Param {
            name: param.name.to_string().into(),
            index,
        },
        // It has a gradient, as what is learned.
        Tensor::Data(data) if data.given => Expr::Param {
            name: data.text().into(),
            index,
        },
        Tensor::Data(data) => Expr::Data {
            data: Data::Declared {
                name: data.text().into(),
                ty: data.ty,
            },
            index,
        },
    }
}
