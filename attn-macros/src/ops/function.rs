//! The functions of the language of bodies, element by element: of values with axes and of numbers.

use super::{Lower, Operation};
use crate::spec::body::Function;

const fn operation(
    name: &'static str,
    signature: &'static str,
    doc: &'static str,
    function: &'static Function,
) -> Operation {
    Operation {
        name,
        keys: &[],
        positional: 0,
        may_be_tied: false,
        signature,
        doc,
        lower: Lower::Function(function),
    }
}

const ONE: &str = "`[..]` to the same";
const TWO: &str = "two of `[..]`, or one and a number, to the same";

/// In the order in which the documentation lists them.
pub(super) static OPERATIONS: [Operation; 9] = [
    operation("exp", ONE, "`eˣ`. `torch.exp`", &Function::EXP),
    operation(
        "ln",
        ONE,
        "The natural logarithm. `torch.log`",
        &Function::LN,
    ),
    operation("sqrt", ONE, "`√x`. `torch.sqrt`", &Function::SQRT),
    operation(
        "abs",
        ONE,
        "`|x|`, whose gradient at 0 is 0. `torch.abs`",
        &Function::ABS,
    ),
    operation(
        "floor",
        ONE,
        "The largest integer that is not above `x`; its gradient is 0. `torch.floor`",
        &Function::FLOOR,
    ),
    operation(
        "pow",
        "`[..]` and a number to the same",
        "`xⁿ`. `torch.pow`",
        &Function::POW,
    ),
    operation(
        "min",
        TWO,
        "The smaller of two elements; where they are equal, each gets half of the gradient. `torch.minimum`",
        &Function::MIN,
    ),
    operation(
        "max",
        TWO,
        "The larger of two elements; where they are equal, each gets half of the gradient. `torch.maximum`",
        &Function::MAX,
    ),
    operation(
        "clamp",
        "`[..]`, and for each bound a number or another, to the same",
        "`clamp(x, lo, hi)`: `x` within two bounds. `torch.clamp`",
        &Function::CLAMP,
    ),
];
