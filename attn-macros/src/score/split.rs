//! Takes a score modification apart: the scale, the part that is a function of the score, and the part that is a number of
//! the place.

use super::{Binary, Expr, Var};
use crate::spec::Real;

/// A score modification, as the slice kernels take it.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// What the product of query and key is multiplied by first.
    pub(crate) scale: Option<Real>,
    /// What becomes of the scaled product: an expression of the score and of the parameter [`BIAS`]. `None` if nothing does.
    pub(crate) value: Option<Expr>,
    /// The bias: a function of the place, and of the distance of query and key alone.
    pub(crate) bias: Option<Expr>,
}

/// The name by which [`Parts::value`] reads the bias.
pub(crate) const BIAS: &str = "bias";

/// Splits `expr`. `None` if it reads the place in more than one way, or beyond the
/// distance, or a learned tensor twice.
pub(crate) fn split(expr: &Expr) -> Option<Parts> {
    let mut biases = Vec::new();
    let value = take_biases(expr, &mut biases);
    let (scale, value) = take_scale(value);
    if biases.len() > 1
        || !biases
            .iter()
            .all(|bias| by_distance(bias) && reads_once(bias))
    {
        return None;
    }
    Some(Parts {
        scale,
        value: (!matches!(value, Expr::Score)).then_some(value),
        bias: biases.pop(),
    })
}

/// Replaces every largest part of `expr` that does not read the score, and is no number, by [`BIAS`].
fn take_biases(expr: &Expr, biases: &mut Vec<Expr>) -> Expr {
    if !expr.any(&|expr| matches!(expr, Expr::Score)) {
        let is_number = !expr
            .any(&|expr| matches!(expr, Expr::Var(_) | Expr::Param { .. } | Expr::Data { .. }));
        if is_number {
            return expr.clone();
        }
        biases.push(expr.clone());
        return Expr::Param {
            name: BIAS.into(),
            index: Vec::new(),
        };
    }
    let mut part = |expr: &Expr| Box::new(take_biases(expr, biases));
    match expr {
        Expr::Unary(op, a) => Expr::Unary(*op, part(a)),
        Expr::Binary(op, a, b) => Expr::Binary(*op, part(a), part(b)),
        Expr::Select(a, b, c) => Expr::Select(part(a), part(b), part(c)),
        leaf => leaf.clone(),
    }
}

/// The constant that every read of the score is multiplied by, and the expression without it.
fn take_scale(expr: Expr) -> (Option<Real>, Expr) {
    match scale_of(&expr) {
        Some(Some(scale)) => {
            let scale = scale.clone();
            (Some(scale), without_scale(expr))
        }
        _ => (None, expr),
    }
}

/// `None`: the score is read bare, or with different factors; `Some(None)`: it is not read.
fn scale_of(expr: &Expr) -> Option<Option<&Real>> {
    match expr {
        Expr::Score => None,
        Expr::Binary(Binary::Mul, a, b) => match (&**a, &**b) {
            (Expr::Score, Expr::Float(scale)) => Some(Some(scale)),
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
        Expr::Binary(Binary::Mul, a, b) if matches!((&*a, &*b), (Expr::Score, Expr::Float(_))) => {
            Expr::Score
        }
        Expr::Unary(op, a) => Expr::Unary(op, Box::new(without_scale(*a))),
        Expr::Binary(op, a, b) => {
            let (a, b) = (without_scale(*a), without_scale(*b));
            Expr::Binary(op, Box::new(a), Box::new(b))
        }
        Expr::Select(a, b, c) => {
            let [a, b, c] = [*a, *b, *c].map(|expr| Box::new(without_scale(expr)));
            Expr::Select(a, b, c)
        }
        leaf => leaf,
    }
}

/// Whether query and key are read as their difference, or compared, and in no other way; and nothing of the call.
fn by_distance(expr: &Expr) -> bool {
    let is_index = |expr: &Expr| matches!(expr, Expr::Var(Var::QIdx | Var::KvIdx));
    match expr {
        Expr::Var(Var::H) => true,
        Expr::Var(_) | Expr::Data { .. } | Expr::Score => false,
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
