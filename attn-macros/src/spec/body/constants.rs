//! Constants of the layer: computed by the macro where it can, otherwise by rustc, under a name of its own.

use quote::quote;

use crate::messages::body as messages;
use crate::score::eval::Value;
use crate::score::{Expr, Type};
use crate::spec::Rules;
use crate::spec::check::{Checker, LARGEST_LENGTH};
use crate::spec::value::{Real, Size};

/// Layers are `f32` by default.
const LARGEST_FLOAT: f64 = f32::MAX as f64;

/// A number that the user wrote.
pub(super) fn real(mut real: Real, checker: &mut Checker<'_>) -> Real {
    let at = real.origin.clone();
    checker.name_constant(&mut real);
    let holds = real.value.map(|value| value.abs() <= LARGEST_FLOAT);
    let condition = quote!(#real.abs() <= f32::MAX as f64);
    let message = || messages::too_large(&at, Type::Float);
    checker.require(&at, holds, condition, message);
    real
}

/// An integer that the user wrote. A product of two, or of one and an index, stays in range.
pub(super) fn int(mut size: Size, checker: &mut Checker<'_>) -> Size {
    let at = size.origin.clone();
    checker.name_constant(&mut size);
    let holds = size.value.map(|value| value <= LARGEST_LENGTH);
    let condition = quote!(#size as u64 <= #LARGEST_LENGTH);
    let message = || messages::too_large(&at, Type::Int);
    checker.require(&at, holds, condition, message);
    size
}

/// `value` as an expression; `None` if it is out of range.
pub(super) fn literal(value: Value) -> Option<Expr> {
    match value {
        Value::Int(value) => (value.unsigned_abs() <= LARGEST_LENGTH).then(|| from_int(value)),
        Value::Float(value) => (value.abs() <= LARGEST_FLOAT).then(|| Expr::float(value)),
        Value::Bool(value) => Some(Expr::Bool(value)),
    }
}

/// There are no negative literals.
fn from_int(value: i64) -> Expr {
    let size = Expr::from(value.unsigned_abs());
    if value < 0 {
        Expr::from(0) - size
    } else {
        size
    }
}
