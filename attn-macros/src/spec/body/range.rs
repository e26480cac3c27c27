//! Where an integer lies whatever the call is, so that none is computed that 64 bits do not hold.

use crate::score::eval::LARGEST_INTEGER;
use crate::score::{Binary, Expr, Unary, Var};

/// From the least to the greatest.
type Range = (i128, i128);

const LARGEST: i128 = LARGEST_INTEGER as i128;

/// Whether the integer `expr`, whose parts fit, fits into 64 bits.
pub(super) fn fits(expr: &Expr) -> bool {
    let (least, greatest) = range(expr);
    i128::from(i64::MIN) <= least && greatest <= i128::from(i64::MAX)
}

fn range(expr: &Expr) -> Range {
    match expr {
        Expr::Var(Var::QLen | Var::KvLen) => (0, LARGEST),
        Expr::Var(_) | Expr::Data { .. } => (0, LARGEST - 1),
        Expr::Int(size) => match size.value {
            Some(value) => (value.into(), value.into()),
            None => (0, LARGEST),
        },
        Expr::Unary(Unary::Abs, a) => {
            let (least, greatest) = range(a);
            (0, greatest.max(-least))
        }
        Expr::Binary(op, a, b) => binary(*op, range(a), range(b)),
        Expr::Select(_, a, b) => {
            let (a, b) = (range(a), range(b));
            around([a.0, a.1, b.0, b.1])
        }
        _ => (-LARGEST, LARGEST),
    }
}

fn binary(op: Binary, a: Range, b: Range) -> Range {
    let of_ends =
        |f: fn(i128, i128) -> i128| around([f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)]);
    let largest = |range: Range| range.1.max(-range.0);
    match op {
        Binary::Add => of_ends(i128::saturating_add),
        Binary::Sub => of_ends(i128::saturating_sub),
        Binary::Mul => of_ends(i128::saturating_mul),
        Binary::Min => of_ends(i128::min),
        Binary::Max => of_ends(i128::max),
        // Its divisor is an integer other than 0.
        Binary::Div => (-largest(a), largest(a)),
        _ => {
            let most = largest(a).min(largest(b));
            (if a.0 < 0 { -most } else { 0 }, most)
        }
    }
}

fn around<const N: usize>(ends: [i128; N]) -> Range {
    let first = (ends[0], ends[0]);
    let ends = ends.into_iter();
    ends.fold(first, |(least, greatest), end| {
        (least.min(end), greatest.max(end))
    })
}
