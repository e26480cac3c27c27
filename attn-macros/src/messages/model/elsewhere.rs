//! Messages for a model that is written as in other libraries and languages.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;

use crate::messages::quoted;
use crate::model::syntax::{Expr, SizeDraft};
use crate::ops::Operation;
use crate::spec::elsewhere::{NamePosition, instead_of};
use crate::spec::keys::{Key, KeyKind, Word};
use crate::spec::text;

/// The types of inputs.
const TYPES: &str = "`[batch, seq, d_model]` are floats, `ids[batch, seq]` indices, `lens[batch]` valid lengths, and `bool[batch, seq]` a mask";

pub(crate) const NO_SELF_IN_BODY: &str = "there is no `self` here\n\
    help: operations are called by their names, `linear::<out>(x)`, and each call has parameters of its own";
pub(crate) const LOGIC: &str = "conditions are combined by `&&`, `||` and `!`\n\
    help: `if keep && x > 0 { x } else { 0 }`";
pub(crate) const CARET: &str = "there is no operator `^`\n\
    help: a square is `x * x`, and another power `pow(x, 3)`";
pub(crate) const TERNARY: &str = "a choice begins with `if`\n\
    help: `if x < 0 { 0 } else { x }`";
pub(crate) const REMAINDER: &str = "there is no operator `%`\n\
    help: the remainder is `x - n * floor(x / n)`";
pub(crate) const COMPARISON: &str = "a comparison stands in the condition of a choice, and is no value\n\
    help: `if x < y { x } else { y }`; as floats it is `if x < y { 1 } else { 0 * x }`";

/// `.method` behind a value.
pub(crate) fn method_call(method: Option<&Ident>) -> String {
    let method = method.map(Ident::to_string).unwrap_or_default();
    let called = |call: &str| format!("operations are called as `{call}`");
    let help = match Operation::find(&method) {
        Some(operation) => called(&usage(operation)),
        None => instead_of_operation(&method).unwrap_or_else(|| called("layer_norm(x)")),
    };
    format!("there are no methods and no fields here\nhelp: {help}")
}

pub(crate) fn macro_call(name: &Ident) -> String {
    let help = instead_of(&name.to_string(), NamePosition::Operation)
        .unwrap_or("the operations of the model are called without `!`");
    format!("there are no macros here, found `{name}!`\nhelp: {help}")
}

/// Some axes in an order.
const ALL_AXES: &str = "[seq, batch, d_model]";

/// Whether the key of an operation is all axes of its result.
fn takes_all_axes(operation: &Operation) -> bool {
    matches!(
        operation.name,
        "permute" | "expand" | "stack" | "scatter_add"
    )
}

/// `linear::<out>(x)`
pub(super) fn usage(operation: &Operation) -> String {
    let name = operation.name;
    match operation.positional().as_slice() {
        [] => format!("{name}(x)"),
        ["axis"] if name == "arange" => "arange::<seq>()".to_owned(),
        ["axis"] if takes_all_axes(operation) => format!("{name}::<{ALL_AXES}>(x)"),
        ["type"] => "module::<Type, out = [batch, seq, d_model]>(x)".to_owned(),
        keys => format!("{name}::<{}>(x)", keys.join(", ")),
    }
}

/// `nn::Linear` in the place of an operation.
pub(crate) fn path_of_operation(path: &str, last: &Ident) -> String {
    let text = last.to_string();
    let help = match Operation::find(&text) {
        Some(operation) => format!("write `{}`", usage(operation)),
        None => instead_of_operation(&text).unwrap_or_else(|| module_of(path)),
    };
    format!("operations are called by their names alone, found `{path}`\nhelp: {help}")
}

pub(super) fn instead_of_operation(found: &str) -> Option<String> {
    instead_of(found, NamePosition::Operation).map(str::to_owned)
}

/// The call of a user's layer.
pub(super) fn module_of(ty: &str) -> String {
    format!("another layer is called by its type: `module::<{ty}, out = [batch, seq, d_model]>(x)`")
}

pub(crate) fn path_of_constant(path: &str) -> String {
    format!(
        "expected a value, found the path `{path}`\nhelp: a constant stands in braces: `{{ {path} }}`"
    )
}

/// `embedding(keys)(operands)`, or with brackets.
pub(crate) fn keys_in_angles(name: &Ident, keys: &TokenStream, operands: &Group) -> String {
    let keys = text::of(keys);
    let operands = text::of(&operands.stream());
    format!("keys stand in angle brackets\nhelp: `{name}::<{keys}>({operands})`")
}

/// `struct Net { vocab: 65 }`, or with parentheses.
pub(crate) fn sizes_in_angles(model: &Ident, sizes: &[SizeDraft]) -> String {
    let sizes: Vec<_> = sizes.iter().map(declared).collect();
    let sizes = match sizes.as_slice() {
        [] => "d_model = 64".to_owned(),
        sizes => sizes.join(", "),
    };
    format!("the sizes of a model stand in angle brackets\nhelp: `struct {model}<{sizes}>;`")
}

/// `vocab = 65`
fn declared(size: &SizeDraft) -> String {
    format!("{} = {}", size.name, text::of(&size.value))
}

/// `vocab: usize = 65`
pub(crate) fn size_with_type(found: &TokenStream, size: &SizeDraft) -> String {
    format!(
        "expected `name = size`, found {}\nhelp: every size is a `usize`: `{}`",
        quoted(found),
        declared(size)
    )
}

/// `mask = causal` among the sizes.
pub(crate) fn key_as_size(key: &Key, value: &TokenStream) -> String {
    let name = key.name;
    let value = text::of(value);
    let help = format!("give it to the attention: `attention::<heads, {name} = {value}>(x)`");
    format!(
        "the constants of a model are sizes, numbers and switches, and `{name}` is none\nhelp: {help}"
    )
}

/// `_`, `-1`, `..`, `None`
pub(crate) fn no_axis(found: &TokenStream) -> String {
    format!(
        "expected the name or the size of an axis, found {}\nhelp: an axis of any length has a name, the same wherever its length is the same: `[batch, seq]`. Axes are known by their names, not by their places",
        quoted(found)
    )
}

/// `Tensor`, or `ids` without its axes.
pub(crate) fn no_type(found: &Ident) -> String {
    format!("expected a shape, found `{found}`\nhelp: {TYPES}")
}

/// `dropout` where a number or a size stands.
pub(crate) fn operation_as_constant(found: &Ident, model: &Ident) -> String {
    format!(
        "`{found}` is an operation, and here stands a constant\nhelp: a constant is declared after the model's name: `struct {model}<{found} = 0.1>;`"
    )
}

pub(crate) fn variable_as_size(found: &Ident, model: &Ident) -> String {
    format!(
        "`{found}` is a variable, and here stands a constant\nhelp: a size is declared after the model's name: `struct {model}<{found} = 8>;`"
    )
}

/// `let hidden = 4 * d_model;`
pub(crate) fn number_in_let(name: &Ident, value: &str, model: &Ident) -> String {
    let value = if value.contains(' ') && !value.starts_with('{') {
        format!("{{ {value} }}")
    } else {
        value.to_owned()
    };
    format!(
        "expected a value with axes, found a number\nhelp: a size is declared after the model's name: `struct {model}<.., {name} = {value}>;`"
    )
}

/// `mask = causal` among the operands of an attention.
pub(crate) fn key_as_operand(operation: &Ident, key: &Ident, values: &[Expr]) -> String {
    let value = match values {
        [value] => value.text(),
        _ => "..".to_owned(),
    };
    let others = match operation == "attention" {
        true => ["heads, ", "x"],
        false => ["", "q, k, v"],
    };
    let [keys, operands] = others;
    format!(
        "`{operation}` has no operand `{key}`\nhelp: keys stand in the angle brackets: `{operation}::<{keys}{key} = {value}>({operands})`"
    )
}

/// Numbers among the operands, and the keys that they belong to.
pub(crate) fn number_as_operand(operation: &Operation, numbers: &[String]) -> String {
    let name = operation.name;
    let numbers = numbers.join(", ");
    if name == "einsum" && numbers.starts_with('"') {
        return super::einsum_of_text(&numbers);
    }
    let help = match (operation.positional().as_slice(), operation.keys) {
        (
            _,
            [
                Key {
                    kind: KeyKind::Axes,
                    ..
                },
                ..,
            ],
        ) if takes_all_axes(operation) => {
            format!(
                "axes stand in angle brackets, by their names: `{}`",
                usage(operation)
            )
        }
        (
            _,
            [
                Key {
                    kind: KeyKind::Axes,
                    ..
                },
                ..,
            ],
        ) => {
            format!("an axis stands in angle brackets, by its name: `{name}::<seq>(x)`")
        }
        (
            _,
            [
                Key {
                    kind: KeyKind::Pattern,
                    ..
                },
                ..,
            ],
        ) => format!("write `{}`", super::pattern_of_text(&numbers)),
        ([], []) => format!("write `{name}(x)`"),
        ([], [key, ..]) => format!(
            "keys stand in angle brackets: `{name}::<{} = {numbers}>(x)`",
            key.name
        ),
        _ => format!("keys stand in angle brackets: `{name}::<{numbers}>(x)`"),
    };
    format!("`{name}` takes values with axes, found a number\nhelp: {help}")
}

/// A value of a key without the key.
pub(crate) fn word_by_position(key: &Key, word: &Word, found: &str) -> String {
    format!(
        "expected `key = value`, found `{found}`\nhelp: did you mean `{} = {}`?",
        key.name,
        word.shortest()
    )
}

/// `found` in place of the name of a layer, in `name` or `tied`.
/// Whether this is a word that is no name, not even as `r#self`.
pub(crate) fn is_never_raw(name: &Ident) -> bool {
    let words = ["self", "Self", "super", "crate", "_"];
    words.iter().any(|word| name.unraw() == *word)
}

pub(crate) fn expected_layer_name(key: &str, found: &TokenStream) -> String {
    let literal = syn::parse2::<syn::LitStr>(found.clone());
    let name = literal.ok().and_then(|text| text.parse::<Ident>().ok());
    // The layer of `embedding.weight`.
    let first = found.clone().into_iter().next();
    let name = name.or_else(|| match first {
        // A word of Rust, as `self` or `true`, is no name.
        Some(TokenTree::Ident(first)) => syn::parse2(first.to_token_stream()).ok(),
        _ => None,
    });
    let name = name.filter(|name| !is_never_raw(name));
    let other = if key == "tied" { "embedding" } else { "head" };
    let name = name.map_or_else(|| other.to_owned(), |name| name.to_string());
    format!(
        "expected the name of a layer, found {}\nhelp: `{key} = {name}`",
        quoted(found)
    )
}
