//! What the user reads of a body.

use std::fmt::Display;

use proc_macro2::{Group, Ident, TokenStream};
use quote::ToTokens;
use syn::{BinOp, ExprBinary, ExprCall, ExprMethodCall, Lit};

use super::{did_you_mean, listed, quoted};
use crate::score::{Expr, Type};
use crate::spec::Dim;
use crate::spec::body::{
    DataDecl, FUNCTIONS, Function, FunctionKind, Kind, ParamDecl, Sizes, Tensor, text_of,
};
use crate::spec::keys::{INITIALIZER, Word, nearest};

pub(crate) const ITEMS: &str = "a body has `param name: [heads] = zeros;`, `data name: [batch, kv_len];`, `fn score(score, ..) { .. }`, `fn mask(..) { .. }` and `fn normalize(score, ..) { .. }`";
pub(crate) const PARAM_USAGE: &str = "write `param name: [heads] = zeros;`";
pub(crate) const DATA_USAGE: &str = "write `data name: [batch, kv_len];` for floats, `data name: ids[batch, kv_len];` for integers, `data name: bool[batch, kv_len];` for conditions";
pub(crate) const ATTRIBUTE_IN_FUNCTION: &str =
    "an expression has no attributes\nhelp: a comment starts with `//`";

pub(crate) const LAST: &str = "the last expression is the value";
pub(crate) const IF: &str = "write `if .. { .. } else { .. }`";
pub(crate) const LET: &str = "name a value by `let name = ..;`";
pub(crate) const SEMICOLON_AT_THE_END: &str =
    "a block ends with its value, and this `;` takes it away\nhelp: remove the `;`";
pub(crate) const BLOCK_WITHOUT_VALUE: &str = "expected a value at the end of the block, found nothing\nhelp: the last expression is the value, without a `;`";
pub(crate) const UNUSED_VALUE: &str =
    "this value is not used\nhelp: name it by `let name = ..;`, or remove it";
pub(crate) const LET_WITHOUT_VALUE: &str = "`let` needs a value\nhelp: write `let name = ..;`";
pub(crate) const PATTERN: &str =
    "expected a name\nhelp: write `let name = ..;`; it does not change";
pub(crate) const IF_WITHOUT_ELSE: &str =
    "`if` without `else` has no value where the condition does not hold\nhelp: add `else { .. }`";
pub(crate) const MINUS_OF_CONDITION: &str = "`-` of a condition\nhelp: write `!` for the opposite";

pub(crate) const SCORE_IN_MASK: &str = "a mask does not read the score: which keys a query attends to is known before\n\
    help: what depends on the score belongs in `fn score`";
pub(crate) const PARAM_IN_MASK: &str = "a mask reads nothing that is learned: a condition has no derivative\n\
    help: add to the score instead, in `fn score`";
pub(crate) const NOT_FINITE: &str = "expected a finite number\n\
    help: which keys a query does not attend to is said in `fn mask`";
pub(crate) const NORMALIZER_TWICE: &str = "the header says how scores become weights already\nhelp: remove `normalizer = ..` or this function";
pub(crate) const SLOPES_OF_HEADS: &str =
    "`alibi_slopes` are one for each head\nhelp: write `[heads] = alibi_slopes`";

/// An expression in a help: a long one only as `..`.
pub(crate) fn shown(tokens: &impl ToTokens) -> String {
    const LONG: usize = 40;
    let text = text_of(tokens.to_token_stream());
    if text.chars().count() > LONG {
        "..".to_owned()
    } else {
        text
    }
}

/// `expr` as an operand of `as` or of a comparison.
fn operand(expr: &syn::Expr) -> String {
    let text = shown(expr);
    match expr {
        syn::Expr::Binary(_) | syn::Expr::If(_) | syn::Expr::Block(_) => format!("({text})"),
        _ => text,
    }
}

/// `expr` without parentheses around it.
fn bare(expr: &syn::Expr) -> String {
    match expr {
        syn::Expr::Paren(paren) => bare(&paren.expr),
        expr => shown(expr),
    }
}

fn names<T: Display>(names: &[T]) -> String {
    let names: Vec<_> = names.iter().map(T::to_string).collect();
    listed(names.iter().map(String::as_str))
}

fn of_type(ty: Type) -> Kind {
    Kind::Is(ty)
}

// Items.

pub(crate) fn expected(what: &str, found: &TokenStream, help: &str) -> String {
    format!("expected {what}, found {}\nhelp: {help}", quoted(found))
}

pub(crate) fn unknown_item(found: &impl ToTokens) -> String {
    let found = found.to_token_stream();
    let items = "`param`, `data`, `fn score`, `fn mask` or `fn normalize`";
    expected(items, &found, ITEMS)
}

pub(crate) fn given_twice(name: &Ident) -> String {
    format!("`{name}` is declared twice\nhelp: rename or remove one of them")
}

pub(crate) fn refused_attribute(name: &str) -> String {
    let help = match name {
        "cfg" | "cfg_attr" => "a layer is there as a whole: put it before `struct`",
        _ => "remove it; documentation may stay",
    };
    format!("`{name}` has no meaning here\nhelp: {help}")
}

pub(crate) fn function_usage(kind: FunctionKind) -> String {
    let args = kind.args().join(", ");
    format!(
        "write `fn {}({args}) {{ .. }}`; arguments that are not needed are left out",
        kind.name()
    )
}

pub(crate) fn before_the_braces(kind: FunctionKind, found: &TokenStream) -> String {
    let result = match kind {
        FunctionKind::Score | FunctionKind::Normalize => "a float",
        FunctionKind::Mask => "a condition",
    };
    format!(
        "expected `{{` and an expression, found {}\nhelp: the value of `fn {}` is {result}, its type is not written",
        quoted(found),
        kind.name()
    )
}

pub(crate) fn expected_argument(found: &TokenStream) -> String {
    expected(
        "the name of an argument",
        found,
        "names alone: their types are known",
    )
}

pub(crate) fn unknown_argument(kind: FunctionKind, found: &Ident) -> String {
    if found == "score" {
        return SCORE_IN_MASK.to_owned();
    }
    let known = kind.args();
    let near = nearest(&found.to_string(), known.iter().map(String::as_str)).map(str::to_owned);
    let help = did_you_mean(near.as_deref(), || {
        format!("the arguments are {}", names(&known))
    });
    format!("`fn {}` has no argument `{found}`\n{help}", kind.name())
}

pub(crate) fn score_comes_first(kind: FunctionKind) -> String {
    format!(
        "`score` is the first argument\nhelp: write `fn {}(score, ..)`",
        kind.name()
    )
}

pub(crate) fn argument_twice(name: &Ident) -> String {
    format!("the argument `{name}` stands twice\nhelp: remove one of them")
}

// Learned tensors.

pub(crate) fn param_is_field(name: &Ident, fields: &[&str]) -> String {
    format!(
        "`{name}` is a field that layers have already\nhelp: choose another name than {}",
        names(fields)
    )
}

pub(crate) fn param_is_raw(name: &Ident) -> String {
    format!("`{name}` cannot name a saved parameter\nhelp: choose a name without `r#`")
}

pub(crate) fn tensor_is_argument(name: &Ident) -> String {
    format!("`{name}` is an argument of the functions\nhelp: choose another name")
}

pub(crate) fn expected_sizes(found: &Group, most: usize, help: &str) -> String {
    expected(
        &format!("1 to {most} sizes with commas between"),
        &found.to_token_stream(),
        help,
    )
}

pub(crate) fn unknown_size(found: &Ident, sizes: Sizes<'_>, axes: &[&'static str]) -> String {
    let known = || {
        axes.iter()
            .copied()
            .chain(sizes.iter().map(|(name, _)| *name))
    };
    let help = did_you_mean(nearest(&found.to_string(), known()), || {
        format!(
            "the sizes are {}; a `const` is written in capitals",
            listed(known())
        )
    });
    format!("unknown size `{found}`\n{help}")
}

pub(crate) fn too_many_elements(name: &Ident, most: u64) -> String {
    format!("`{name}` has at most {most} elements in all")
}

pub(crate) fn expected_initializer(found: &TokenStream) -> String {
    let words = INITIALIZER.words().iter().map(|word| word.usage());
    let words: Vec<_> = words.collect();
    format!(
        "expected an initializer, found {}\nhelp: {}, or a number",
        quoted(found),
        names(&words)
    )
}

pub(crate) fn never_reaches(param: &ParamDecl, is_read: bool) -> String {
    let name = &param.name;
    let help = if is_read {
        "the derivative is zero everywhere: `floor` and comparisons have none".to_owned()
    } else {
        format!(
            "read it in `fn score`, as `{}`, or remove it",
            indexed(Tensor::Param(param))
        )
    };
    format!("`{name}` never reaches the score, so it would not be learned\nhelp: {help}")
}

pub(crate) fn not_learned(kind: &Ident, name: &Ident) -> String {
    let what = if kind == "ids" {
        "`ids` are integers"
    } else {
        "`bool` are conditions"
    };
    format!(
        "{what}, and `{name}` is learned\nhelp: write `param {name}: [..]`, or `data {name}: {kind}[..];` for what the call passes"
    )
}

// Data.

pub(crate) fn initial_data(name: &Ident) -> String {
    format!(
        "`{name}` has no initial value: the call passes it\nhelp: remove it, or declare `param {name}` for what is learned"
    )
}

pub(crate) fn axis_in_arithmetic(name: &Ident) -> String {
    format!("`{name}` is known at the call only\nhelp: it is an axis by itself, as `[{name}]`")
}

pub(crate) fn too_many_data(most: usize) -> String {
    format!("a layer takes at most {most} `data`")
}

pub(crate) fn data_is_input(name: &Ident) -> String {
    format!("`{name}` is an input that layers have already\nhelp: choose another name")
}

pub(crate) fn data_is_size(name: &Ident) -> String {
    format!("`{name}` is a size\nhelp: choose another name")
}

pub(crate) fn never_read(data: &DataDecl) -> String {
    format!(
        "`{}` is never read\nhelp: read it in a function, as `{}`, or remove it",
        data.name,
        indexed(Tensor::Data(data))
    )
}

pub(crate) fn score_is_lost(kind: FunctionKind, is_read: bool) -> String {
    let what = if is_read {
        "does not change with `score`: its derivative is zero everywhere"
    } else {
        "does not read `score`"
    };
    let help = match kind {
        FunctionKind::Normalize => "compute the weight from the score, as `sigmoid(score)`",
        _ => "modify the score, as `score + ..`",
    };
    format!(
        "`fn {}` {what}, so queries and keys would not be learned\nhelp: {help}",
        kind.name()
    )
}

/// `slope[h]`, with as many indices as there are axes.
fn indexed(tensor: Tensor<'_>) -> String {
    let index: Vec<_> = tensor.dims().iter().map(|_| "..").collect();
    format!("{}[{}]", tensor.name(), index.join(", "))
}

// Names.

/// `known` is what can be named, `further` what could be meant as well.
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
    let order = kind.args();
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

// Types.

pub(crate) fn wrong_type(subject: &str, wanted: Type, found: Kind, at: &syn::Expr) -> String {
    format!(
        "{subject} {}, found {found}\nhelp: {}",
        of_type(wanted),
        conversion(wanted, found, at)
    )
}

const KNOWN_BEFORE: &str =
    "integers are known before the score is: they read no `score`, and nothing that is learned";

/// There is no help against it.
pub(crate) fn learned_integer(subject: &str, found: Kind) -> String {
    let wanted = of_type(Type::Int);
    format!("{subject} {wanted}, found {found}\nhelp: {KNOWN_BEFORE}")
}

pub(crate) fn integer_of_learned() -> String {
    format!("an integer of what is learned\nhelp: {KNOWN_BEFORE}; `floor(x)` rounds a float")
}

/// How `expr` becomes a `wanted`.
fn conversion(wanted: Type, found: Kind, expr: &syn::Expr) -> String {
    let text = operand(expr);
    match (wanted, found) {
        (Type::Bool, Kind::Is(Type::Float)) => format!("compare it, as `{text} > 0.0`"),
        (Type::Bool, _) => format!("compare it, as `{text} > 0`"),
        (Type::Float, Kind::Is(Type::Bool)) => {
            format!("write `if {} {{ 1.0 }} else {{ 0.0 }}`", bare(expr))
        }
        (Type::Int, Kind::Is(Type::Bool)) => {
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
fn together(kinds: &[Kind]) -> String {
    match kinds {
        [a, b] if a == b => match a {
            Kind::Is(Type::Int) => "two integers".to_owned(),
            Kind::Is(Type::Float) => "two floats".to_owned(),
            Kind::Is(Type::Bool) => "two conditions".to_owned(),
            _ => "two constants".to_owned(),
        },
        [first @ .., last] if !first.is_empty() => {
            let first: Vec<_> = first.iter().map(Kind::to_string).collect();
            format!("{} and {last}", first.join(", "))
        }
        kinds => kinds.iter().map(Kind::to_string).collect(),
    }
}

/// The types of the operands do not go together, or not with the operator.
pub(crate) fn mixed(binary: &ExprBinary, kinds: [Kind; 2]) -> String {
    let operands = [&*binary.left, &*binary.right];
    let is_logic = matches!(binary.op, BinOp::And(_) | BinOp::Or(_));
    let help = match (is_logic, kinds) {
        (true, kinds) => compare_operand(operands, kinds),
        (_, [Kind::Is(Type::Bool), Kind::Is(Type::Bool)]) => {
            "conditions combine by `&&`, `||`, `!`, `==` and `!=`".to_owned()
        }
        _ => convert_operand(&operands, &kinds),
    };
    let op = binary.op.to_token_stream();
    format!("`{op}` of {}\nhelp: {help}", together(&kinds))
}

fn compare_operand(operands: [&syn::Expr; 2], kinds: [Kind; 2]) -> String {
    let mut pairs = kinds.into_iter().zip(operands);
    let number = pairs.find(|(kind, _)| kind.is_number());
    number.map_or_else(String::new, |(kind, expr)| {
        conversion(Type::Bool, kind, expr)
    })
}

/// Help where an operand is of another type than the others: integers and conditions become floats, or integers.
fn convert_operand(operands: &[&syn::Expr], kinds: &[Kind]) -> String {
    let first = |wanted: Kind| kinds.iter().position(|kind| *kind == wanted);
    let (condition, int) = (first(of_type(Type::Bool)), first(of_type(Type::Int)));
    let float = first(of_type(Type::Float)).is_some();
    match (condition, int) {
        (Some(at), _) if float => conversion(Type::Float, kinds[at], operands[at]),
        (Some(at), _) => conversion(Type::Int, kinds[at], operands[at]),
        (None, Some(at)) => conversion(Type::Float, kinds[at], operands[at]),
        (None, None) => String::new(),
    }
}

pub(crate) fn mixed_arguments(function: &Function, kinds: &[Kind], call: &ExprCall) -> String {
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

pub(crate) fn not_a_condition(found: Kind, expr: &syn::Expr) -> String {
    format!(
        "`!` of {found}\nhelp: {}",
        conversion(Type::Bool, found, expr)
    )
}

pub(crate) fn branches(then: Kind, otherwise: Kind) -> String {
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

pub(crate) fn clamp_upside_down(lo: &Expr, hi: &Expr) -> String {
    format!("`clamp` to nothing: the lower bound {lo} is above the upper bound {hi}")
}

pub(crate) fn exponent(found: &syn::Expr) -> String {
    format!(
        "the exponent of `pow` is a number, found `{}`\nhelp: the power of any other is `exp(n * ln(x))`",
        shown(found)
    )
}

// What is not in the language.

pub(crate) fn unsupported(what: &str, help: Option<&str>) -> String {
    let help = help.unwrap_or("there are arithmetic, comparisons, `&& || !`, `if`/`else`, `let`, `as`, and functions as `exp(x)`");
    format!("an expression of a body has no {what}\nhelp: {help}")
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
    let receiver = shown(&call.receiver);
    let functions = FUNCTIONS.iter().map(|function| function.name);
    let help = nearest(&call.method.to_string(), functions).map(|function| {
        let args = call.args.iter().map(shown);
        let args: Vec<_> = [receiver].into_iter().chain(args).collect();
        format!("write `{function}({})`", args.join(", "))
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
    if matches!(&*text, "score" | "mask" | "normalize") {
        return format!(
            "the functions of a body are not called\nhelp: `{text}` is computed for every query and key by itself"
        );
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

pub(crate) fn too_many_operations(most: usize) -> String {
    format!(
        "the function has more than {most} operations\nhelp: every use of a `let` counts as the expression that it names"
    )
}
