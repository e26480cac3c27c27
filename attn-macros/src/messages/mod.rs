//! The messages. Each says what was expected, what was found, and what to write.

pub(crate) mod attend;
pub(crate) mod body;
mod claims;
pub(crate) mod grid;
pub(crate) mod model;
pub(crate) mod onnx;

pub(crate) use claims::*;

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Expr;

use crate::spec::arithmetic::NoSize;
use crate::spec::elsewhere::{NamePosition as Stands, instead_of};
use crate::spec::keys::{Arg, ArgKind, KEYS, Key, KeyKind, Word, nearest, owner_of};
use crate::spec::value::Numbers;
use crate::spec::{Real, Size, not_constant, text};

pub(crate) const EMPTY: &str = "expected a declaration, found nothing\n\
    help: `attention! { pub struct SelfAttention<heads = 8, d_model = 512>; }`";
pub(crate) const HASH_COMMENT: &str = "expected a declaration, found `#`\n\
    help: a comment starts with `//`";
pub(crate) const EXPECTED_NAME: &str = "expected a name for the layer";
pub(crate) const EXPECTED_KEYS: &str = "expected `<` and the keys of the layer\n\
    help: `<heads = 8, d_model = 512>`";
pub(crate) const UNCLOSED: &str = "expected `,` or `>` after the last key";
pub(crate) const EXPECTED_SEMICOLON: &str =
    "expected `;` or a body in braces after the declaration";
pub(crate) const EMPTY_ENTRY: &str = "expected a key, found `,`";
pub(crate) const EMPTY_MASK: &str = "expected a mask in the parentheses, found nothing";
pub(crate) const MASK_ENDS: &str = "expected a mask after the operator, found the end";

pub(crate) fn hidden_differs(hidden: &Size, width: &Size) -> String {
    format!("`hidden` of `additive` is the width of the queries and keys, {width}, found {hidden}")
}

pub(crate) const VALUES_WITHOUT_CONTEXT: &str = "`d_values` is the width of a third input, and there is no second one, which gives the keys\n\
    help: declare its width: `d_context = 512`";
pub(crate) const HEAD_DIM_WITH_ADDITIVE: &str = "`head_dim` contradicts `score = additive(hidden = n)`: queries and keys are as wide as the hidden layer\n\
    help: leave out `head_dim`, or choose the width by `hidden`; `value_head_dim` is the width of the values";
pub(crate) const QK_NORM_WITH_ADDITIVE: &str = "`qk_norm` contradicts `score = additive`: it bounds a product of queries and keys, and here there is none\n\
    help: leave out `qk_norm`, or use `score = scaled_dot`";
pub(crate) const TALKING_WITH_MASK_OF_HEADS: &str = "`talking_heads` contradicts a mask that reads `h`: a mixed score or weight is a sum over all heads, so a pair is masked for all of them or for none\n\
    help: a mask without `h`; with `talking_heads = after`, a `fn score(score, h, q_idx, kv_idx) { .. }` may subtract a large number where a head should not see";
pub(crate) const MIXED_SCORES_AT_PLACES: &str = "the weight of a mixed score is a function of this score alone, and this `fn normalize` reads more\n\
    help: `fn normalize(score) { .. }`, or `talking_heads = after`, which mixes the weights alone";
pub(crate) const SCALE_WITH_DOT: &str = "`scale` contradicts `score = dot`, which is the product without a scale\n\
    help: use `score = scaled_dot` with this `scale`";
pub(crate) const SCALE_WITH_ADDITIVE: &str = "`scale` contradicts `score = additive`, whose learned output vector has its own scale\n\
    help: leave out `scale`";
pub(crate) const ROPE_WITH_BILINEAR: &str = "`rope` contradicts `score = bilinear`: with a matrix between query and key, their rotations do not combine to a relative one\n\
    help: use `score = scaled_dot` with `rope`, or a bias as `position = alibi`";

pub(crate) const LOST: &str = "this declaration has a mistake, and its message is lost: that is an error of `attn`\n\
    help: leave out parts of the declaration to find the mistake, and report it";

pub(crate) fn too_deep(deepest: usize) -> String {
    format!(
        "nested too deep: more than {deepest} groups and operators stand one inside of the other\n\
         help: write fewer parentheses, or give parts of it names by `let`"
    )
}

pub(crate) fn too_many_words(most: usize) -> String {
    format!(
        "the mask has more than {most} words\n\
         help: a `fn mask` says as much by arithmetic with `q_idx` and `kv_idx`"
    )
}

/// At the beginning of a declaration.
pub(crate) fn expected_struct(found: &TokenStream) -> String {
    format!(
        "expected `struct`, found {}\nhelp: a layer is declared as an item, outside of expressions and types: `struct Name<heads = 8, d_model = 512>;`",
        quoted(found)
    )
}

/// Tokens in the form of the source.
pub(crate) fn quoted(tokens: &TokenStream) -> String {
    if tokens.is_empty() {
        "nothing".to_owned()
    } else {
        format!("`{}`", text::of(tokens))
    }
}

/// `` `a`, `b` or `c` ``
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    choice(&names)
}

/// `a, b or c`
pub(crate) fn choice<T: ToString>(parts: &[T]) -> String {
    let parts: Vec<_> = parts.iter().map(T::to_string).collect();
    match parts.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn did_you_mean(near: Option<&str>, otherwise: impl FnOnce() -> String) -> String {
    match near {
        Some(near) => format!("help: did you mean `{near}`?"),
        None => format!("help: {}", otherwise()),
    }
}

/// `key = value`, with a value that the key takes.
pub(crate) fn example(key: &Key) -> String {
    let value = match key.kind {
        KeyKind::Size if key.name.contains("heads") => "8".to_owned(),
        KeyKind::Size if ["d_model", "d_context", "d_values"].contains(&key.name) => {
            "512".to_owned()
        }
        // Less than the number of rows.
        KeyKind::Size if key.name == "offset" => "2".to_owned(),
        KeyKind::Size => "64".to_owned(),
        KeyKind::SizePerAxis(_) => "3".to_owned(),
        // A probability, a factor, a bound.
        KeyKind::Number => "0.1".to_owned(),
        // All of its words have arguments.
        KeyKind::Word(_) if key.name == "scaling" => "linear(2.0)".to_owned(),
        KeyKind::Word(words) | KeyKind::Mask(words) | KeyKind::Claims(words) => words
            .iter()
            .find(|word| word.name != "none")
            .map_or_else(String::new, |word| word.name.to_owned()),
        KeyKind::Projections => "false".to_owned(),
        KeyKind::Sizes => "[14, 14]".to_owned(),
        KeyKind::Type => "Linear<8, 3>".to_owned(),
        KeyKind::Shape => "[batch, seq, 8]".to_owned(),
        KeyKind::Axes if key.name == "out" => "[batch, seq, d_model]".to_owned(),
        KeyKind::Axes => "seq".to_owned(),
        KeyKind::Pattern => "[batch, (heads, d_head)]".to_owned(),
        KeyKind::Index => "1".to_owned(),
    };
    format!("{} = {value}", key.name)
}

pub(crate) fn missing_key(key: &str, layer: &Ident) -> String {
    let example = Key::find(key).map(example).unwrap_or_default();
    format!("`{layer}` needs the key `{key}`\nhelp: add `{example}`")
}

pub(crate) fn duplicate_key(key: &str) -> String {
    format!("the key `{key}` is given twice\nhelp: remove one of them")
}

pub(crate) fn unknown_key(found: &str) -> String {
    format!("unknown key `{found}`\n{}", nearest_key(found))
}

/// The help for an unknown key: it may have another notation here, be a value, or be similar to a key.
fn nearest_key(found: &str) -> String {
    if let Some(form) = instead_of(found, Stands::Key) {
        return format!("help: {form}");
    }
    if let Some((key, word)) = owner_of(found) {
        return format!("help: did you mean `{} = {}`?", key.name, word.shortest());
    }
    let names = || KEYS.iter().map(|key| key.name);
    did_you_mean(nearest(found, names()), || {
        format!("the keys are {}", listed(names()))
    })
}

/// A word without `key =`, which may be a value without its key.
pub(crate) fn word_without_key(found: &str) -> String {
    format!(
        "expected `key = value`, found `{found}`\n{}",
        nearest_key(found)
    )
}

pub(crate) fn key_without_value(key: &Key) -> String {
    format!(
        "the key `{}` needs a value\nhelp: write `{}`",
        key.name,
        example(key)
    )
}

/// Another token precedes the value of a key.
pub(crate) fn expected_equals(found: &TokenStream, key: &Ident, value: &TokenStream) -> String {
    format!(
        "expected `=`, found {}\nhelp: write `{key} = {}`",
        quoted(found),
        text::of(value)
    )
}

/// `attn.heads`, or `const heads`
pub(crate) fn key_with_more(found: &TokenStream, key: &Ident, value: &TokenStream) -> String {
    format!(
        "expected a key, found {}\nhelp: write `{key} = {}`",
        quoted(found),
        text::of(value)
    )
}

/// `mask = |q, k| q >= k`
pub(crate) fn closure_as_value(key: &Key) -> String {
    let function = match key.name {
        "mask" => "fn mask(q_idx, kv_idx) { kv_idx <= q_idx }",
        "normalizer" => "fn normalize(score) { sigmoid(score) }",
        _ => "fn score(score, q_idx, kv_idx) { score - abs(q_idx - kv_idx) as f32 }",
    };
    format!(
        "`{}` expects a word, found a closure\n\
         help: a function stands in a body, behind `struct Name<..>` or `attention::<..>(x)`: `{{ {function} }}`",
        key.name
    )
}

/// The way to pass several inputs, as a part of rustc's message for a wrong call.
pub(crate) fn one_tuple<'a>(method: &str, inputs: impl Iterator<Item = &'a str>) -> String {
    let inputs: Vec<_> = inputs.collect();
    format!(
        "all inputs are one tuple: `{method}(({}))`",
        inputs.join(", ")
    )
}

/// Before the key `next`.
pub(crate) fn lost_comma(next: &Ident) -> String {
    format!("expected `,` before `{next}`")
}

pub(crate) fn expected_key(found: &TokenStream) -> String {
    format!(
        "expected a key, found {}\nhelp: write `key = value`, as `heads = 8`",
        quoted(found)
    )
}

pub(crate) fn expected_size(what: &str, found: &TokenStream) -> String {
    format!(
        "`{what}` expects a positive whole number, found {}\nhelp: a literal, a constant, or an expression in braces: `8`, `HEADS`, `{{ 2 * N }}`",
        quoted(found)
    )
}

/// Arithmetic of whole numbers that is no size.
pub(crate) fn no_size_of(what: &str, found: &TokenStream, mistake: NoSize) -> String {
    let (why, help) = match mistake {
        NoSize::TooLarge => ("does not fit into 64 bits", "write a smaller number"),
        NoSize::DivisionByZero => ("divides by zero", "the divisor is at least 1"),
    };
    format!(
        "`{what}` expects a positive whole number, found {}, which {why}\nhelp: {help}",
        quoted(found)
    )
}

/// An expression with those of the constants that it names.
pub(crate) fn constant_too_long(what: &str, most: usize) -> String {
    format!(
        "{} expects an expression of at most {most} tokens, found more: constants of the header that it names stand in it with their expressions\n\
         help: declare a `const` of Rust with this value, and use that",
        subject(what)
    )
}

/// The subject of a message about a number that is the value of no key.
pub(crate) const OPERAND: &str = "an operand";

fn subject(what: &str) -> String {
    match what {
        OPERAND => what.to_owned(),
        key => format!("`{key}`"),
    }
}

pub(crate) fn expected_number(what: &str, found: &TokenStream) -> String {
    let subject = subject(what);
    let found_text = quoted(found);
    let literal = syn::parse2::<syn::LitFloat>(found.clone()).ok();
    let value = literal.and_then(|literal| literal.base10_parse::<f64>().ok());
    if value.is_some_and(f64::is_infinite) {
        return format!(
            "{subject} expects a number, found {found_text}, which is no finite number\nhelp: the largest `f32` is about 3.4e38"
        );
    }
    format!(
        "{subject} expects a number, found {found_text}\nhelp: a literal, a constant, or an expression in braces: `0.1`, `P`, `{{ 1.0 / N }}`"
    )
}

pub(crate) fn expected_numbers(what: &str, found: &TokenStream) -> String {
    format!(
        "`{what}` expects a list of numbers, found {}\nhelp: the numbers, or a constant array of `f64`: `[1.0, 1.25]`, `FACTORS`",
        quoted(found)
    )
}

/// A list of a scaling of `rope` with a number for each pair of so many coordinates.
pub(crate) fn factors_of_pairs(what: &str, list: &Numbers, dims: &Size) -> String {
    let pairs = match dims.value {
        Some(dims) => format!("{} of {dims} coordinates", dims / 2),
        None => format!("those of `{dims}` coordinates"),
    };
    let found = match &list.list {
        Some(list) if list.len() == 1 => "has 1 number".to_owned(),
        Some(list) => format!("has {} numbers", list.len()),
        None => format!("is `{list}`"),
    };
    format!(
        "`{what}` {found}, and `rope` rotates other pairs: {pairs}\nhelp: a number for each pair"
    )
}

/// `sqrt(8.0)` in `expr`.
pub(crate) fn run_time_function(name: &TokenStream, expr: &Expr) -> String {
    if name.to_string() == "sqrt" {
        return format!(
            "a square root in a constant is `sqrt(x)`, and a number, no size\nhelp: {}",
            number_meant(expr)
        );
    }
    format!(
        "rustc does not compute `{name}` in a constant\nhelp: {}; a `const fn` of yours is called by its path, as `self::{name}(..)`",
        number_meant(expr)
    )
}

/// `64 ** 2` in `expr`.
pub(crate) fn power_in_constant(expr: &Expr) -> String {
    format!(
        "expected an operator, found `**`\nhelp: {}; Rust has no operator for powers",
        number_meant(expr)
    )
}

fn number_meant(expr: &Expr) -> String {
    match not_constant::meant(expr) {
        Some(number) => format!("write the number, `{number}`"),
        None => "write the number".to_owned(),
    }
}

/// A name without capitals in the value of `key`.
pub(crate) fn no_constant(key: &Key, name: &Ident) -> String {
    let what = match Key::find(&name.to_string()) {
        Some(_) => format!("`{name}` is a key, and no constant that Rust can compute with"),
        None => format!("`{name}` is no constant: these are written in capitals"),
    };
    let constant = name.to_string().to_uppercase();
    let ty = match key.kind {
        KeyKind::Number => "f64",
        _ => "usize",
    };
    format!(
        "{what}\nhelp: write the number, or declare `const {constant}: {ty} = ..;` and use that; the compiler does not know a `let` or an argument"
    )
}

pub(crate) fn expected_word(key: &Key, found: &TokenStream) -> String {
    format!(
        "`{}` expects {}, found {}",
        key.name,
        listed(key.words().iter().map(|word| word.name)),
        quoted(found)
    )
}

pub(crate) fn unknown_word(key: &Key, found: &str) -> String {
    let names = || key.words().iter().map(|word| word.name);
    let help = did_you_mean(nearest(found, names()), || {
        format!("`{}` is one of {}", key.name, listed(names()))
    });
    format!("`{}` has no value `{found}`\n{help}", key.name)
}

/// A word where one of the key, or sizes, may stand.
pub(crate) fn unknown_word_of_sizes(key: &Key, found: &TokenStream) -> String {
    let sizes = ["a number", "`[1, 2]` for two axes"].map(str::to_owned);
    let words = key.words().iter().map(|word| format!("`{}`", word.name));
    let all: Vec<_> = sizes.into_iter().chain(words).collect();
    format!(
        "`{}` has no value `{found}`\nhelp: it is {}",
        key.name,
        choice(&all)
    )
}

pub(crate) fn more_than_a_word(key: &Key, word: &Ident) -> String {
    format!(
        "expected `,` or `>` after `{word}`\nhelp: `{}` takes a single value; only masks combine",
        key.name
    )
}

/// `rope { theta: 10000.0 }`
pub(crate) fn arguments_in_parentheses(name: &Ident, found: &Group, words: &[Word]) -> String {
    let found = quoted(&found.to_token_stream());
    let usage = words.iter().find(|word| name == word.name).map(Word::usage);
    let usage = usage.unwrap_or_else(|| format!("{name}(..)"));
    format!("the arguments of `{name}` stand in parentheses, found {found}\nhelp: write `{usage}`")
}

pub(crate) fn takes_no_arguments(word: &Word) -> String {
    format!("`{}` takes no arguments", word.name)
}

pub(crate) fn missing_argument(word: &Word, arg: &Arg) -> String {
    format!(
        "`{}` needs its argument `{}`\nhelp: write `{}`",
        word.name,
        arg.name,
        word.shortest()
    )
}

pub(crate) fn unknown_argument(word: &Word, found: &str) -> String {
    let key = Key::find(found).map_or_else(String::new, |key| {
        format!(
            "\nhelp: `{0}` is a key: write `{0} = ..` beside `{1}`",
            key.name, word.name
        )
    });
    format!(
        "`{}` has no argument `{found}`\nhelp: write `{}`{key}",
        word.name,
        word.usage()
    )
}

pub(crate) fn too_many_arguments(word: &Word, found: &TokenStream) -> String {
    format!(
        "unexpected argument {} of `{}`\nhelp: write `{}`",
        quoted(found),
        word.name,
        word.usage()
    )
}

pub(crate) fn duplicate_argument(word: &Word, arg: &Arg) -> String {
    let word = word.name;
    let name = arg.name;
    match arg.kind {
        ArgKind::Flag(flags @ [_, _, ..]) => format!(
            "`{word}` takes only one of {}\nhelp: remove the other",
            listed(flags.iter().copied())
        ),
        _ => format!("the argument `{name}` of `{word}` is given twice\nhelp: remove one of them"),
    }
}

pub(crate) fn expected_projections(found: &TokenStream) -> String {
    format!(
        "`bias` expects `true`, `false` or a list of projections, found {}\nhelp: `bias = [q, k, v]`",
        quoted(found)
    )
}

pub(crate) fn unknown_projection(found: &str) -> String {
    format!(
        "unknown projection `{found}`\nhelp: the projections are `q`, `k`, `v` and `o`; `true` is all of them and `false` none"
    )
}

pub(crate) fn duplicate_projection(name: &impl ToTokens) -> String {
    format!(
        "the projection `{}` is listed twice",
        name.to_token_stream()
    )
}

pub(crate) fn expected_mask(key: &Key, found: &TokenTree) -> String {
    format!(
        "expected a mask, found {}\nhelp: the masks are {}",
        quoted(&found.to_token_stream()),
        listed(key.words().iter().map(|word| word.name))
    )
}

pub(crate) fn expected_mask_operator(found: &TokenStream) -> String {
    format!("expected `&` or `|` between masks, found {}", quoted(found))
}

pub(crate) fn operator_in_words(symbol: char, found: &str) -> String {
    format!("expected `{symbol}`, found `{found}`\nhelp: masks combine by `&`, `|` and `!`")
}

pub(crate) fn doubled_operator(symbol: char) -> String {
    format!("masks combine with `{symbol}`, found `{symbol}{symbol}`")
}

pub(crate) fn size_out_of_bounds(what: &str, size: &Size, largest: u64) -> String {
    format!(
        "`{what}` must be at least 1 and at most {largest}{}",
        found(size.value.is_some(), size)
    )
}

/// `, found 7`, or the expression if rustc will report it.
fn found(known: bool, value: &impl std::fmt::Display) -> String {
    if known {
        format!(", found {value}")
    } else {
        format!(": `{value}`")
    }
}

pub(crate) fn heads_do_not_divide(d_model: &Size, heads: &Size) -> String {
    let help = "or give `head_dim`";
    match (d_model.value, heads.value) {
        (Some(d), Some(h)) => {
            let below = d - d % h;
            let nearest = if below == 0 {
                h.to_string()
            } else {
                format!("{below} and {}", below + h)
            };
            format!(
                "{d} is not divisible by {h} heads\nhelp: the nearest `d_model` that are: {nearest}; {help}"
            )
        }
        _ => format!("`d_model = {d_model}` must be divisible by `heads = {heads}`, {help}"),
    }
}

pub(crate) fn kv_heads_do_not_divide(heads: &Size, kv_heads: &Size) -> String {
    match (heads.value, kv_heads.value) {
        (Some(h), Some(_)) => {
            let divisors: Vec<_> = (1..=h)
                .filter(|g| h % g == 0)
                .map(|g| g.to_string())
                .collect();
            format!(
                "{heads} heads cannot share {kv_heads} key/value heads evenly\nhelp: `kv_heads` divides `heads`: {}",
                divisors.join(", ")
            )
        }
        _ => format!("`heads = {heads}` must be divisible by `kv_heads = {kv_heads}`"),
    }
}

/// A distribution of matrices, for a tensor with one axis.
pub(crate) fn init_of_vector(word: &str) -> String {
    format!(
        "`{word}` is the distribution of a tensor with two axes or more\nhelp: write `normal(std)` or a number"
    )
}

pub(crate) fn not_positive(what: &str, number: &Real) -> String {
    let known = number.value.is_some();
    let help = if !known && number.to_string().contains('/') {
        "\nhelp: whole numbers divide to whole numbers, so `1 / 8` is 0: write `1.0 / 8.0`"
    } else {
        ""
    };
    format!(
        "`{what}` must be positive and finite{}{help}",
        found(known, number)
    )
}

pub(crate) fn not_all_positive(what: &str, numbers: &Numbers) -> String {
    format!("all numbers of `{what}` must be positive and finite: `{numbers}`")
}

pub(crate) fn dropout_out_of_range(p: &Real) -> String {
    format!(
        "`dropout` is a probability: at least 0 and less than 1{}{}",
        found(p.value.is_some(), p),
        if p.value.is_some_and(|p| p > 1.0 && p <= 100.0) {
            "\nhelp: a percentage is divided by 100"
        } else {
            ""
        }
    )
}

pub(crate) fn position_with_additive(name: &str) -> String {
    format!(
        "`{name}` contradicts `score = additive`: it is made for products of queries and keys\n\
         help: leave out `position`, or use `score = scaled_dot`"
    )
}

pub(crate) fn odd_rope(head_dim: &Size) -> String {
    match head_dim.value {
        Some(1) => "`rope` rotates pairs, so the width of a head must be even, found 1\nhelp: the nearest `head_dim` that is: 2".to_owned(),
        Some(value) => format!(
            "`rope` rotates pairs, so the width of a head must be even, found {value}\nhelp: the nearest `head_dim` that are: {} and {}",
            value - 1,
            value + 1
        ),
        None => format!("`rope` rotates pairs, so the width of a head must be even: `{head_dim}`"),
    }
}

pub(crate) fn odd_rope_dims(dims: &Size) -> String {
    match dims.value {
        Some(value) => format!(
            "`rope` rotates pairs, so its `dims` must be even, found {value}\nhelp: the next even number is {}",
            value + 1
        ),
        None => format!("`rope` rotates pairs, so its `dims` must be even: `{dims}`"),
    }
}

/// The last axis of the operation `rope`.
pub(crate) fn odd_vectors(width: &Size) -> String {
    match width.value {
        Some(1) => "`rope` rotates pairs, so the last axis must be even, found 1".to_owned(),
        Some(value) => format!(
            "`rope` rotates pairs, so the last axis must be even, found {value}\nhelp: write `dims = {}` to rotate the first numbers alone",
            value - 1
        ),
        None => format!("`rope` rotates pairs, so the last axis must be even: `{width}`"),
    }
}

/// `of`: what has the coordinates, a head or a vector.
pub(crate) fn too_many_rope_dims(dims: &Size, of: &str, width: &Size) -> String {
    format!(
        "`dims` of `rope` are coordinates of one {of}, which has {width}{}\nhelp: leave out `dims` to rotate all of them",
        found(dims.value.is_some(), dims)
    )
}

/// Two numbers of a word, of which the first must be less.
pub(crate) fn not_less<'a>(
    call: &crate::spec::Call,
    mut numbers: impl Iterator<Item = (&'a str, &'a Real)>,
) -> String {
    let word = call.word.name;
    let (Some((low, a)), Some((high, b))) = (numbers.next(), numbers.next()) else {
        return String::new();
    };
    format!("`{low}` of `{word}` must be less than its `{high}`, found {a} and {b}")
}

pub(crate) fn bidirectional_or_not(has_function: bool) -> String {
    let mask = if has_function { "`fn mask`" } else { "`!`" };
    format!(
        "`rel_pos_bias`: the words of the mask do not say whether a query looks ahead, as there is {mask}\n\
         help: `bidirectional = true` keeps half of the buckets for keys after the query, as T5's encoder does\n\
         help: `bidirectional = false` has all buckets for keys up to the query, as T5's decoder; a later key has the bias of the query's own position"
    )
}

pub(crate) fn not_bidirectional(position: &str) -> String {
    format!(
        "`bidirectional` is about the buckets of `position = rel_pos_bias`, and `position` is `{position}`\n\
         help: leave it out, or write `position = rel_pos_bias`"
    )
}

pub(crate) fn too_few_buckets(num_buckets: &Size, one_sided: bool) -> String {
    let need = if one_sided {
        "at least 2, as half of them are for one distance each"
    } else {
        "even and at least 4, as half of them look ahead"
    };
    format!(
        "`num_buckets` of `rel_pos_bias` must be {need}{}",
        found(num_buckets.value.is_some(), num_buckets)
    )
}

pub(crate) fn max_distance_too_near(
    max_distance: &Size,
    num_buckets: &Size,
    per_exact: usize,
) -> String {
    format!(
        "`max_distance` of `rel_pos_bias` must be greater than the distances with a bucket of their own, `num_buckets / {per_exact}`{}\n\
         help: `num_buckets` is {num_buckets}",
        found(max_distance.value.is_some(), max_distance)
    )
}

pub(crate) fn declared_twice(layer: &Ident) -> String {
    format!("the layer `{layer}` is declared twice\nhelp: rename or remove one of them")
}

pub(crate) fn ambiguous_alignment(call: &crate::spec::Call) -> String {
    let name = call.word.name;
    let with = |alignment: &str| {
        let args: Vec<_> = call
            .args_text()
            .into_iter()
            .chain([alignment.to_owned()])
            .collect();
        format!("{name}({})", args.join(", "))
    };
    format!(
        "`{name}` is ambiguous in cross-attention, where queries and keys may differ in number\n\
         help: `{}` lines up the first query with the first key\n\
         help: `{}` lines up the last query with the last key, as when decoding after a prefix",
        with("upper_left"),
        with("lower_right"),
    )
}

pub(crate) fn data_mask_twice(name: &str) -> String {
    format!(
        "`{name}` stands twice in the mask, but the call takes its data once\nhelp: write the mask with one `{name}`"
    )
}
