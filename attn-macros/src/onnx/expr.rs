//! Expressions of the elements of operands, and of scores and places, as operators on tensors.
//!
//! A place is broadcast: `b` is `[batch, 1, 1, 1]`, `h` is `[heads, 1, 1]`, `q_idx` is `[query, 1]`, and `kv_idx` is `[key]`. What depends on
//! places alone is computed in 64 bits, as the composed form does.

use super::node::OnnxNode;
use super::term::{Term, call, call_with};
use crate::graph::CallData;
use crate::graph::block::axis;
use crate::model::types::{Axis, ValueKind};
use crate::score::{Activation, Binary, Data, Expr, Type, Unary, Var};
use crate::spec::{Dim, Size};

/// The type of a float.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Float {
    /// The type of the weights.
    Element,
    Double,
}

impl Float {
    const fn name(self) -> &'static str {
        match self {
            Float::Element => "E",
            Float::Double => "F64",
        }
    }

    fn constant(self, text: &str) -> Term {
        let prefix = match self {
            Float::Element => 'e',
            Float::Double => 'd',
        };
        Term::new(format!("{prefix}:{text}"))
    }

    fn number(self, value: f64) -> Term {
        self.constant(&format!("{value:?}"))
    }
}

impl OnnxNode<'_, '_> {
    /// An expression of these operands, of the type of the weights.
    pub(crate) fn elements(&mut self, expr: &Expr, operands: &[Term]) -> Term {
        Expressions { of: self, operands }.value(expr, Float::Element)
    }
}

/// The operations of an expression.
struct Expressions<'e, 'n, 'm> {
    of: &'e mut OnnxNode<'n, 'm>,
    operands: &'e [Term],
}

/// Whether it depends on nothing but the place and data: it is computed in 64 bits.
fn is_of_places(expr: &Expr) -> bool {
    let reads = |part: &Expr| matches!(part, Expr::Var(_) | Expr::Data { .. });
    expr.is_constant() && expr.any(&reads)
}

impl Expressions<'_, '_, '_> {
    fn value(&mut self, expr: &Expr, float: Float) -> Term {
        if float == Float::Element && expr.ty() == Type::Float && is_of_places(expr) {
            return self.value(expr, Float::Double).cast("E");
        }
        match expr {
            Expr::Operand(index) => {
                let operand = self.operands.get(*index);
                operand.cloned().unwrap_or_else(Term::none)
            }
            Expr::Var(var) => self.place(*var),
            Expr::Int(size) => Term::new(self.of.size(size)),
            Expr::Float(real) => {
                let text = self.of.writer.real(real);
                float.constant(&text)
            }
            Expr::Bool(value) => Term::bool(*value),
            Expr::Param { name, index } => self.param(name, index),
            Expr::Data { data, index } => match float {
                Float::Double if expr.ty() == Type::Float => self.data(data, index).cast("F64"),
                _ => self.data(data, index),
            },
            Expr::Unary(op, a) => self.unary(*op, a, float),
            Expr::Binary(op, a, b) => self.binary(*op, a, b, float),
            Expr::Select(condition, then, otherwise) => {
                let condition = self.value(condition, float);
                let [then, otherwise] = [then, otherwise].map(|side| self.value(side, float));
                then.where_else(condition, otherwise)
            }
        }
    }

    fn unary(&mut self, op: Unary, a: &Expr, float: Float) -> Term {
        if let (Unary::ToInt, true) = (op, a.ty() == Type::Float) {
            // Truncated, within the integers that can be passed.
            let limit = (1_u64 << 31) as f64;
            let a = self.value(a, Float::Double);
            let least = call("Max", [a, Float::Double.number(-limit)]);
            return call("Min", [least, Float::Double.number(limit)]).cast("I64");
        }
        let a = self.value(a, float);
        match op {
            Unary::Not => call("Not", [a]),
            Unary::Abs => call("Abs", [a]),
            Unary::Exp => call("Exp", [a]),
            Unary::Ln => call("Log", [a]),
            Unary::Sqrt => call("Sqrt", [a]),
            Unary::Sin => call("Sin", [a]),
            Unary::Cos => call("Cos", [a]),
            Unary::Tanh => call("Tanh", [a]),
            Unary::Sigmoid => call("Sigmoid", [a]),
            Unary::Floor => call("Floor", [a]),
            Unary::ToFloat => a.cast(float.name()),
            Unary::ToInt => a,
            Unary::Activation(activation) => self.activation(activation, a, float),
            // The derivative of an activation stands in no forward pass.
            Unary::Slope(_) => Term::none(),
        }
    }

    fn activation(&mut self, activation: Activation, x: Term, float: Float) -> Term {
        let number = |value: f64| float.number(value);
        let x = self.of.name(x);
        match activation {
            Activation::Relu => call("Relu", [x]),
            Activation::ReluSquared => {
                let positive = self.of.name(call("Relu", [x]));
                positive.clone().times(positive)
            }
            Activation::Silu => x.clone().times(call("Sigmoid", [x])),
            Activation::Gelu => {
                let erf = call(
                    "Erf",
                    [x.clone().times(number(std::f64::consts::FRAC_1_SQRT_2))],
                );
                x.times(number(0.5)).times(erf.plus(number(1.0)))
            }
            Activation::GeluTanh => {
                let cube = x.clone().times(x.clone()).times(x.clone());
                let inner = x.clone().plus(cube.times(number(0.044_715)));
                let root = number((2.0 / std::f64::consts::PI).sqrt());
                let tanh = call("Tanh", [inner.times(root)]);
                x.times(number(0.5)).times(tanh.plus(number(1.0)))
            }
        }
    }

    fn binary(&mut self, op: Binary, a: &Expr, b: &Expr, float: Float) -> Term {
        // Two places are compared as they are computed.
        let compares = matches!(op, Binary::Eq | Binary::Lt | Binary::Le);
        let float = match compares && a.is_constant() && b.is_constant() {
            true => Float::Double,
            false => float,
        };
        let divisor = b;
        let [a, b] = [a, b].map(|side| self.value(side, float));
        match op {
            Binary::Add => a.plus(b),
            Binary::Sub => a.minus(b),
            Binary::Mul => a.times(b),
            Binary::Div => a.over(self.divisor(divisor, b)),
            Binary::Rem => {
                let b = self.divisor(divisor, b);
                // The sign is that of the dividend.
                call_with("Mod", "fmod=1", [a, b])
            }
            Binary::Min => call("Min", [a, b]),
            Binary::Max => call("Max", [a, b]),
            Binary::Pow => call("Pow", [a, b]),
            Binary::Eq => call("Equal", [a, b]),
            Binary::Lt => call("Less", [a, b]),
            Binary::Le => call("LessOrEqual", [a, b]),
            Binary::And => call("And", [a, b]),
            Binary::Or => call("Or", [a, b]),
        }
    }

    /// Both sides of an `if` are computed: an integer that may be 0 divides as if it were 1, where that is not taken.
    fn divisor(&mut self, expr: &Expr, term: Term) -> Term {
        let is_constant = matches!(expr, Expr::Int(_));
        if expr.ty() != Type::Int || is_constant {
            return term;
        }
        let term = self.of.name(term);
        Term::int(1).where_else(call("Equal", [term.clone(), Term::int(0)]), term)
    }

    fn place(&mut self, var: Var) -> Term {
        match var {
            Var::B => self.indices(&Dim::Batch).unsqueeze(&[1, 2, 3]),
            Var::H => {
                let heads = self.heads();
                self.indices(&Dim::Size(heads)).unsqueeze(&[1, 2])
            }
            Var::QIdx => self.indices(&Dim::Query).unsqueeze(&[1]),
            Var::KvIdx => self.indices(&Dim::Key),
            Var::QLen => self.of.length(&axis(&Dim::Query)).squeeze(&[0]),
            Var::KvLen => self.of.length(&axis(&Dim::Key)).squeeze(&[0]),
        }
    }

    fn indices(&mut self, dim: &Dim) -> Term {
        self.of.indices(&axis(dim))
    }

    fn heads(&self) -> Size {
        let scope = self.of.scope();
        match scope.map(|scope| &scope.graph.weights[1]) {
            Some(Dim::Size(heads)) => heads.clone(),
            _ => Size::known(1),
        }
    }

    fn param(&mut self, name: &str, index: &[Expr]) -> Term {
        let Some(scope) = self.of.scope() else {
            return Term::none();
        };
        let graph = scope.graph;
        let dims = graph.dims(name);
        let given = graph.given.iter().position(|given| given.name == name);
        let tensor = match given {
            Some(index) => {
                let first = self.of.operands().len() - graph.given.len();
                self.of.operand(first + index)
            }
            None => self.of.parameter(name),
        };
        self.element(tensor, &dims, index)
    }

    /// Elements of a tensor with these axes.
    fn element(&mut self, tensor: Term, dims: &[Dim], index: &[Expr]) -> Term {
        if let Some(new) = self.new_axes(dims, index) {
            return tensor.unsqueeze(&new);
        }
        let axes: Vec<Axis> = dims.iter().map(axis).collect();
        let mut place: Option<Term> = None;
        for (index, of) in index.iter().zip(&axes) {
            let index = self.value(index, Float::Double);
            let last = match of {
                Axis::Size(size) => Term::new(self.of.size(size)),
                Axis::Symbol(_) => self.of.length(of).squeeze(&[0]),
            };
            // The branch of an `if` that is not taken may have any index.
            let end = last.clone().minus(Term::int(1));
            let index = call("Max", [call("Min", [index, end]), Term::int(0)]);
            place = Some(match place {
                None => index,
                Some(place) => place.times(last).plus(index),
            });
        }
        let flat = call("Reshape", [tensor, Term::ints([-1])]);
        call("Gather", [flat, place.unwrap_or_else(|| Term::int(0))])
    }

    /// The axes of length 1 by which a tensor stands among `[batch, heads, query, key]`, if its indices are these places.
    fn new_axes(&self, dims: &[Dim], index: &[Expr]) -> Option<Vec<usize>> {
        let heads = self.heads();
        let places = dims
            .iter()
            .zip(index)
            .map(|(dim, index)| match (dim, index) {
                (Dim::Batch, Expr::Var(Var::B)) => Some(0),
                (Dim::Size(size), Expr::Var(Var::H)) if *size == heads => Some(1),
                (Dim::Query, Expr::Var(Var::QIdx)) => Some(2),
                (Dim::Key, Expr::Var(Var::KvIdx)) => Some(3),
                _ => None,
            });
        let places: Vec<usize> = places.collect::<Option<_>>()?;
        let is_ascending = places.windows(2).all(|pair| pair[0] < pair[1]);
        let first = *places.first()?;
        let is_new = |axis: &usize| !places.contains(axis);
        let new = (first..4).filter(is_new).map(|axis| axis - first);
        is_ascending.then(|| new.collect())
    }

    fn data(&mut self, data: &Data, index: &[Expr]) -> Term {
        let Some(scope) = self.of.layer else {
            return Term::none();
        };
        let find = |is: &dyn Fn(&CallData) -> bool| {
            let mut all = scope.data.iter();
            all.find(|(data, _)| is(data))
        };
        match data {
            Data::Padding => {
                let found = find(&|data| matches!(data, CallData::Padding));
                let Some(padding) = found.and_then(|(_, tensors)| tensors.first()) else {
                    return Term::bool(true);
                };
                let term = padding.term.clone();
                let new: &[usize] = match (padding.kind, padding.axes) {
                    (ValueKind::Bools, _) => return term.unsqueeze(&[1, 2]),
                    (_, 1) => &[1, 2, 3],
                    // A length for each query.
                    _ => &[1, 3],
                };
                let keys = self.place(Var::KvIdx);
                call("Less", [keys, term.unsqueeze(new)])
            }
            Data::QueryDocument | Data::KeyDocument => {
                let found = find(&|data| matches!(data, CallData::Document));
                let Some((_, tensors)) = found else {
                    return Term::int(0);
                };
                let (tensor, new) = match data {
                    Data::QueryDocument => (tensors.first(), [1, 3]),
                    _ => (tensors.last(), [1, 2]),
                };
                let term = tensor.map_or_else(Term::none, |tensor| tensor.term.clone());
                term.unsqueeze(&new)
            }
            Data::Declared { name, .. } => {
                let is_it = |data: &CallData| matches!(data, CallData::Declared(declared) if declared.name == *name);
                let Some((CallData::Declared(declared), tensors)) = find(&is_it) else {
                    return Term::none();
                };
                let tensor = tensors.first();
                let term = tensor.map_or_else(Term::none, |tensor| tensor.term.clone());
                self.element(term, &declared.dims, index)
            }
        }
    }
}
