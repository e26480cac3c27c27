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
pub(crate) static FUNCTIONS: [Function; 11] = [
    float("exp", Unary::Exp),
    float("ln", Unary::Ln),
    float("sqrt", Unary::Sqrt),
    float("tanh", Unary::Tanh),
    float("sigmoid", Unary::Sigmoid),
    float("floor", Unary::Floor),
    number("abs", &["x"], |args| args[0].clone().abs()),
    number("min", &["a", "b"], |args| {
        args[0].clone().min(args[1].clone())
    }),
    number("max", &["a", "b"], |args| {
        args[0].clone().max(args[1].clone())
    }),
    number("clamp", &["x", "lo", "hi"], clamp),
    Function {
        name: "pow",
        args: &["x", "n"],
        meaning: Meaning::Pow,
    },
];

impl Function {
    pub(crate) fn find(name: &str) -> Option<&'static Function> {
        FUNCTIONS.iter().find(|function| function.name == name)
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
        let mut args: Vec<_> = call.args.iter().map(|arg| self.expr(arg)).collect();
        let name = match &*call.func {
            syn::Expr::Path(path) => path.path.get_ident().map(Ident::to_string),
            _ => None,
        };
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
        if let [_, lo, hi] = args.as_slice()
            && is_above(lo, hi)
        {
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

/// Whether `lo` is above `hi` for certain.
fn is_above(lo: &Expr, hi: &Expr) -> bool {
    match (eval::value(lo), eval::value(hi)) {
        (Some(Value::Int(lo)), Some(Value::Int(hi))) => lo > hi,
        (Some(Value::Float(lo)), Some(Value::Float(hi))) => lo > hi,
        _ => false,
    }
}
