//! The nonlinearities, number by number.

use super::{CallSite, Elementwise, Lower, LowerOperands, Operation};
use crate::model::graph::ValueId;
use crate::model::lower::{Lowering, RegionBuilder};
use crate::score::{Activation as Function, Expr, Unary};
use crate::spec::keys::Word;

/// A function of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Activation {
    /// In a declaration.
    name: &'static str,
    /// The type in `attn::nn`.
    pub(crate) ty: &'static str,
    op: Unary,
    doc: &'static str,
}

const fn of(name: &'static str, ty: &'static str, op: Unary, doc: &'static str) -> Activation {
    Activation { name, ty, op, doc }
}

const fn function(function: Function, doc: &'static str) -> Activation {
    of(
        function.name(),
        function.ty(),
        Unary::Activation(function),
        doc,
    )
}

pub(super) const GELU: Activation =
    function(Function::Gelu, "`x Φ(x)` (Hendrycks and Gimpel 2016).");
pub(super) const GELU_TANH: Activation = function(
    Function::GeluTanh,
    "`gelu` approximated by `tanh`, as in GPT-2.",
);
pub(super) const RELU: Activation = function(Function::Relu, "`max(x, 0)`.");
pub(super) const RELU_SQUARED: Activation =
    function(Function::ReluSquared, "`max(x, 0)²` (So et al. 2021).");
pub(super) const SILU: Activation = function(Function::Silu, "`x sigmoid(x)`.");
pub(super) const SIGMOID: Activation =
    of("sigmoid", "Sigmoid", Unary::Sigmoid, "`1 / (1 + exp(-x))`.");
pub(super) const TANH: Activation = of("tanh", "Tanh", Unary::Tanh, "`tanh(x)`.");

/// In the order in which the documentation lists them.
pub(super) static OPERATIONS: [Operation; 7] = [
    operation(&GELU),
    operation(&GELU_TANH),
    operation(&RELU),
    operation(&RELU_SQUARED),
    operation(&SILU),
    operation(&SIGMOID),
    operation(&TANH),
];

const fn operation(activation: &'static Activation) -> Operation {
    Operation {
        name: activation.name,
        keys: &[],
        positional: 0,
        may_be_tied: false,
        signature: "`[..]` to the same",
        doc: activation.doc,
        lower: Lower::Operands(1..=1, activation),
    }
}

impl Activation {
    /// The name as the value of a key.
    pub(super) const fn word(&self) -> Word {
        Word {
            name: self.name,
            args: &[],
            doc: self.doc,
        }
    }
}

impl Activation {
    /// Its value at `x`.
    pub(super) fn of(&self, x: Expr) -> Expr {
        x.unary(self.op)
    }
}

impl LowerOperands for Activation {
    fn lower(
        &self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let ty = lowering.floats_of(call)?;
        let op = Elementwise::unary(self.op);
        Some(lowering.node(builder, op, call.operands.clone(), (call.result, ty)))
    }
}
