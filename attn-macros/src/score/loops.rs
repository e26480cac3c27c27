//! Expressions as elementwise loops: their derivatives, and the ones that `attn-core` has compiled.

use super::diff::{Wrt, diff, is, mul};
use super::{Activation, Binary, Expr, Name, Unary};
use crate::spec::Real;

/// Values that are computed in one pass over memory, each an expression of the same operands.
pub(crate) struct Loop {
    pub(crate) operands: usize,
    pub(crate) values: Vec<Expr>,
}

impl Loop {
    pub(crate) fn of(expr: &Expr) -> Self {
        Self {
            operands: operands(expr).last().map_or(0, |last| last + 1),
            values: vec![expr.clone()],
        }
    }
}

/// The operands that an expression reads, in their order.
pub(crate) fn operands(expr: &Expr) -> Vec<usize> {
    fn push(expr: &Expr, read: &mut Vec<usize>) {
        if let Expr::Operand(index) = expr {
            read.push(*index);
        }
        expr.children()
            .into_iter()
            .for_each(|child| push(child, read));
    }
    let mut read = Vec::new();
    push(expr, &mut read);
    read.sort_unstable();
    read.dedup();
    read
}

/// The derivative of an expression by one of its operands.
#[derive(Clone, Debug)]
pub(crate) enum Slope {
    /// 0: the operand has no gradient.
    Zero,
    /// 1: its gradient is that of the value.
    One,
    Other(Expr),
}

/// The derivatives by so many operands.
pub(crate) fn slopes(expr: &Expr, operands: usize) -> Vec<Slope> {
    let slope = |index| match diff(expr, Wrt::Operand(index)) {
        slope if is(&slope, 0.0) => Slope::Zero,
        slope if is(&slope, 1.0) => Slope::One,
        slope => Slope::Other(slope),
    };
    (0..operands).map(slope).collect()
}

/// The gradients of operands, as a loop.
pub(crate) struct Derivative {
    /// The operands that it reads, and the value, as the operand behind all others. The gradient of the value is its last operand.
    pub(crate) reads: Vec<usize>,
    /// The operands whose gradients are its values: those whose derivative is neither 0 nor 1.
    pub(crate) of: Vec<usize>,
    pub(crate) body: Loop,
}

impl Derivative {
    /// Perhaps it reads the value where that is a part of it, as in the derivative of `exp(x)`.
    pub(crate) fn of(expr: &Expr, operands: usize, reads_value: bool) -> Self {
        let slopes = slopes(expr, operands).into_iter().enumerate();
        let (of, slopes): (Vec<_>, Vec<_>) = slopes
            .filter_map(|(index, slope)| match slope {
                Slope::Other(slope) => Some((index, slope)),
                Slope::Zero | Slope::One => None,
            })
            .unzip();
        let slopes: Vec<_> = match reads_value {
            true => slopes
                .iter()
                .map(|slope| slope.with(expr, &Expr::Operand(operands)))
                .collect(),
            false => slopes,
        };
        let mut reads: Vec<usize> = slopes.iter().flat_map(self::operands).collect();
        reads.sort_unstable();
        reads.dedup();
        let renumbered = |index| {
            let place = reads.iter().position(|read| *read == index);
            Expr::Operand(place.unwrap_or(index))
        };
        let d = Expr::Operand(reads.len());
        let values = slopes.iter();
        let values = values.map(|slope| mul(d.clone(), slope.with_operands(&renumbered)));
        let body = Loop {
            operands: reads.len() + 1,
            values: values.collect(),
        };
        Self { reads, of, body }
    }
}

/// A loop that `attn-core` has compiled, with its derivative.
pub(crate) struct Known {
    /// Its type there.
    pub(crate) name: &'static str,
    /// The names of the numbers that it takes.
    pub(crate) numbers: &'static [&'static str],
    operands: usize,
    expr: fn(&[Expr], &[Expr]) -> Expr,
}

const fn known(name: &'static str, operands: usize, expr: fn(&[Expr], &[Expr]) -> Expr) -> Known {
    Known {
        name,
        numbers: &[],
        operands,
        expr,
    }
}

const fn with_number(
    name: &'static str,
    operands: usize,
    expr: fn(&[Expr], &[Expr]) -> Expr,
) -> Known {
    Known {
        numbers: &["by"],
        ..known(name, operands, expr)
    }
}

fn operand(of: &[Expr], index: usize) -> Expr {
    of[index].clone()
}

/// The known loops: `attn-core/src/kernel/loops/known.rs` is generated from this table (`tests/passes/loops.rs`).
pub(crate) static KNOWN: &[Known] = &[
    known("Copy", 1, |x, _| operand(x, 0)),
    known("Add", 2, |x, _| operand(x, 0) + operand(x, 1)),
    known("Sub", 2, |x, _| operand(x, 0) - operand(x, 1)),
    known("Mul", 2, |x, _| operand(x, 0) * operand(x, 1)),
    with_number("Scale", 1, |x, by| operand(x, 0) * operand(by, 0)),
    with_number("Shift", 1, |x, by| operand(x, 0) + operand(by, 0)),
    known("Square", 1, |x, _| operand(x, 0) * operand(x, 0)),
    known("Div", 2, |x, _| operand(x, 0) / operand(x, 1)),
    with_number("Reciprocal", 1, |x, by| operand(by, 0) / operand(x, 0)),
    known("Exp", 1, |x, _| operand(x, 0).unary(Unary::Exp)),
    known("Ln", 1, |x, _| operand(x, 0).unary(Unary::Ln)),
    known("Sqrt", 1, |x, _| operand(x, 0).unary(Unary::Sqrt)),
    known("Sin", 1, |x, _| operand(x, 0).unary(Unary::Sin)),
    known("Cos", 1, |x, _| operand(x, 0).unary(Unary::Cos)),
    known("Abs", 1, |x, _| operand(x, 0).abs()),
    known("Floor", 1, |x, _| operand(x, 0).unary(Unary::Floor)),
    known("Min", 2, |x, _| operand(x, 0).min(operand(x, 1))),
    known("Max", 2, |x, _| operand(x, 0).max(operand(x, 1))),
    known("Gelu", 1, |x, _| activation(x, Activation::Gelu)),
    known("GeluTanh", 1, |x, _| activation(x, Activation::GeluTanh)),
    known("Relu", 1, |x, _| activation(x, Activation::Relu)),
    known("ReluSquared", 1, |x, _| {
        activation(x, Activation::ReluSquared)
    }),
    known("Silu", 1, |x, _| activation(x, Activation::Silu)),
    known("Sigmoid", 1, |x, _| operand(x, 0).unary(Unary::Sigmoid)),
    known("Tanh", 1, |x, _| operand(x, 0).unary(Unary::Tanh)),
    known("GeluGate", 2, |x, _| {
        activation(x, Activation::Gelu) * operand(x, 1)
    }),
    known("GeluTanhGate", 2, |x, _| {
        activation(x, Activation::GeluTanh) * operand(x, 1)
    }),
    known("ReluGate", 2, |x, _| {
        activation(x, Activation::Relu) * operand(x, 1)
    }),
    known("SiluGate", 2, |x, _| {
        activation(x, Activation::Silu) * operand(x, 1)
    }),
    known("SigmoidGate", 2, |x, _| {
        operand(x, 0).unary(Unary::Sigmoid) * operand(x, 1)
    }),
    with_number("AddScaled", 2, |x, by| {
        operand(x, 0) + operand(x, 1) * operand(by, 0)
    }),
    known("AddProduct", 3, |x, _| {
        operand(x, 0) + operand(x, 1) * operand(x, 2)
    }),
    known("Modulate", 3, |x, _| {
        operand(x, 0) * (operand(x, 1) + Expr::float(1.0)) + operand(x, 2)
    }),
];

fn activation(x: &[Expr], activation: Activation) -> Expr {
    operand(x, 0).unary(Unary::Activation(activation))
}

/// A known loop that an expression is.
pub(crate) struct Match {
    pub(crate) known: &'static Known,
    /// The operands of the expression that are those of the loop.
    pub(crate) operands: Vec<usize>,
    pub(crate) numbers: Vec<Real>,
}

impl Known {
    /// With its operands by their numbers, and its numbers as parameters by their names.
    pub(crate) fn expr(&self) -> Expr {
        let operands: Vec<_> = (0..self.operands).map(Expr::Operand).collect();
        let number = |name: &&'static str| Expr::Param {
            name: Name::from(*name),
            index: Vec::new(),
        };
        let numbers: Vec<_> = self.numbers.iter().map(number).collect();
        (self.expr)(&operands, &numbers)
    }

    /// The known loop that an expression is, whatever the order of sums and products.
    pub(crate) fn find(expr: &Expr) -> Option<Match> {
        KNOWN.iter().find_map(|known| {
            let mut found = Found::default();
            found.matches(&known.expr(), expr).then_some(())?;
            Some(Match {
                known,
                operands: found.operands.into_iter().collect::<Option<_>>()?,
                numbers: found.numbers,
            })
        })
    }
}

/// The parts of an expression at the places of a known one's operands and numbers.
#[derive(Clone, Default)]
struct Found {
    operands: Vec<Option<usize>>,
    numbers: Vec<Real>,
}

impl Found {
    fn matches(&mut self, known: &Expr, expr: &Expr) -> bool {
        match (known, expr) {
            (Expr::Operand(known), Expr::Operand(index)) => self.operand(*known, *index),
            (Expr::Param { .. }, Expr::Float(number)) => {
                self.numbers.push(number.clone());
                true
            }
            (Expr::Float(known), Expr::Float(number)) => {
                known.value.is_some() && known.value == number.value
            }
            (Expr::Unary(known, a), Expr::Unary(op, b)) => known == op && self.matches(a, b),
            (Expr::Binary(known, a, b), Expr::Binary(op, c, d)) if known == op => {
                let before = self.clone();
                if self.matches(a, c) && self.matches(b, d) {
                    return true;
                }
                *self = before;
                let commutes = matches!(op, Binary::Add | Binary::Mul);
                commutes && self.matches(a, d) && self.matches(b, c)
            }
            _ => false,
        }
    }

    /// Whether an operand can stand for one of the known expression: the same everywhere, and for no other one.
    fn operand(&mut self, known: usize, index: usize) -> bool {
        let others = self.operands.iter().enumerate();
        let is_taken = others
            .filter(|(other, _)| *other != known)
            .any(|(_, operand)| *operand == Some(index));
        if self.operands.len() <= known {
            self.operands.resize(known + 1, None);
        }
        let operand = &mut self.operands[known];
        !is_taken && *operand.get_or_insert(index) == index
    }
}
