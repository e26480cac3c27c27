//! Operands and calls of a graph, in the notation that `attn-core/src/onnx/program.rs` reads.

use std::fmt::{self, Display};
use std::rc::Rc;

/// An operand: a value, a constant, or a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Term(Rc<str>);

/// `Add(x,y)`
pub(crate) fn call<const N: usize>(op: &str, operands: [Term; N]) -> Term {
    call_with(op, "", operands)
}

/// `Transpose<perm=[1,0]>(x)`
pub(crate) fn call_with(
    op: &str,
    attributes: impl Display,
    operands: impl IntoIterator<Item = Term>,
) -> Term {
    let operands: Vec<String> = operands.into_iter().map(|term| term.to_string()).collect();
    let operands = operands.join(",");
    let attributes = attributes.to_string();
    match attributes.is_empty() {
        true => Term::new(format!("{op}({operands})")),
        false => Term::new(format!("{op}<{attributes}>({operands})")),
    }
}

impl Term {
    pub(crate) fn new(text: impl Into<Rc<str>>) -> Self {
        Term(text.into())
    }

    /// An optional operand that is left out.
    pub(crate) fn none() -> Self {
        Term::new("_")
    }

    pub(crate) fn int(value: i64) -> Self {
        Term::new(value.to_string())
    }

    /// A vector of integers.
    pub(crate) fn ints<T: Display>(values: impl IntoIterator<Item = T>) -> Self {
        Term::new(list(values))
    }

    /// A number of the type of the weights.
    pub(crate) fn number(value: f64) -> Self {
        Term::new(format!("e:{value:?}"))
    }

    pub(crate) fn bool(value: bool) -> Self {
        Term::new(value.to_string())
    }

    /// Whether it is no call: it may stand in several places.
    pub(super) fn is_atom(&self) -> bool {
        !self.0.ends_with(')')
    }

    pub(crate) fn plus(self, other: Term) -> Term {
        call("Add", [self, other])
    }

    pub(crate) fn minus(self, other: Term) -> Term {
        call("Sub", [self, other])
    }

    pub(crate) fn times(self, other: Term) -> Term {
        call("Mul", [self, other])
    }

    pub(crate) fn over(self, other: Term) -> Term {
        call("Div", [self, other])
    }

    /// To another type: `E` is that of the weights, `F64`, `I64`, `BOOL`.
    pub(crate) fn cast(self, ty: &str) -> Term {
        call_with("Cast", format_args!("to={ty}"), [self])
    }

    /// For each axis of the result, which one it is.
    pub(crate) fn transpose(self, order: &[usize]) -> Term {
        match order.is_sorted() {
            true => self,
            false => call_with("Transpose", format_args!("perm={}", list(order)), [self]),
        }
    }

    /// With new axes of length 1, by their indices in the result.
    pub(crate) fn unsqueeze(self, axes: &[usize]) -> Term {
        match axes {
            [] => self,
            _ => call("Unsqueeze", [self, Term::ints(axes)]),
        }
    }

    /// Without these axes, whose length is 1.
    pub(crate) fn squeeze(self, axes: &[usize]) -> Term {
        call("Squeeze", [self, Term::ints(axes)])
    }

    /// A value whose axes are these of a value with so many, which has length 1 along the others.
    pub(crate) fn at_axes(self, places: &[usize], count: usize) -> Term {
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|axis| places[*axis]);
        let new = (0..count).filter(|axis| !places.contains(axis));
        let new: Vec<usize> = new.collect();
        self.transpose(&order).unsqueeze(&new)
    }

    /// The sum, mean, maximum or minimum along an axis.
    pub(crate) fn reduce(self, op: &str, axis: i64, keeps: bool) -> Term {
        let keeps = format!("keepdims={}", i64::from(keeps));
        call_with(op, keeps, [self, Term::ints([axis])])
    }

    /// `condition ? self : other`
    pub(crate) fn where_else(self, condition: Term, other: Term) -> Term {
        call("Where", [condition, self, other])
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `[1,0]`
pub(crate) fn list<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    format!("[{}]", values.join(","))
}
