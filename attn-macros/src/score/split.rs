//! Splits a score function into the scale, a function of the score, and the numbers of the position that this function reads.
//!
//! The kernels compute with vectors of scores. A number of the position, a *bias term*, is written for a row of keys beforehand:
//! from a table if it depends on the distance only; once if it is the same for all keys; key by key if it is an integer, a
//! condition, or an element of a learned tensor. All other arithmetic is left to the vectors.

use super::budget::Budget;
use super::{Binary, Expr, Name, Type, Unary, Var};
use crate::spec::Real;

/// The parts of a score function, in the form of the slice kernels.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The factor of the product of query and key.
    pub(crate) scale: Option<Real>,
    /// The function of the scaled product: an expression of the score and of parameters named [`bias_term_name`]. `None` if it is
    /// the identity.
    pub(crate) value: Option<Expr>,
    pub(crate) bias_terms: Vec<BiasTerm>,
}

/// A number of the position.
#[derive(Clone, Debug)]
pub(crate) struct BiasTerm {
    pub(crate) kind: BiasTermKind,
    /// A float that does not read the score.
    pub(crate) expr: Expr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BiasTermKind {
    /// A function of the head and of the distance of query and key.
    Distance,
    /// The same for all keys of a query.
    Row,
    /// Anything.
    Key,
}

/// The maximum number of bias terms of the kernels.
const MAX_BIAS_TERMS: usize = 16;

/// The maximum number of parts of conditions that are rewritten as comparisons of floats: a comparison of conditions doubles it.
const LONGEST_CONDITIONS: usize = 10_000;

/// The name under which [`Parts::value`] reads a bias term.
pub(crate) fn bias_term_name(index: usize) -> Name {
    format!("bias_term_{index}").into()
}

/// Splits `expr`. `with_scale` says whether a scale can be left to the product. `None` if there are too many bias terms, or a
/// condition is too long.
pub(crate) fn split(expr: &Expr, with_scale: bool) -> Option<Parts> {
    let mut bias_terms = BiasTerms {
        bias_terms: Vec::new(),
        budget: Budget::new(LONGEST_CONDITIONS),
    };
    let value = bias_terms.take(expr);
    if bias_terms.bias_terms.len() > MAX_BIAS_TERMS || bias_terms.budget.is_spent() {
        return None;
    }
    let (scale, value) = if with_scale {
        take_scale(value)
    } else {
        (None, value)
    };
    Some(Parts {
        scale,
        value: (!matches!(value, Expr::Operand(_))).then_some(value),
        bias_terms: bias_terms.bias_terms,
    })
}

struct BiasTerms {
    bias_terms: Vec<BiasTerm>,
    /// The number of parts that conditions may still add.
    budget: Budget,
}

impl BiasTerms {
    /// The float `expr`, with bias terms in place of parts that do not read the score.
    fn take(&mut self, expr: &Expr) -> Expr {
        if is_number(expr) {
            return expr.clone();
        }
        if let Some(kind) = kind(expr) {
            return self.bias_term(kind, expr);
        }
        match expr {
            Expr::Unary(op, a) => Expr::Unary(*op, Box::new(self.take(a))),
            Expr::Binary(op, a, b) => self.binary(*op, a, b),
            Expr::Select(condition, a, b) => match self.condition(condition) {
                Expr::Bool(true) => self.take(a),
                Expr::Bool(false) => self.take(b),
                condition => {
                    let [a, b] = [a, b].map(|branch| Box::new(self.take(branch)));
                    Expr::Select(Box::new(condition), a, b)
                }
            },
            leaf => leaf.clone(),
        }
    }

    fn binary(&mut self, op: Binary, a: &Expr, b: &Expr) -> Expr {
        Expr::Binary(op, Box::new(self.take(a)), Box::new(self.take(b)))
    }

    /// The condition `expr`, as comparisons of floats.
    fn condition(&mut self, expr: &Expr) -> Expr {
        if let Expr::Bool(value) = expr {
            return Expr::Bool(*value);
        }
        if self.budget.is_spent() {
            return Expr::Bool(true);
        }
        if !expr.any(&|expr| matches!(expr, Expr::Operand(_))) {
            let yes = Expr::float(1.0);
            let no = Expr::float(0.0);
            let bias_term = expr.clone().select(yes, no.clone());
            return no
                .less(self.bias_term(kind(&bias_term).unwrap_or(BiasTermKind::Key), &bias_term));
        }
        match expr {
            Expr::Unary(_, a) => not(self.condition(a)),
            Expr::Binary(Binary::And, a, b) => and(self.condition(a), self.condition(b)),
            Expr::Binary(Binary::Or, a, b) => or(self.condition(a), self.condition(b)),
            Expr::Binary(op, a, b) if a.ty() == Type::Float => self.binary(*op, a, b),
            Expr::Binary(_, a, b) => {
                let a = self.condition(a);
                let b = self.condition(b);
                self.choose(a, b.clone(), not(b))
            }
            Expr::Select(condition, a, b) => {
                let [b, condition, a] = [b, condition, a].map(|part| self.condition(part));
                self.choose(condition, a, b)
            }
            other => other.clone(),
        }
    }

    /// `then` where `condition` holds, `otherwise` elsewhere.
    fn choose(&self, condition: Expr, then: Expr, otherwise: Expr) -> Expr {
        let parts = [&condition, &condition, &then, &otherwise].map(Expr::size);
        if !self.budget.take(parts.iter().sum()) {
            return Expr::Bool(true);
        }
        let elsewhere = and(not(condition.clone()), otherwise);
        or(and(condition, then), elsewhere)
    }

    /// Reads the bias term of `expr`: a new one, unless there is one already.
    fn bias_term(&mut self, kind: BiasTermKind, expr: &Expr) -> Expr {
        let mut bias_terms = self.bias_terms.iter();
        let found = bias_terms.position(|bias_term| bias_term.expr == *expr);
        let index = found.unwrap_or_else(|| {
            self.bias_terms.push(BiasTerm {
                kind,
                expr: expr.clone(),
            });
            self.bias_terms.len() - 1
        });
        Expr::Param {
            name: bias_term_name(index),
            index: Vec::new(),
        }
    }
}

// The operators, with constants folded: vectors have no comparison that is always true.

fn not(a: Expr) -> Expr {
    match a {
        Expr::Bool(value) => Expr::Bool(!value),
        a => !a,
    }
}

fn and(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (Expr::Bool(true), other) | (other, Expr::Bool(true)) => other,
        (Expr::Bool(false), _) | (_, Expr::Bool(false)) => Expr::Bool(false),
        (a, b) => a & b,
    }
}

fn or(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (Expr::Bool(false), other) | (other, Expr::Bool(false)) => other,
        (Expr::Bool(true), _) | (_, Expr::Bool(true)) => Expr::Bool(true),
        (a, b) => a | b,
    }
}

/// Whether it is constant and reads no parameter.
fn is_number(expr: &Expr) -> bool {
    !expr.any(&|expr| {
        matches!(
            expr,
            Expr::Operand(_) | Expr::Var(_) | Expr::Param { .. } | Expr::Data { .. }
        )
    })
}

/// The kind of the bias term for the float `expr`, or `None` if it only contains bias terms.
fn kind(expr: &Expr) -> Option<BiasTermKind> {
    if expr.any(&|expr| matches!(expr, Expr::Operand(_))) {
        return None;
    }
    if reads_once(expr) {
        if !expr.reads(Var::KvIdx) {
            return Some(BiasTermKind::Row);
        }
        if by_distance(expr) {
            return Some(BiasTermKind::Distance);
        }
    }
    let is_leaf = match expr {
        Expr::Param { .. } | Expr::Data { .. } | Expr::Unary(Unary::ToFloat, _) => true,
        // The result of a condition.
        Expr::Select(_, a, b) => a.ty() == Type::Float && is_number(a) && is_number(b),
        _ => false,
    };
    is_leaf.then_some(BiasTermKind::Key)
}

/// The constant factor of every read of the score, and the expression without it.
fn take_scale(expr: Expr) -> (Option<Real>, Expr) {
    match scale_of(&expr) {
        Some(Some(scale)) => {
            let scale = scale.clone();
            (Some(scale), without_scale(expr))
        }
        _ => (None, expr),
    }
}

/// `None` if the score is read without a factor, or with different ones; `Some(None)` if it is not read.
fn scale_of(expr: &Expr) -> Option<Option<&Real>> {
    match expr {
        Expr::Operand(_) => None,
        Expr::Binary(Binary::Mul, a, b) => match (&**a, &**b) {
            (Expr::Operand(_), Expr::Float(scale)) => Some(Some(scale)),
            (a, b) => both(scale_of(a)?, scale_of(b)?),
        },
        other => other
            .children()
            .into_iter()
            .try_fold(None, |scale, child| both(scale, scale_of(child)?)),
    }
}

fn both<'a>(a: Option<&'a Real>, b: Option<&'a Real>) -> Option<Option<&'a Real>> {
    match (a, b) {
        (Some(_), Some(_)) => None,
        (a, b) => Some(a.or(b)),
    }
}

fn without_scale(expr: Expr) -> Expr {
    match expr {
        Expr::Binary(Binary::Mul, a, b)
            if matches!((&*a, &*b), (Expr::Operand(_), Expr::Float(_))) =>
        {
            Expr::SCORE
        }
        Expr::Unary(op, a) => Expr::Unary(op, Box::new(without_scale(*a))),
        Expr::Binary(op, a, b) => {
            let a = without_scale(*a);
            let b = without_scale(*b);
            Expr::Binary(op, Box::new(a), Box::new(b))
        }
        Expr::Select(a, b, c) => {
            let [a, b, c] = [*a, *b, *c].map(|expr| Box::new(without_scale(expr)));
            Expr::Select(a, b, c)
        }
        leaf => leaf,
    }
}

/// Whether query and key are only read as their difference, or compared, and no data of the call are read.
fn by_distance(expr: &Expr) -> bool {
    let is_index = |expr: &Expr| matches!(expr, Expr::Var(Var::QIdx | Var::KvIdx));
    match expr {
        Expr::Var(Var::H) => true,
        Expr::Var(_) | Expr::Data { .. } | Expr::Operand(_) => false,
        Expr::Binary(Binary::Sub | Binary::Eq | Binary::Lt | Binary::Le, a, b)
            if is_index(a) && is_index(b) =>
        {
            true
        }
        other => other.children().into_iter().all(by_distance),
    }
}

/// The learned tensors that `expr` reads, each with its index.
pub(crate) fn param_reads(expr: &Expr) -> Vec<(&str, &[Expr])> {
    match expr {
        Expr::Param { name, index } => vec![(&**name, index)],
        other => other.children().into_iter().flat_map(param_reads).collect(),
    }
}

/// Whether no learned tensor is read twice.
fn reads_once(expr: &Expr) -> bool {
    let names: Vec<_> = param_reads(expr)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    (1..names.len()).all(|at| !names[..at].contains(&names[at]))
}
