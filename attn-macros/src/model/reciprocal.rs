//! Quotients by a number that is repeated, as products with its reciprocal: one division for a row in place of one for each of its numbers.
//!
//! The two differ by a rounding. The norms and the softmax of this crate are computed so, too.

use std::rc::Rc;

use super::graph::{Node, Region, Repeat, Step, Value, ValueId};
use crate::ops::{Elementwise, Fusion};
use crate::score::{Binary, Expr};

/// The region without quotients by operands that are repeated. The reciprocals become values.
pub(crate) fn multiply_by_reciprocals(region: &Region, values: &mut Vec<Value>) -> Region {
    let mut steps = Vec::new();
    // Each value with its reciprocal.
    let mut known: Vec<(ValueId, ValueId)> = Vec::new();
    for step in &region.steps {
        match step {
            Step::Repeat(repeat) => steps.push(Step::Repeat(Repeat {
                body: multiply_by_reciprocals(&repeat.body, values),
                ..repeat.clone()
            })),
            Step::Node(node) => {
                let Some((divisor, product)) = product(node) else {
                    steps.push(step.clone());
                    continue;
                };
                let value = node.operands[divisor];
                let found = known.iter().find(|(of, _)| *of == value);
                let reciprocal = found.map(|(_, reciprocal)| *reciprocal);
                let reciprocal = reciprocal.unwrap_or_else(|| {
                    let node = reciprocal_of(value, values);
                    let reciprocal = node.result;
                    known.push((value, reciprocal));
                    steps.push(Step::Node(node));
                    reciprocal
                });
                let mut node = node.clone();
                node.op = Rc::new(product);
                node.operands[divisor] = reciprocal;
                steps.push(Step::Node(node));
            }
        }
    }
    Region { steps }
}

/// Of a quotient by an operand that is repeated, the operand, and the product that it becomes.
fn product(node: &Node) -> Option<(usize, Elementwise)> {
    let Fusion::Elementwise(op) = node.fusion() else {
        return None;
    };
    let Expr::Binary(Binary::Div, dividend, divisor) = &op.expr else {
        return None;
    };
    let Expr::Operand(index) = **divisor else {
        return None;
    };
    op.repeats(index)?;
    let reads_it = crate::score::loops::operands(dividend).contains(&index);
    let repeats = (0..op.operands()).map(|index| op.repeats(index).map(<[usize]>::to_vec));
    let expr = (**dividend).clone() * Expr::Operand(index);
    (!reads_it).then(|| (index, Elementwise::repeating(expr, repeats.collect())))
}

/// `1 / value`
fn reciprocal_of(value: ValueId, values: &mut Vec<Value>) -> Node {
    let of = &values[value.0];
    let mut name = format!("{}_reciprocal", of.name);
    while values.iter().any(|value| value.name == name) {
        name.push('_');
    }
    let ty = of.ty.clone();
    values.push(Value {
        source: name.clone(),
        name,
        ty,
        view: None,
        alias: None,
    });
    Node {
        op: Rc::new(Elementwise::new(Expr::float(1.0) / Expr::Operand(0), 1)),
        operands: vec![value],
        result: ValueId(values.len() - 1),
        name: None,
    }
}
