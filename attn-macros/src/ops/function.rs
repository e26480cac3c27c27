//! The functions of the language of bodies, element by element: of values with axes and of numbers.

use super::reduce::{REDUCED, Reduction};
use super::{Lower, Operation};
use crate::spec::body::Function;
use crate::spec::keys::Key;

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

/// A function of two values, which reduces axes of one value if it is called with their names.
const fn or_reduction(
    name: &'static str,
    doc: &'static str,
    function: &'static Function,
    reduction: &'static Reduction,
) -> Operation {
    const KEYS: &[Key] = &[Key {
        default: "none",
        ..REDUCED
    }];
    Operation {
        name,
        keys: KEYS,
        positional: 1,
        may_be_tied: false,
        signature: "two of `[..]`, or one and a number, to the same; with axes, one of `[..]` to the same without them",
        doc,
        lower: Lower::FunctionOrOperands(function, 1..=2, reduction),
    }
}

const ONE: &str = "`[..]` to the same";

/// In the order in which the documentation lists them.
pub(super) static OPERATIONS: [Operation; 11] = [
    operation("exp", ONE, "`eˣ`. `torch.exp`", &Function::EXP),
    operation(
        "ln",
        ONE,
        "The natural logarithm. `torch.log`",
        &Function::LN,
    ),
    operation("sqrt", ONE, "`√x`. `torch.sqrt`", &Function::SQRT),
    operation(
        "sin",
        ONE,
        "The sine of `x` in radians. `torch.sin`",
        &Function::SIN,
    ),
    operation(
        "cos",
        ONE,
        "The cosine of `x` in radians. `torch.cos`",
        &Function::COS,
    ),
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
    or_reduction(
        "min",
        "The smaller of two elements; where they are equal, each gets half of the gradient. `torch.minimum`. The smallest number over axes, `min::<seq>(x)`; the first of equal numbers has the gradient. PyTorch: `x.amin(dim)`.",
        &Function::MIN,
        &Reduction::Min,
    ),
    or_reduction(
        "max",
        "The larger of two elements; where they are equal, each gets half of the gradient. `torch.maximum`. The largest number over axes, `max::<seq>(x)`; the first of equal numbers has the gradient. PyTorch: `x.amax(dim)`.",
        &Function::MAX,
        &Reduction::Max,
    ),
    operation(
        "clamp",
        "`[..]`, and for each bound a number or another, to the same",
        "`clamp(x, lo, hi)`: `x` within two bounds. `torch.clamp`",
        &Function::CLAMP,
    ),
];
