//! The functions that an expression may call.

use proc_macro2::Ident;
use syn::ExprCall;

use super::lower::Lower;
use super::operand::{Operand, OperandKind};
use crate::messages::body as messages;
use crate::score::eval::{self, Value};
use crate::score::{Binary, Expr, Type, Unary};

/// A function of the language.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    args: &'static [&'static str],
    meaning: Meaning,
}

#[derive(Clone, Copy)]
enum Meaning {
    /// From a float to a float.
    Float(Unary),
    /// A function of integers or of floats, whose result has the type of its arguments.
    Number(fn(&[Expr]) -> Expr),
    /// A function of a float and a number, which is the exponent.
    Pow,
}

const fn float(name: &'static str, op: Unary) -> Function {
    Function {
        name,
        args: &["x"],
        meaning: Meaning::Float(op),
    }
}

const fn number(
    name: &'static str,
    args: &'static [&'static str],
    apply: fn(&[Expr]) -> Expr,
) -> Function {
    Function {
        name,
        args,
        meaning: Meaning::Number(apply),
    }
}

/// All of them.
pub(crate) static FUNCTIONS: [&Function; 13] = [
    &Function::EXP,
    &Function::LN,
    &Function::SQRT,
    &Function::SIN,
    &Function::COS,
    &Function::TANH,
    &Function::SIGMOID,
    &Function::FLOOR,
    &Function::ABS,
    &Function::MIN,
    &Function::MAX,
    &Function::CLAMP,
    &Function::POW,
];

impl Function {
    pub(crate) const EXP: Function = float("exp", Unary::Exp);
    pub(crate) const LN: Function = float("ln", Unary::Ln);
    pub(crate) const SQRT: Function = float("sqrt", Unary::Sqrt);
    pub(crate) const SIN: Function = float("sin", Unary::Sin);
    pub(crate) const COS: Function = float("cos", Unary::Cos);
    const TANH: Function = float("tanh", Unary::Tanh);
    const SIGMOID: Function = float("sigmoid", Unary::Sigmoid);
    pub(crate) const FLOOR: Function = float("floor", Unary::Floor);
    pub(crate) const ABS: Function = number("abs", &["x"], |args| args[0].clone().abs());
    pub(crate) const MIN: Function = number("min", &["a", "b"], |args| {
        args[0].clone().min(args[1].clone())
    });
    pub(crate) const MAX: Function = number("max", &["a", "b"], |args| {
        args[0].clone().max(args[1].clone())
    });
    pub(crate) const CLAMP: Function = number("clamp", &["x", "lo", "hi"], clamp);
    pub(crate) const POW: Function = Function {
        name: "pow",
        args: &["x", "n"],
        meaning: Meaning::Pow,
    };

    pub(crate) fn find(name: &str) -> Option<&'static Function> {
        let mut all = FUNCTIONS.iter();
        all.find(|function| function.name == name).copied()
    }

    /// The function of floats.
    pub(crate) fn of(&self, args: &[Expr]) -> Expr {
        match self.meaning {
            Meaning::Float(op) => args[0].clone().unary(op),
            Meaning::Number(apply) => apply(args),
            Meaning::Pow => args[0].clone().binary(Binary::Pow, args[1].clone()),
        }
    }

    /// Whether the argument at this place has to be a number.
    pub(crate) fn is_number(&self, index: usize) -> bool {
        index == 1 && matches!(self.meaning, Meaning::Pow)
    }

    /// The notation of a call.
    pub(crate) fn usage(&self) -> String {
        format!("{}({})", self.name, self.args.join(", "))
    }

    pub(crate) fn arity(&self) -> usize {
        self.args.len()
    }
}

impl Lower<'_, '_> {
    pub(super) fn call(&mut self, call: &ExprCall) -> Operand {
        let name = match &*call.func {
            syn::Expr::Path(path) => path.path.get_ident().map(Ident::to_string),
            _ => None,
        };
        if name.as_deref() == Some("dot") {
            return self.dot(call);
        }
        let mut args: Vec<_> = call.args.iter().map(|arg| self.expr(arg)).collect();
        let Some(function) = name.as_deref().and_then(Function::find) else {
            let message = messages::unknown_function(&call.func, self.scope.tensors);
            return self.error(&call.func, message);
        };
        if args.len() != function.arity() {
            let message = messages::wrong_arguments(function, args.len());
            return self.error(&call.func, message);
        }
        match function.meaning {
            Meaning::Float(op) => {
                let x = self.float_argument(args.swap_remove(0), function, &call.args[0]);
                self.checked(x.unary(op), OperandKind::Is(Type::Float), call)
            }
            Meaning::Number(apply) => self.of_numbers(args, function, apply, call),
            Meaning::Pow => {
                let n = self.exponent(args.swap_remove(1), function, &call.args[1]);
                let x = self.float_argument(args.swap_remove(0), function, &call.args[0]);
                self.checked(x.binary(Binary::Pow, n), OperandKind::Is(Type::Float), call)
            }
        }
    }

    fn float_argument(&mut self, x: Operand, function: &Function, at: &syn::Expr) -> Expr {
        let subject = format!("`{}` takes", function.name);
        self.require(x, Type::Float, &subject, at)
    }

    /// A function of numbers of one type.
    fn of_numbers(
        &mut self,
        args: Vec<Operand>,
        function: &Function,
        apply: fn(&[Expr]) -> Expr,
        call: &ExprCall,
    ) -> Operand {
        let kinds: Vec<_> = args.iter().map(|arg| arg.kind).collect();
        if kinds.contains(&OperandKind::Mistake) {
            return Operand::mistake();
        }
        let common = kinds
            .iter()
            .try_fold(OperandKind::Mistake, |common, kind| common.common(*kind));
        let Some(kind) = common.filter(|kind| kind.is_number()) else {
            let message = messages::mixed_arguments(function, &kinds, call);
            return self.error(&call.func, message);
        };
        let args = args.into_iter().map(|arg| self.settle(arg, kind));
        let args: Vec<_> = args.collect();
        if let Some([lo, hi]) = upside_down(&args) {
            self.error(&call.func, messages::clamp_upside_down(lo, hi));
        }
        let value = apply(&args);
        if !self.is_short(&value, call) {
            return Operand::mistake();
        }
        self.checked(value, kind, call)
    }

    /// A number as the exponent of a float. The derivative depends on it.
    fn exponent(&mut self, n: Operand, function: &Function, at: &syn::Expr) -> Expr {
        if n.kind == OperandKind::Mistake {
            return n.expr;
        }
        if n.kind.is_number() && !eval::reads_nothing(&n.expr) {
            self.error(at, messages::exponent(at));
        }
        let n = match n.kind {
            OperandKind::Is(Type::Int) => Operand::new(n.expr.to_float(), Type::Float),
            _ => n,
        };
        self.float_argument(n, function, at)
    }
}

/// For floats it is a choice, because its derivative at the bounds is that of `x`, and that of `min` and `max` half of it.
fn clamp(args: &[Expr]) -> Expr {
    let [x, lo, hi] = [0, 1, 2].map(|at: usize| args[at].clone());
    match x.ty() {
        Type::Float => {
            let below = x.clone().less(lo.clone());
            below.select(lo, hi.clone().less(x.clone()).select(hi, x))
        }
        _ => x.max(lo).min(hi),
    }
}

/// The bounds of `clamp`, if the lower one is above the upper one for certain.
pub(crate) fn upside_down(args: &[Expr]) -> Option<[&Expr; 2]> {
    match args {
        [_, lo, hi] if is_above(lo, hi) => Some([lo, hi]),
        _ => None,
    }
}

fn is_above(lo: &Expr, hi: &Expr) -> bool {
    match (eval::value(lo), eval::value(hi)) {
        (Some(Value::Int(lo)), Some(Value::Int(hi))) => lo > hi,
        (Some(Value::Float(lo)), Some(Value::Float(hi))) => lo > hi,
        _ => false,
    }
}
