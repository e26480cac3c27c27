//! Messages about a body: its items and tensors here, its expressions in [`expressions`].

mod dot;
mod expressions;

use std::fmt::Display;

use proc_macro2::{Group, Ident, TokenStream};
use quote::ToTokens;

use super::{did_you_mean, listed, quoted};
use crate::spec::body::{DataDecl, FunctionKind, Sizes, Tensor, text_of};
use crate::spec::keys::{Key, Word, nearest};

pub(crate) use dot::*;
pub(crate) use expressions::*;

pub(crate) const ITEMS: &str = "a body has `param name: [heads] = zeros;`, `data name: [batch, kv_len];`, `fn score(score, ..) { .. }`, `fn mask(..) { .. }` and `fn normalize(score, ..) { .. }`";
pub(crate) const PARAM_USAGE: &str = "write `param name: [heads] = zeros;`";
pub(crate) const DATA_USAGE: &str = "write `data name: [batch, kv_len];` for floats, `data name: ids[batch, kv_len];` for integers, `data name: bool[batch, kv_len];` for conditions";
pub(crate) const ATTRIBUTE_IN_FUNCTION: &str =
    "an expression has no attributes\nhelp: a comment starts with `//`";

pub(crate) const LAST: &str = "the last expression is the value";
pub(crate) const IF: &str = "write `if .. { .. } else { .. }`";
pub(crate) const WHERE: &str =
    "an expression of a body has no `where`\nhelp: write `if condition { a } else { b }`";
pub(crate) const TERNARY: &str = "expected an operator, found `?`\n\
    help: write `if condition { a } else { b }`";
pub(crate) const ELIF: &str = "expected `else if`, found `elif`\n\
    help: write `if a { x } else if b { y } else { z }`";
pub(crate) const SLICE: &str = "expected an index, found `:`\n\
    help: an expression reads one element, as `bias[h, q_idx]`; it is computed for every query and key by itself";
pub(crate) const NESTED_FUNCTION: &str = "an expression has no functions of its own\n\
    help: name a value by `let name = ..;`";
pub(crate) const IF_BEHIND_A_VALUE: &str = "expected an operator, found `if`\n\
    help: write `if condition { a } else { b }`";
pub(crate) const CHAINED_COMPARISONS: &str =
    "comparisons do not chain\nhelp: write `a < b && b < c`";
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
pub(crate) const VALUE_IN_MASK: &str = "a mask reads no computed value: a condition has no derivative\n\
    help: add to the score instead, in `fn score`, or pass an input of the model without a tape";
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

// Items.

pub(crate) fn expected(what: &str, found: &TokenStream, help: &str) -> String {
    format!("expected {what}, found {}\nhelp: {help}", quoted(found))
}

pub(crate) fn unknown_item(found: &impl ToTokens) -> String {
    let found = found.to_token_stream();
    let items = "`param`, `data`, `fn score`, `fn mask` or `fn normalize`";
    expected(items, &found, ITEMS)
}

/// After `fn`.
pub(crate) fn unknown_function_item(found: &Ident) -> String {
    let names = || FunctionKind::ALL.into_iter().map(FunctionKind::name);
    let help = did_you_mean(nearest(&found.to_string(), names()), || ITEMS.to_owned());
    format!("a body has no `fn {found}`, it has `fn score`, `fn mask` and `fn normalize`\n{help}")
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
    if kind != FunctionKind::Mask
        && ["q", "k", "v", "query", "key", "value"]
            .iter()
            .any(|name| found == name)
    {
        return vectors(found);
    }
    let known = kind.args();
    let near = nearest(&found.to_string(), known.iter().map(String::as_str)).map(str::to_owned);
    let help = did_you_mean(near.as_deref(), || {
        format!("the arguments are {}", names(&known))
    });
    format!("`fn {}` has no argument `{found}`\n{help}", kind.name())
}

/// `q` or `k` in place of the score.
pub(crate) fn vectors(found: &Ident) -> String {
    format!(
        "`{found}` is a vector, and a function of the score reads none\nhelp: `score` is what the header makes of a query and a key, as by `score = bilinear`; `q_idx` and `kv_idx` are their places"
    )
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

/// An axis of the call among the sizes of a `param`.
pub(crate) fn axis_of_param(found: &Ident, name: &Ident) -> String {
    format!(
        "`{found}` is known at the call only, and a `param` has sizes that the compiler knows\n\
         help: learn an element for each distance, `param {name}: [heads, 2 * WINDOW + 1]`, read at `clamp(q_idx - kv_idx, -WINDOW, WINDOW) + WINDOW`; or let the call pass it, `data {name}: [q_len, kv_len];`"
    )
}

/// A letter as an axis of data.
pub(crate) fn letter_axis(found: &Ident) -> String {
    let help = match found.to_string().as_str() {
        "B" => "the axis of the sequences is `batch`".to_owned(),
        "H" => "the axis of the heads is `heads`".to_owned(),
        _ => "the axis of the queries is `q_len`, that of the keys `kv_len`".to_owned(),
    };
    format!(
        "unknown axis `{found}`\nhelp: {help}; a constant of one letter stands in braces, `{{ {found} }}`"
    )
}

pub(crate) fn too_many_elements(name: &Ident, most: u64) -> String {
    format!("`{name}` has at most {most} elements in all")
}

pub(crate) fn expected_initializer(found: &TokenStream, key: &Key) -> String {
    let words = key.words().iter().map(Word::usage);
    let words: Vec<_> = words.collect();
    format!(
        "expected an initializer, found {}\nhelp: {}, or a number",
        quoted(found),
        names(&words)
    )
}

pub(crate) fn never_reaches(tensor: Tensor<'_>, is_read: bool) -> String {
    let (name, lost) = match tensor {
        Tensor::Param(param) => (param.name.to_string(), "it would not be learned"),
        Tensor::Data(data) => (data.label(), "no gradient would flow to it"),
    };
    let help = if is_read {
        "the derivative is zero everywhere: it cancels, or is that of `floor` or of a comparison"
            .to_owned()
    } else {
        format!(
            "read it in `fn score`, as `{}`, or remove it",
            indexed(tensor)
        )
    };
    format!("`{name}` never reaches the score, so {lost}\nhelp: {help}")
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

/// `has_queries`: the lost score is that of queries and keys. Otherwise it is that of `fn score`.
pub(crate) fn score_is_lost(kind: FunctionKind, is_read: bool, has_queries: bool) -> String {
    let what = if is_read {
        "does not change with `score`: its derivative is zero everywhere"
    } else {
        "does not read `score`"
    };
    let (so, or) = match has_queries {
        true => (
            "queries and keys would not be learned",
            "leave `score` out of the arguments: then there are no queries and keys",
        ),
        false => ("`fn score` has no effect", "remove `fn score`"),
    };
    let help = match kind {
        FunctionKind::Normalize => "compute the weight from the score, as `sigmoid(score)`",
        _ => "modify the score, as `score + ..`",
    };
    format!(
        "`fn {}` {what}, so {so}\nhelp: {help}, or {or}",
        kind.name()
    )
}

/// A key of the header that is about queries and keys, where there are none.
pub(crate) fn without_queries(key: &str, kind: FunctionKind) -> String {
    let function = kind.name();
    let or = match key {
        "head_dim" => "; `value_head_dim` is the width of the values".to_owned(),
        "d_values" => "; `d_context` is the width of the input that gives the values".to_owned(),
        _ => format!(
            ", or compute with the score of queries and keys, as `fn {function}(score, ..)`"
        ),
    };
    format!(
        "`{key}` has no effect: `fn {function}` does not take `score`, so there are no queries and keys\nhelp: leave out `{key}`{or}"
    )
}

/// `bias = [q, ..]`, where there are no queries and keys.
pub(crate) fn bias_without_queries(kind: FunctionKind) -> String {
    format!(
        "`fn {}` does not take `score`, so there are no projections of queries and keys\nhelp: the others are `v` and `o`",
        kind.name()
    )
}

/// `slope[h]`, with as many indices as there are axes.
fn indexed(tensor: Tensor<'_>) -> String {
    let index: Vec<_> = tensor.dims().iter().map(|_| "..").collect();
    format!("{}[{}]", tensor.name(), index.join(", "))
}
