//! Messages about expressions in a body.

use std::fmt::Display;

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::{BinOp, ExprBinary, ExprCall, ExprMethodCall, Lit};

use super::super::{did_you_mean, listed};
use super::{LET, bare, expected, indexed, names, shown};
use crate::score::{Expr, Type};
use crate::spec::Coordinate;
use crate::spec::Dim;
use crate::spec::body::{FUNCTIONS, Found, Function, FunctionKind, OperandKind, Tensor, text_of};
use crate::spec::elsewhere::{NamePosition, instead_of};
use crate::spec::keys::{Word, nearest};

/// `expr` as an operand of `as` or of a comparison.
fn operand(expr: &syn::Expr) -> String {
    let text = shown(expr);
    match expr {
        syn::Expr::Binary(_) | syn::Expr::If(_) | syn::Expr::Block(_) => format!("({text})"),
        _ => text,
    }
}

fn of_type(ty: Type) -> OperandKind {
    OperandKind::Is(ty)
}

// Names.

/// `known` are the names that exist, `further` other names that may be meant.
pub(crate) fn unknown_name(
    found: &Ident,
    known: &[String],
    further: impl Iterator<Item = String>,
) -> String {
    let all: Vec<_> = known.iter().cloned().chain(further).collect();
    let near = nearest(&found.to_string(), all.iter().map(String::as_str));
    let help = did_you_mean(near, || {
        let known = match known {
            [] => "there are no names here".to_owned(),
            known => format!("the names here are {}", names(known)),
        };
        format!("{known}; a `const` is written in capitals")
    });
    format!("unknown name `{found}`\n{help}")
}

pub(crate) fn function_without_arguments(function: &Function) -> String {
    format!(
        "`{}` is a function\nhelp: write `{}`",
        function.name,
        function.usage()
    )
}

pub(crate) fn not_an_argument(kind: FunctionKind, name: &Ident, args: &[Ident]) -> String {
    let mut order = kind.args();
    order.extend(Coordinate::all().map(Coordinate::name));
    let named = |known: &&String| name == *known || args.iter().any(|arg| arg == *known);
    let args: Vec<_> = order.iter().filter(named).cloned().collect();
    let function = kind.name();
    format!(
        "`{name}` is no argument of this `fn {function}`\nhelp: write `fn {function}({})`",
        args.join(", ")
    )
}

pub(crate) fn without_index(tensor: Tensor<'_>) -> String {
    format!(
        "`{}` is a tensor, and an expression reads an element of it\nhelp: write `{}`",
        tensor.name(),
        indexed(tensor)
    )
}

pub(crate) fn not_a_tensor(found: &syn::Expr, tensors: &[Tensor<'_>]) -> String {
    let known = tensors.iter().map(|tensor| tensor.name().to_string());
    let known: Vec<_> = known.collect();
    let text = shown(found);
    let near = nearest(&text, known.iter().map(String::as_str));
    let help = match near {
        Some(near) if near == text => "help: a `let` hides the tensor of this name".to_owned(),
        near => did_you_mean(near, || match known.as_slice() {
            [] => "declare one: `param name: [heads] = zeros;`".to_owned(),
            known => format!("there is {}", names(known)),
        }),
    };
    format!("only a `param` or a `data` is indexed, found `{text}`\n{help}")
}

/// A tensor that is read at `places` and not declared.
pub(crate) fn undeclared(found: &Ident, places: &[&syn::Expr], tensors: &[Tensor<'_>]) -> String {
    let known: Vec<_> = tensors
        .iter()
        .map(|tensor| tensor.name().to_string())
        .collect();
    let near = nearest(&found.to_string(), known.iter().map(String::as_str));
    let help = did_you_mean(near, || {
        let passed = [
            ("b", "batch"),
            ("h", "heads"),
            ("q_idx", "q_len"),
            ("kv_idx", "kv_len"),
        ];
        let learned = axes(places, &[("h", "heads")]);
        let passed = axes(places, &passed);
        format!(
            "declare what is learned as `param {found}: [{learned}] = zeros;`, and what the call passes as `data {found}: [{passed}];`, `ids[..]` or `bool[..]`"
        )
    });
    format!("only a `param` or a `data` is indexed, found `{found}`\n{help}")
}

/// The axes that the indices at `places` count along.
fn axes(places: &[&syn::Expr], of_indices: &[(&str, &str)]) -> String {
    let axes = places.iter().map(|place| {
        let text = shown(place);
        let axis = of_indices.iter().find(|(index, _)| text == *index);
        axis.map_or("64", |(_, axis)| axis)
    });
    axes.collect::<Vec<_>>().join(", ")
}

/// `bias[h][q_idx]`
pub(crate) fn indexed_twice(tensor: Tensor<'_>, places: &[&syn::Expr]) -> String {
    let places: Vec<_> = places.iter().map(shown).collect();
    let name = tensor.name();
    format!(
        "the indices of `{name}` stand in one pair of brackets\nhelp: write `{name}[{}]`",
        places.join(", ")
    )
}

pub(crate) fn wrong_axes(tensor: Tensor<'_>, found: usize) -> String {
    let dims: Vec<_> = tensor.dims().iter().map(Dim::to_string).collect();
    format!(
        "`{}` takes {} {}, found {found}\nhelp: its sizes are `[{}]`",
        tensor.name(),
        dims.len(),
        if dims.len() == 1 { "index" } else { "indices" },
        dims.join(", ")
    )
}

pub(crate) fn out_of_bounds(index: i64, dim: u64) -> String {
    format!(
        "the index {index} is out of bounds\nhelp: it goes from 0 to {}",
        dim - 1
    )
}

/// ` at q_idx = 3`, where the value was found.
pub(super) fn at(found: &Found) -> String {
    let at = found.at.iter();
    let at: Vec<_> = at.map(|(var, value)| format!("{var} = {value}")).collect();
    match at.as_slice() {
        [] => String::new(),
        at => format!(" at {}", at.join(", ")),
    }
}

/// An index that is out of bounds of an axis of `dim` elements at some point.
pub(crate) fn leaves_tensor(tensor: Tensor<'_>, dim: u64, found: &Found) -> String {
    let at = at(found);
    let dims: Vec<_> = tensor.dims().iter().map(Dim::to_string).collect();
    let name = tensor.name();
    format!(
        "the index is {}{at}, and this axis of `{name}` goes from 0 to {}\nhelp: the sizes of `{name}` are `[{}]`; keep the index inside at every place, as by `clamp(.., 0, {})`",
        found.value,
        dim - 1,
        dims.join(", "),
        dim - 1
    )
}

// Types.

pub(crate) fn wrong_type(
    subject: &str,
    wanted: Type,
    found: OperandKind,
    at: &syn::Expr,
) -> String {
    format!(
        "{subject} {}, found {found}\nhelp: {}",
        of_type(wanted),
        conversion(wanted, found, at)
    )
}

const KNOWN_BEFORE: &str =
    "integers are known before the score is: they read no `score`, and nothing that is learned";

/// There is no remedy to suggest.
pub(crate) fn learned_integer(subject: &str, found: OperandKind) -> String {
    let wanted = of_type(Type::Int);
    format!("{subject} {wanted}, found {found}\nhelp: {KNOWN_BEFORE}")
}

pub(crate) fn integer_of_learned() -> String {
    format!("an integer of what is learned\nhelp: {KNOWN_BEFORE}; `floor(x)` rounds a float")
}

/// The conversion of `expr` to a `wanted`.
fn conversion(wanted: Type, found: OperandKind, expr: &syn::Expr) -> String {
    let text = operand(expr);
    match (wanted, found) {
        (Type::Bool, OperandKind::Is(Type::Float)) => format!("compare it, as `{text} > 0.0`"),
        (Type::Bool, _) => format!("compare it, as `{text} > 0`"),
        (Type::Float, OperandKind::Is(Type::Bool)) => {
            format!("write `if {} {{ 1.0 }} else {{ 0.0 }}`", bare(expr))
        }
        (Type::Int, OperandKind::Is(Type::Bool)) => {
            format!("write `if {} {{ 1 }} else {{ 0 }}`", bare(expr))
        }
        (Type::Float, _) if is_integer_literal(expr) => format!("write `{text}.0`"),
        (Type::Float, _) => format!("write `{text} as f32`"),
        (Type::Int, _) => format!("write `{text} as i64`, which rounds towards zero"),
    }
}

fn is_integer_literal(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Lit(lit) => matches!(&lit.lit, Lit::Int(int) if int.suffix().is_empty()),
        syn::Expr::Unary(unary) => is_integer_literal(&unary.expr),
        _ => false,
    }
}

/// `an integer and a float`, or `two conditions`
fn together(kinds: &[OperandKind]) -> String {
    match kinds {
        [a, b] if a == b => match a {
            OperandKind::Is(Type::Int) => "two integers".to_owned(),
            OperandKind::Is(Type::Float) => "two floats".to_owned(),
            OperandKind::Is(Type::Bool) => "two conditions".to_owned(),
            _ => "two constants".to_owned(),
        },
        [first @ .., last] if !first.is_empty() => {
            let first: Vec<_> = first.iter().map(OperandKind::to_string).collect();
            format!("{} and {last}", first.join(", "))
        }
        kinds => kinds.iter().map(OperandKind::to_string).collect(),
    }
}

/// The types of the operands do not fit each other, or the operator.
pub(crate) fn mixed(binary: &ExprBinary, kinds: [OperandKind; 2]) -> String {
    let operands = [&*binary.left, &*binary.right];
    let is_logic = matches!(binary.op, BinOp::And(_) | BinOp::Or(_));
    let help = match (is_logic, kinds) {
        (true, kinds) => compare_operand(operands, kinds),
        (_, [OperandKind::Is(Type::Bool), OperandKind::Is(Type::Bool)]) => {
            "conditions combine by `&&`, `||`, `!`, `==` and `!=`".to_owned()
        }
        _ => convert_operand(&operands, &kinds),
    };
    let op = binary.op.to_token_stream();
    format!("`{op}` of {}\nhelp: {help}", together(&kinds))
}

fn compare_operand(operands: [&syn::Expr; 2], kinds: [OperandKind; 2]) -> String {
    let mut pairs = kinds.into_iter().zip(operands);
    let number = pairs.find(|(kind, _)| kind.is_number());
    number.map_or_else(String::new, |(kind, expr)| {
        conversion(Type::Bool, kind, expr)
    })
}

/// The help for an operand with another type than the others: integers and conditions are converted to floats, or integers.
fn convert_operand(operands: &[&syn::Expr], kinds: &[OperandKind]) -> String {
    let first = |wanted: OperandKind| kinds.iter().position(|kind| *kind == wanted);
    let condition = first(of_type(Type::Bool));
    let int = first(of_type(Type::Int));
    let float = first(of_type(Type::Float)).is_some();
    match (condition, int) {
        (Some(at), _) if float => conversion(Type::Float, kinds[at], operands[at]),
        (Some(at), _) => conversion(Type::Int, kinds[at], operands[at]),
        (None, Some(at)) => conversion(Type::Float, kinds[at], operands[at]),
        (None, None) => String::new(),
    }
}

pub(crate) fn mixed_arguments(
    function: &Function,
    kinds: &[OperandKind],
    call: &ExprCall,
) -> String {
    let operands: Vec<_> = call.args.iter().collect();
    format!(
        "`{}` of {}\nhelp: {}",
        function.name,
        together(kinds),
        convert_operand(&operands, kinds)
    )
}

pub(crate) fn cast_of_condition(wanted: Type, expr: &syn::Expr) -> String {
    let condition = of_type(Type::Bool);
    format!(
        "`as` of a condition\nhelp: {}",
        conversion(wanted, condition, expr)
    )
}

pub(crate) fn not_a_condition(found: OperandKind, expr: &syn::Expr) -> String {
    format!(
        "`!` of {found}\nhelp: {}",
        conversion(Type::Bool, found, expr)
    )
}

pub(crate) fn branches(then: OperandKind, otherwise: OperandKind) -> String {
    format!(
        "`if` gives {then} and `else` {otherwise}\nhelp: both give the same, so that the whole has one type"
    )
}

pub(crate) fn unknown_type(found: &str) -> String {
    format!("unknown type `{found}`\nhelp: floats are `f32` or `f64`, integers `i64` or `usize`")
}

// Numbers.

pub(crate) fn too_large(found: &impl ToTokens, ty: Type) -> String {
    let text = shown(found);
    match ty {
        Type::Float => format!("`{text}` is not a number that `f32` can hold"),
        _ => format!("`{text}` is too large\nhelp: integers go to 2147483648"),
    }
}

pub(crate) fn not_a_number(found: &Lit) -> String {
    expected("a number", &found.to_token_stream(), "as `2` or `0.5`")
}

pub(crate) fn division_by_zero(divisor: &TokenStream) -> String {
    format!("division by zero: `{}`", text_of(divisor.clone()))
}

pub(crate) fn division_by_zero_at_first(divisor: &syn::Expr) -> String {
    let text = shown(divisor);
    format!(
        "division by zero: `{text}` is 0 for the first query and key\nhelp: write `max({text}, 1)`; an integer is divided at every place, also where an `if` would not ask for it"
    )
}

pub(crate) fn beyond_64_bits(found: &impl ToTokens) -> String {
    format!(
        "`{}` may be too large for 64 bits\nhelp: indices, lengths and ids go to 2147483648; make a factor smaller, as by `% n`, or compute with floats, by `as f32`",
        shown(found)
    )
}

pub(crate) fn clamp_upside_down(lo: &Expr, hi: &Expr) -> String {
    format!("`clamp` to nothing: the lower bound {lo} is above the upper bound {hi}")
}

pub(crate) fn exponent(found: &syn::Expr) -> String {
    format!(
        "the exponent of `pow` is a number, found `{}`\nhelp: the power of any other is `exp(n * ln(x))`",
        shown(found)
    )
}

// Words that are not in the language.

pub(crate) fn unsupported(what: &str, help: Option<&str>) -> String {
    let help = help.map_or_else(
        || {
            let functions = FUNCTIONS.iter().map(|function| format!("`{}`", function.name));
            let functions: Vec<_> = functions.collect();
            format!(
                "there are arithmetic, comparisons, `&& || !`, `if`/`else`, `let`, `as`, and the functions {}",
                functions.join(", ")
            )
        },
        str::to_owned,
    );
    format!("an expression of a body has no {what}\nhelp: {help}")
}

/// `and` for `&&`.
pub(crate) fn operator_word(found: &impl Display, operator: &str) -> String {
    format!(
        "expected `{operator}`, found `{found}`\nhelp: conditions combine by `&&`, `||` and `!`"
    )
}

/// `a < b & c < d`
pub(crate) fn binds_tighter(found: char) -> String {
    format!(
        "expected `{found}{found}`, found `{found}`\n\
         help: conditions combine by `&&` and `||`; `{found}` binds tighter than a comparison"
    )
}

/// `base ** exponent`
pub(crate) fn double_star(base: &syn::Expr, exponent: &syn::Expr) -> String {
    format!(
        "expected an operator, found `**`\nhelp: write `pow({}, {})`",
        bare(base),
        bare(exponent)
    )
}

pub(crate) fn unsupported_operator(op: &BinOp) -> String {
    let help = match op {
        BinOp::BitAnd(_) => Some("conditions combine by `&&`"),
        BinOp::BitOr(_) => Some("conditions combine by `||`"),
        BinOp::BitXor(_) => Some("powers are `pow(x, n)`; two conditions differ by `!=`"),
        BinOp::Shl(_) | BinOp::Shr(_) => Some("multiply or divide by the power of two"),
        _ => Some(LET),
    };
    unsupported(&format!("operator `{}`", op.to_token_stream()), help)
}

pub(crate) fn method(call: &ExprMethodCall) -> String {
    let args = [&*call.receiver].into_iter().chain(&call.args);
    if call.method == "abs_diff" {
        let args: Vec<_> = args.map(operand).collect();
        let help = format!("write `abs({})`", args.join(" - "));
        return unsupported("methods", Some(&help));
    }
    let functions = FUNCTIONS.iter().map(|function| function.name);
    let function = nearest(&call.method.to_string(), functions).and_then(Function::find);
    let help = function.map(|function| {
        let args: Vec<_> = args.map(shown).collect();
        if args.len() == function.arity() {
            format!("write `{}({})`", function.name, args.join(", "))
        } else {
            format!("write `{}`", function.usage())
        }
    });
    unsupported("methods", help.as_deref())
}

pub(crate) fn unknown_function(found: &syn::Expr, tensors: &[Tensor<'_>]) -> String {
    let text = shown(found);
    let last = text.rsplit("::").next().unwrap_or_default();
    if let Some(tensor) = tensors.iter().find(|tensor| *tensor.name() == text) {
        return format!(
            "`{text}` is no function\nhelp: write `{}`",
            indexed(*tensor)
        );
    }
    if text == "not" {
        return operator_word(&text, "!");
    }
    if matches!(&*text, "score" | "mask" | "normalize") {
        return format!(
            "the functions of a body are not called\nhelp: `{text}` is computed for every query and key by itself"
        );
    }
    if let Some(form) = instead_of(last, NamePosition::Function) {
        return format!("unknown function `{text}`\nhelp: {form}");
    }
    let near = Function::find(last).map(|function| function.name);
    let names = || FUNCTIONS.iter().map(|function| function.name);
    let help = did_you_mean(near.or_else(|| nearest(last, names())), || {
        format!("the functions are {}", listed(names()))
    });
    format!("unknown function `{text}`\n{help}")
}

pub(crate) fn normalizer_of_score(word: &Word) -> String {
    format!(
        "`{}` is a normalizer by its name, which does not take the score\nhelp: write `{}`",
        word.name,
        word.usage()
    )
}

/// `softmax / 2.0`
pub(crate) fn normalizer_in_expression(word: &Word) -> String {
    let usage = word.usage();
    format!(
        "`{}` is a normalizer by its name, which stands alone\nhelp: write `fn normalize {{ {usage} }}`; an expression computes a weight from its own score, as `sigmoid(score)`",
        word.name
    )
}

/// `relu^2`
pub(crate) fn power_of_normalizer(word: &Word, found: &syn::Expr, power: &syn::Expr) -> String {
    format!(
        "the power of `{}` is its argument, found `{}`\nhelp: write `{}({})`",
        word.name,
        shown(found),
        word.name,
        bare(power)
    )
}

/// A name with another notation here.
pub(crate) fn name_from_elsewhere(found: &Ident) -> Option<String> {
    let form = instead_of(&found.to_string(), NamePosition::Function)?;
    Some(format!("unknown name `{found}`\nhelp: {form}"))
}

pub(crate) fn unknown_normalizer(found: &Ident, near: &str) -> String {
    format!("unknown normalizer `{found}`\nhelp: did you mean `{near}`?")
}

pub(crate) fn wrong_arguments(function: &Function, found: usize) -> String {
    let arity = function.arity();
    format!(
        "`{}` takes {arity} {}, found {found}\nhelp: write `{}`",
        function.name,
        if arity == 1 { "argument" } else { "arguments" },
        function.usage()
    )
}

pub(crate) fn too_long(longest: usize) -> String {
    format!(
        "written out, this has more than {longest} operations and operands\n\
         help: `clamp` of a float stands for three of its first argument, and a condition behind `==` or `!=` for two"
    )
}

pub(crate) fn too_many_operations(most: usize) -> String {
    format!(
        "the function has more than {most} operations\nhelp: every use of a `let` counts as the expression that it names"
    )
}
