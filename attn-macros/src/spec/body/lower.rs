//! The functions of a body, from Rust's syntax to [`Expr`].
//!
//! Types are inferred on the way: integers and floats do not mix. A value with a mistake is reported once, and is then treated as
//! one of a fitting type.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Block, ExprCast, ExprIf, Lit, LitInt, Local, Pat, Stmt};

use super::dot::Products;
use super::operand::{Operand, OperandKind, unknown};
use super::parse::{FunctionDraft, FunctionKind};
use super::{Sizes, Tensor, constants, range};
use crate::messages::body as messages;
use crate::score::eval::{self, Value};
use crate::score::{Expr, Type, Unary};
use crate::spec::Grid;
use crate::spec::check::Checker;
use crate::spec::value::Size;

/// `let`s are inlined, so a few can make very many operations.
pub(super) const MAX_OPERATIONS: usize = 1000;

/// The maximum size of a value with a repeated argument: nested ones double the size each time.
const LONGEST: usize = 10_000;

/// The names that a function can use.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) function: &'a FunctionDraft,
    pub(super) tensors: &'a [Tensor<'a>],
    /// What `dot` reads.
    pub(super) products: &'a [Products],
    pub(super) sizes: Sizes<'a>,
    pub(super) grid: Option<&'a Grid>,
}

pub(super) struct Lower<'a, 'b> {
    pub(super) scope: Scope<'a>,
    pub(super) checker: &'a mut Checker<'b>,
    /// The `let`s, the innermost last.
    pub(super) locals: Vec<(Ident, Operand)>,
    /// Undeclared names that have been reported.
    pub(super) undeclared: Vec<Ident>,
    operations_left: usize,
}

impl<'a, 'b> Lower<'a, 'b> {
    pub(super) fn new(scope: Scope<'a>, checker: &'a mut Checker<'b>) -> Self {
        Lower {
            scope,
            checker,
            locals: Vec::new(),
            undeclared: Vec::new(),
            operations_left: MAX_OPERATIONS,
        }
    }

    /// The value of the function.
    pub(super) fn function(mut self) -> Expr {
        let FunctionDraft { kind, block, .. } = self.scope.function;
        let wanted = match kind {
            FunctionKind::Score | FunctionKind::Normalize => Type::Float,
            FunctionKind::Mask => Type::Bool,
        };
        let value = self.block(block);
        match block.stmts.last() {
            Some(Stmt::Expr(last, _)) => {
                let subject = format!("`fn {}` gives", kind.name());
                self.require(value, wanted, &subject, last)
            }
            _ => value.expr,
        }
    }

    pub(super) fn error(&self, at: impl ToTokens, message: impl std::fmt::Display) -> Operand {
        self.checker.cx.error(at, message);
        Operand::mistake()
    }

    /// Counts `more` operations; `false` if that is too many.
    pub(super) fn count(&mut self, more: usize, at: &impl ToTokens) -> bool {
        let before = self.operations_left;
        self.operations_left = before.saturating_sub(more);
        if before > 0 && self.operations_left == 0 {
            self.error(at, messages::too_many_operations(MAX_OPERATIONS));
        }
        self.operations_left > 0
    }

    /// Checks that a value with a repeated part is not too long. After one that is, nothing more is counted.
    pub(super) fn is_short(&mut self, value: &Expr, at: &impl ToTokens) -> bool {
        let is_short = value.size() <= LONGEST;
        if !is_short && self.operations_left > 0 {
            self.error(at, messages::too_long(LONGEST));
            self.operations_left = 0;
        }
        is_short
    }

    pub(super) fn expr(&mut self, expr: &syn::Expr) -> Operand {
        if !self.count(1, expr) {
            return Operand::mistake();
        }
        match expr {
            syn::Expr::Paren(paren) => self.expr(&paren.expr),
            syn::Expr::Group(group) => self.expr(&group.expr),
            syn::Expr::Lit(lit) => self.literal(&lit.lit),
            syn::Expr::Path(path) => self.path(path),
            syn::Expr::Unary(unary) => self.unary(unary),
            syn::Expr::Binary(binary) => self.binary(binary),
            syn::Expr::Cast(cast) => self.cast(cast),
            syn::Expr::Call(call) => self.call(call),
            syn::Expr::Index(index) => self.index(index),
            syn::Expr::If(select) => self.select(select),
            syn::Expr::Block(block) if block.label.is_none() => self.block(&block.block),
            other => self.unsupported(other),
        }
    }

    /// `expr`, which must be a `wanted`; `subject` says why.
    pub(super) fn typed(&mut self, expr: &syn::Expr, wanted: Type, subject: &str) -> Expr {
        let value = self.expr(expr);
        self.require(value, wanted, subject, expr)
    }

    pub(super) fn require(
        &mut self,
        value: Operand,
        wanted: Type,
        subject: &str,
        at: &syn::Expr,
    ) -> Expr {
        if value.kind.common(OperandKind::Is(wanted)) == Some(OperandKind::Is(wanted)) {
            return self.settle(value, OperandKind::Is(wanted));
        }
        let message = match wanted {
            Type::Int if !value.expr.is_constant() => {
                messages::learned_integer(subject, value.kind)
            }
            _ => messages::wrong_type(subject, wanted, value.kind, at),
        };
        self.error(at, message);
        unknown(wanted)
    }

    /// `value` as a `kind`, which it is or can be.
    pub(super) fn settle(&mut self, value: Operand, kind: OperandKind) -> Expr {
        match (value.kind, kind) {
            (OperandKind::Constant, OperandKind::Is(ty)) => self.constants(value.expr, ty),
            (OperandKind::Mistake, OperandKind::Is(ty)) => unknown(ty),
            _ => value.expr,
        }
    }

    /// An expression of the user's constants, each of which is a `ty`.
    fn constants(&mut self, expr: Expr, ty: Type) -> Expr {
        let mut part = |expr: Box<Expr>| Box::new(self.constants(*expr, ty));
        match expr {
            Expr::Int(size) => self.constant(size, ty),
            Expr::Unary(op, a) => Expr::Unary(op, part(a)),
            Expr::Binary(op, a, b) => Expr::Binary(op, part(a), part(b)),
            Expr::Select(condition, a, b) => Expr::Select(condition, part(a), part(b)),
            other => other,
        }
    }

    fn constant(&mut self, constant: Size, ty: Type) -> Expr {
        match ty {
            Type::Float => Expr::Float(constants::real(constant.to_real(), self.checker)),
            _ => Expr::Int(constants::int(constant, self.checker)),
        }
    }

    /// `expr`, or its value if it reads nothing.
    pub(super) fn checked(&mut self, expr: Expr, kind: OperandKind, at: &impl ToTokens) -> Operand {
        if kind == OperandKind::Is(Type::Int) && !range::fits(&expr) {
            self.error(at, messages::beyond_64_bits(at));
            return Operand::unknown(Type::Int);
        }
        let (OperandKind::Is(ty), Some(value)) = (kind, eval::value(&expr)) else {
            return Operand { expr, kind };
        };
        self.value(value, ty, at)
    }

    /// A known value, which must be in range.
    fn value(&mut self, value: Value, ty: Type, at: &impl ToTokens) -> Operand {
        if let Some(expr) = constants::literal(value) {
            return Operand::new(expr, ty);
        }
        self.error(at, messages::too_large(at, ty));
        Operand::unknown(ty)
    }

    fn literal(&mut self, lit: &Lit) -> Operand {
        let (value, suffix) = match lit {
            Lit::Bool(lit) => return Operand::new(Expr::Bool(lit.value), Type::Bool),
            Lit::Int(int) if !int.suffix().starts_with('f') => (integer(int), int.suffix()),
            Lit::Int(int) => (float(int.base10_digits()), int.suffix()),
            Lit::Float(real) => (float(real.base10_digits()), real.suffix()),
            other => return self.error(other, messages::not_a_number(other)),
        };
        let ty = match value {
            Value::Int(_) => Type::Int,
            _ => Type::Float,
        };
        if !suffix.is_empty() && named_type(suffix) != Some(ty) {
            return self.error(lit, messages::unknown_type(suffix));
        }
        self.value(value, ty, lit)
    }

    fn cast(&mut self, cast: &ExprCast) -> Operand {
        let name = cast.ty.to_token_stream().to_string();
        let value = self.expr(&cast.expr);
        let Some(ty) = named_type(&name) else {
            return self.error(&cast.ty, messages::unknown_type(&name));
        };
        if value.is_single_constant() {
            return Operand::new(self.cast_constant(value, ty), ty);
        }
        let expr = match (value.kind, ty) {
            (OperandKind::Is(Type::Bool), _) => {
                return self.error(cast.as_token, messages::cast_of_condition(ty, &cast.expr));
            }
            (OperandKind::Is(Type::Int), Type::Float) => value.expr.unary(Unary::ToFloat),
            (OperandKind::Is(Type::Float), Type::Int) if !value.expr.is_constant() => {
                return self.error(cast.as_token, messages::integer_of_learned());
            }
            (OperandKind::Is(Type::Float), Type::Int) => {
                let value = value.expr.unary(Unary::ToInt);
                // As in Rust, a number below the range of the type becomes its smallest value.
                if name == "usize" { value.max(0) } else { value }
            }
            (OperandKind::Constant, Type::Float) => self
                .settle(value, OperandKind::Is(Type::Int))
                .unary(Unary::ToFloat),
            _ => self.settle(value, OperandKind::Is(ty)),
        };
        self.checked(expr, OperandKind::Is(ty), cast)
    }

    /// A constant may be of any of Rust's types: the cast is rustc's.
    fn cast_constant(&mut self, value: Operand, ty: Type) -> Expr {
        let Expr::Int(constant) = value.expr else {
            return value.expr;
        };
        let path = &constant.origin;
        let origin = constant.origin.clone();
        let cast = syn::parse2(quote!(#path as usize)).ok();
        let cast = cast
            .filter(|_| ty == Type::Int)
            .and_then(|cast| Size::from_expr(&cast));
        self.constant(cast.unwrap_or(constant).written_as(origin), ty)
    }

    fn select(&mut self, select: &ExprIf) -> Operand {
        let condition = match &*select.cond {
            syn::Expr::Let(cond) => {
                self.unsupported(&select.cond);
                self.expr(&cond.expr);
                unknown(Type::Bool)
            }
            cond => self.typed(cond, Type::Bool, "`if` takes"),
        };
        let then = self.block(&select.then_branch);
        let Some((token, otherwise)) = &select.else_branch else {
            return self.error(select.if_token, messages::IF_WITHOUT_ELSE);
        };
        let otherwise = self.expr(otherwise);
        let Some(kind) = then.kind.common(otherwise.kind) else {
            return self.error(token, messages::branches(then.kind, otherwise.kind));
        };
        let then = self.settle(then, kind);
        let otherwise = self.settle(otherwise, kind);
        let expr = match condition {
            Expr::Bool(true) => then,
            Expr::Bool(false) => otherwise,
            condition => condition.select(then, otherwise),
        };
        Operand { expr, kind }
    }

    fn block(&mut self, block: &Block) -> Operand {
        let outer = self.locals.len();
        let value = self.statements(block);
        self.locals.truncate(outer);
        value
    }

    fn statements(&mut self, block: &Block) -> Operand {
        let (last, before) = match block.stmts.split_last() {
            Some((Stmt::Expr(last, semi), before)) => (Some((last, semi)), before),
            _ => (None, &block.stmts[..]),
        };
        for statement in before {
            self.statement(statement);
        }
        match last {
            Some((last, None)) => self.expr(last),
            Some((last, Some(semi))) if !is_empty(last) => {
                self.expr(last);
                self.error(semi, messages::SEMICOLON_AT_THE_END)
            }
            _ => {
                let end = block.brace_token.span.close();
                let error = syn::Error::new(end, messages::BLOCK_WITHOUT_VALUE);
                self.checker.cx.push(error);
                Operand::mistake()
            }
        }
    }

    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Local(local) => self.binding(local),
            Stmt::Expr(expr, _) if is_empty(expr) => {}
            Stmt::Expr(expr, _) => {
                let before = self.checker.cx.count();
                self.expr(expr);
                if self.checker.cx.count() == before {
                    self.error(expr, messages::UNUSED_VALUE);
                }
            }
            Stmt::Macro(statement) => {
                self.error(&statement.mac.path, messages::unsupported("macros", None));
            }
            Stmt::Item(item) => {
                self.error(item, messages::unsupported("items", Some(messages::LET)));
            }
        }
    }

    /// `let name = value;` or `let name: type = value;`
    fn binding(&mut self, local: &Local) {
        let (pat, ty) = match &local.pat {
            Pat::Type(typed) => (&*typed.pat, Some(&*typed.ty)),
            pat => (pat, None),
        };
        let Some(init) = &local.init else {
            self.error(local, messages::LET_WITHOUT_VALUE);
            return self.bind_mistakes(pat.to_token_stream());
        };
        if let Some((token, _)) = &init.diverge {
            let message = messages::unsupported("`let`-`else`", Some(messages::LET));
            self.error(token, message);
        }
        let mut value = self.expr(&init.expr);
        if let Some(ty) = ty {
            value = self.ascribed(value, ty, &init.expr);
        }
        match plain_name(pat) {
            Some(name) => self.locals.push((name.clone(), value)),
            None => {
                self.error(pat, messages::PATTERN);
                self.bind_mistakes(pat.to_token_stream());
            }
        }
    }

    /// The names in a pattern that has a mistake. They have no values.
    fn bind_mistakes(&mut self, pat: TokenStream) {
        for token in pat {
            match token {
                TokenTree::Ident(name) => self.locals.push((name, Operand::mistake())),
                TokenTree::Group(group) => self.bind_mistakes(group.stream()),
                _ => {}
            }
        }
    }

    /// `value`, with the type annotation `ty`.
    fn ascribed(&mut self, value: Operand, ty: &syn::Type, at: &syn::Expr) -> Operand {
        let name = ty.to_token_stream().to_string();
        let wanted = if name == "bool" {
            Some(Type::Bool)
        } else {
            named_type(&name)
        };
        let Some(wanted) = wanted else {
            return self.error(ty, messages::unknown_type(&name));
        };
        let subject = format!("`{name}` is");
        Operand::new(self.require(value, wanted, &subject, at), wanted)
    }
}

/// `let _ = ..`, `let mut x = ..` and the like have none.
fn plain_name(pat: &Pat) -> Option<&Ident> {
    match pat {
        Pat::Ident(name)
            if name.by_ref.is_none() && name.mutability.is_none() && name.subpat.is_none() =>
        {
            Some(&name.ident)
        }
        _ => None,
    }
}

/// The item that syn makes of a second `;`.
fn is_empty(expr: &syn::Expr) -> bool {
    matches!(expr, syn::Expr::Verbatim(tokens) if tokens.is_empty())
}

/// The type of this name in a body, which has one type of integers and one of floats.
fn named_type(name: &str) -> Option<Type> {
    match name {
        "i64" | "usize" => Some(Type::Int),
        "f32" | "f64" => Some(Type::Float),
        _ => None,
    }
}

/// A size that does not fit is too large for a layer, too.
fn integer(literal: &LitInt) -> Value {
    Value::Int(literal.base10_parse().unwrap_or(i64::MAX))
}

fn float(digits: &str) -> Value {
    Value::Float(digits.parse().unwrap_or(f64::INFINITY))
}
