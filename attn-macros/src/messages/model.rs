//! Messages of `model!`.

mod attentions;
mod blocks;
mod budget;
mod buffers;
mod constants;
mod elsewhere;
mod layers;
mod lora;
mod scans;
mod sessions;
mod shapes;
mod values;

use proc_macro2::{Ident, TokenStream};

pub(crate) use attentions::*;
pub(crate) use blocks::*;
pub(crate) use budget::*;
pub(crate) use buffers::*;
pub(crate) use constants::*;
pub(crate) use elsewhere::*;
pub(crate) use layers::*;
pub(crate) use lora::*;
pub(crate) use scans::*;
pub(crate) use sessions::*;
pub(crate) use shapes::*;
pub(crate) use values::*;

use super::{did_you_mean, example, listed, nearest_key, quoted};
use crate::model::types::{Type, ValueKind};
use crate::ops::{OPERATIONS, Operation};
use crate::spec::body::Function;
use crate::spec::elsewhere::{NamePosition, instead_of, is_alias};
use crate::spec::keys::{nearest, owner_of};
use crate::spec::{Size, text};

pub(crate) const EMPTY: &str = "expected a declaration, found nothing\n\
    help: `model! { pub struct Gpt<vocab = 65>; fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] { .. } }`";
pub(crate) const EXPECTED_STRUCT: &str = "expected `struct`\n\
    help: a model is declared as an item, outside of expressions and types: `pub struct Name<size = 65>; fn forward(..) -> [..] { .. }`";
pub(crate) const EXPECTED_NAME: &str = "expected a name for the model";
pub(crate) const EXPECTED_SEMICOLON: &str = "expected `;` after the name and its sizes";
pub(crate) const EXPECTED_FORWARD: &str = "expected `fn forward(..) -> [..] { .. }`";
pub(crate) const EXPECTED_INPUT: &str = "expected an input: `tokens: ids[batch, seq]`, `x: [batch, seq, d_model]`, `lens: lens[batch]`, or `keep: bool[batch, seq]`";
pub(crate) const NO_SELF: &str = "`forward` takes no `self`\n\
    help: leave it out";
pub(crate) const EXPECTED_TYPE: &str = "expected a shape: `[batch, seq, d_model]` of floats, `ids[batch, seq]`, `lens[batch]`, or `bool[batch, seq]`";
pub(crate) const EXPECTED_ARGUMENT: &str = "expected a value, or `key = value`";
pub(crate) const EXPECTED_ARGUMENTS: &str = "expected `<` and the keys of the operation";
pub(crate) const UNCLOSED: &str = "expected `,` or `>`";
pub(crate) const EXPECTED_VARIABLE: &str = "expected the name of a variable\n\
    help: `let x = ..;`, or `let _x = ..;` for a value that nothing reads";
pub(crate) const SEVERAL_VARIABLES: &str = "several names stand in parentheses behind `let`\n\
    help: `let x = ..;`, or `let (a, b) = split::<axis>(x);`";
pub(crate) const EXPECTED_PARTS: &str = "expected `split`, `top_k`, `attention`, `attend` or a block with several results\n\
    help: `let x = ..;`, or `let (a, b) = split::<axis>(x);`";
pub(crate) const INFERRED: &str = "shapes are inferred, and not declared\n\
    help: `let x = ..;`";
pub(crate) const EXPECTED_VALUE: &str = "expected `=` and a value";
pub(crate) const EXPECTED_OPERATOR: &str = "expected an operator: `+`, `-`, `*` or `/`";
pub(crate) const EXPECTED_OPERATOR_OR_END: &str = "expected an operator, or `;`";
pub(crate) const EXPECTED_OPERAND: &str =
    "expected a value: a variable, an operation, a number, or a constant expression in braces";
pub(crate) const EXPECTED_OPERANDS: &str = "expected the operands in parentheses";
pub(crate) const EXPECTED_REPEAT: &str = "expected `repeat count { .. }`";
pub(crate) const REPEAT_ALONE: &str = "a `repeat` is no operand: it has no result, and changes variables that are declared before it\n\
    help: `let mut z = y; repeat 2 { z = ..; }`, and then `x + z`";
pub(crate) const HALF_OPEN: &str = "expected the end of the range behind two dots\n\
    help: the end is no part of the range: `0..4` has the four indices 0 to 3";
pub(crate) const PART_OF_OPERATION: &str = "expected a variable or an operation before `[`\n\
    help: give the value a name: `let y = ..;`, and `y[seq = 0]` is a part of it";
pub(crate) const QUESTION: &str = "operations do not fail, so nothing is handed on by `?`\n\
    help: remove it; `try_forward` of the model returns a `Result`";
pub(crate) const NO_SEMICOLON: &str = "expected `;` behind this statement";
pub(crate) const POWER: &str = "there is no operator `**`\n\
    help: a square is `x * x`";
pub(crate) const LIST: &str = "there are no lists here\n\
    help: operands stand one after the other, as in `concat(a, b)`";
pub(crate) const STRAY_SEMICOLON: &str = "nothing stands before this `;`\n\
    help: remove it; a `repeat` ends with its `}`";
pub(crate) const SEVERAL_RESULTS: &str = "expected the end of the result, found `,`\n\
    help: several results stand in parentheses: `(x, y)`";
pub(crate) const AXES_AND_SEMICOLON: &str = "expected `,` between axes, found `;`\n\
    help: every axis has a name or a size: `[batch, seq]`";
pub(crate) const NOTHING_IS_DONE: &str = "this value goes nowhere\n\
    help: give it a name, `let y = ..;`, or return it, without the `;`";
pub(crate) const VALUE_OF_REPEAT: &str = "a `repeat` has no value: it changes variables\n\
    help: `x = ..;`";
pub(crate) const REPEAT_CHANGES_NOTHING: &str = "this `repeat` changes no variable\n\
    help: declare `let mut x = ..;` before it, and assign to `x` in it";
pub(crate) const REPEAT_NOTHING: &str = "expected at least one round, found 0";
pub(crate) const REPEAT_OPTIONS: &str = "a `repeat` takes `name = blocks`, under which its parameters are saved, `share = true`, for one set of parameters, and `tied = blocks`, for the layers of a loop before";
pub(crate) const NUMBER_ALONE: &str = "expected a value with axes, found a number";
pub(crate) const LAST_AXIS: &str = "floats whose last axis is a constant";
pub(crate) const NOT_A_NUMBER: &str = "the result of this is no finite number";
pub(crate) const EXPECTED_ELSE: &str = "an `if` is a value, and has an `else`\n\
    help: `if x < 0 { 0 } else { x }`";
pub(crate) const EXPECTED_BRANCH: &str = "expected a branch: `if x < 0 { 0 } else { x }`";
pub(crate) const ONE_VALUE_OF_A_BRANCH: &str = "a branch is one value: `if x < 0 { 0 } else { x }`";
pub(crate) const EXPECTED_COMPARISON: &str =
    "expected a comparison: `<`, `<=`, `>`, `>=`, `==` or `!=`";
pub(crate) const EXPONENT: &str = "the exponent of `pow` is a number, found a value with axes\n\
    help: the power of any other is `exp(n * ln(x))`";
pub(crate) const VALUES_WITHOUT_CONTEXT: &str = "there are `values` and no `context`, whose keys they belong to\n\
    help: `attention::<..>(query, context = key, values = value)`";

pub(crate) const MODULE_WITHOUT_TYPE: &str = "`module` needs a type\n\
    help: `module::<Linear<8, 3>, out = [batch, seq, 3]>(x)`";
pub(crate) const MODULE_WITHOUT_OUT: &str = "`module` needs the key `out`: nothing is known of its type here\n\
    help: `module::<Linear<8, 3>, out = [batch, seq, 3]>(x)`";

pub(crate) fn unsupported(word: &str) -> String {
    let help = match word {
        "return" => "the last line is the result, without `return` and `;`",
        "for" | "while" | "loop" => {
            "`repeat n { x = ..; }` runs its block `n` times, each time with its own parameters, and `scan seq { .. }` for each step along an axis, with states"
        }
        _ => {
            "there are `let`, `let mut`, `param`, `buffer`, assignments, `repeat n { .. }`, and a result"
        }
    };
    format!("`{word}` is not part of the language\nhelp: {help}")
}

/// `call`: the tokens after the name.
pub(crate) fn lost_colons(name: &Ident, call: &TokenStream) -> String {
    let call = text::of_type(call).replace("> (", ">(");
    format!("expected `::` before `<`\nhelp: `{name}::{call}`")
}

pub(crate) fn size_without_value(name: &Ident) -> String {
    format!("the size `{name}` needs a value\nhelp: `{name} = 64`")
}

pub(crate) fn expected_size(found: &TokenStream) -> String {
    format!("expected `name = size`, found {}", quoted(found))
}

pub(crate) fn size_twice(name: &Ident) -> String {
    format!("the size `{name}` is declared twice")
}

/// The value of `name` reads `early`, which is declared after it.
pub(crate) fn size_too_early(early: &Ident, name: &Ident) -> String {
    format!(
        "the value of `{name}` reads `{early}`, which is not set yet\nhelp: sizes are set from left to right: declare `{early}` before `{name}`"
    )
}

pub(crate) fn unused_size(name: &Ident) -> String {
    format!("the size `{name}` is never used\nhelp: remove it")
}

/// `found` is used as a size, and nothing reads `unused`.
pub(crate) fn size_for_another(found: &Ident, unused: &Ident, model: &Ident) -> String {
    format!(
        "`{model}` has no size `{found}`, and its size `{unused}` is never used\n\
         help: did you mean `{unused}`? If `{found}` is a constant, remove `{unused}`"
    )
}

pub(crate) fn input_twice(name: &Ident) -> String {
    format!("two inputs are called `{name}`")
}

pub(crate) fn unknown_kind(found: &Ident) -> String {
    format!(
        "unknown kind of input `{found}`\nhelp: `ids[..]` are indices, `lens[batch]` valid lengths, `bool[..]` a mask, and `[..]` floats"
    )
}

pub(crate) fn number_of_axes(kind: ValueKind, found: usize, least: usize, most: usize) -> String {
    let least = match least {
        0 => "at most ".to_owned(),
        least => format!("{least} to "),
    };
    format!(
        "expected {least}{most} axes in `{}[..]`, found {found}",
        kind.prefix()
    )
}

/// `of`: what has axes here, an input or an operand.
pub(crate) fn unknown_axis(
    found: &Ident,
    of: &str,
    symbols: &[String],
    sizes: &[String],
) -> String {
    let known = symbols.iter().chain(sizes).map(String::as_str);
    let near = nearest(&found.to_string(), known);
    let help = did_you_mean(near, || {
        let names = listed(symbols.iter().map(String::as_str));
        match symbols {
            [] => format!("all axes of the {of}s are constants"),
            _ => format!(
                "the axes of the {of}s are {names}. Another name for one of them is given by `as`: `arange::<seq>() as [kv = seq]`"
            ),
        }
    });
    format!("no {of} has an axis `{found}`, and no size is called so\n{help}")
}

pub(crate) fn axis_as_constant(found: &Ident, model: &Ident) -> String {
    format!(
        "`{found}` is an axis of the inputs, of any length, and here stands a constant\n\
         help: a size of the model is declared as one: `struct {model}<{found} = 8>;`"
    )
}

pub(crate) fn unused_value(name: &Ident) -> String {
    format!(
        "the value of `{name}` is never used\nhelp: remove it, or call it `_{name}` if that is meant"
    )
}

pub(crate) fn unknown_variable(found: &Ident, known: impl Iterator<Item = String>) -> String {
    let known: Vec<String> = known.collect();
    let near = nearest(&found.to_string(), known.iter().map(String::as_str));
    let help = did_you_mean(near, || match known.as_slice() {
        [] => "none is set yet".to_owned(),
        known => format!(
            "the variables are {}",
            listed(known.iter().map(String::as_str))
        ),
    });
    format!("there is no variable `{found}`\n{help}")
}

/// An assignment to an undeclared variable.
pub(crate) fn undeclared(found: &Ident, known: impl Iterator<Item = String>) -> String {
    let known: Vec<String> = known.collect();
    let near = nearest(&found.to_string(), known.iter().map(String::as_str));
    let help = did_you_mean(near, || {
        format!("declare it: `let {found} = ..;`, or `let mut {found} = ..;` if it changes later")
    });
    format!("there is no variable `{found}`\n{help}")
}

pub(crate) fn variable_as_constant(found: &Ident) -> String {
    format!(
        "`{found}` is a variable, and in braces stands a constant\nhelp: values are combined in parentheses"
    )
}

pub(crate) fn constant_as_variable(found: &Ident) -> String {
    format!("there is no variable `{found}`\nhelp: a constant stands in braces: `{{ {found} }}`")
}

pub(crate) fn used_before_set(name: &Ident) -> String {
    format!("`{name}` is used before it is set\nhelp: move its declaration up")
}

pub(crate) fn not_mutable(name: &Ident) -> String {
    format!("`{name}` cannot be assigned to twice\nhelp: declare it as `let mut {name} = ..;`")
}

pub(crate) fn input_changes(name: &Ident) -> String {
    format!(
        "`{name}` is an input, and inputs do not change\n\
         help: begin with a variable of the same name: `let mut {name} = {name};`"
    )
}

pub(crate) fn name_taken(name: &Ident) -> String {
    format!(
        "the name `{name}` is taken\nhelp: layers and learned tensors are saved by their names, so these differ"
    )
}

pub(crate) fn repeat_changes_shape(name: &Ident, start: &Type, end: &Type) -> String {
    format!(
        "`repeat` changes the shape of `{name}`: a round begins with {start} and ends with {end}"
    )
}

pub(crate) fn unknown_operation(found: &Ident, blocks: &[String]) -> String {
    let names = || OPERATIONS.iter().map(|operation| operation.name);
    let all = || names().chain(blocks.iter().map(String::as_str));
    let text = found.to_string();
    let is_type = text.starts_with(char::is_uppercase);
    let form = instead_of_operation(&text).or_else(|| is_type.then(|| module_of(&text)));
    let help = match form {
        Some(form) => format!("help: {form}"),
        None => did_you_mean(nearest(&text, all()), || {
            let blocks = match blocks {
                [] => String::new(),
                blocks => {
                    let names = blocks.iter().map(String::as_str);
                    format!(
                        ", and the blocks and functions of the model {}",
                        listed(names)
                    )
                }
            };
            format!("the operations are {}{blocks}", listed(names()))
        }),
    };
    format!("unknown operation `{found}`\n{help}")
}

pub(crate) fn body_of(operation: &str) -> String {
    format!("`{operation}` has no body: only `attention` and `attend` have functions of their own")
}

pub(crate) fn model_twice(name: &Ident) -> String {
    format!("the model `{name}` is declared twice\nhelp: rename or remove one of them")
}

pub(crate) fn operand_twice(name: &Ident) -> String {
    format!("the operand `{name}` is given twice\nhelp: remove one of them")
}

pub(crate) fn named_operand(operation: &Operation, found: &Ident) -> String {
    let name = operation.name;
    let text = found.to_string();
    // Every operation has the key `name`.
    let keys = operation.keys.iter().map(|key| key.name);
    let mut keys = keys.chain(["name"]);
    let help = match keys.find(|key| *key == text || is_alias(&text, key)) {
        Some(key) => format!("keys stand in the angle brackets: `{name}::<{key} = ..>(..)`"),
        None => format!("the operands of `{name}` stand by their position"),
    };
    format!("`{name}` has no operand `{found}`\nhelp: {help}")
}

pub(crate) fn number_of_operands(operation: &Operation, found: usize) -> String {
    format!(
        "`{}` takes {}, found {found} operands",
        operation.name, operation.signature
    )
}

pub(crate) fn number_of_arguments(function: &Function, found: usize, has_axes: bool) -> String {
    let (usage, count) = (function.usage(), function.arity());
    let word = if count == 1 { "operand" } else { "operands" };
    let help = match has_axes {
        true => format!("\nhelp: along an axis it is `{}::<seq>(x)`", function.name),
        false => String::new(),
    };
    format!("`{usage}` has {count} {word}, found {found}{help}")
}

/// The keys of an operation, for its errors.
fn keys_of(operation: &Operation) -> String {
    if operation.keys.is_empty() {
        return format!("`{}` has no keys but `name`", operation.name);
    }
    format!(
        "the keys of `{}` are {}",
        operation.name,
        listed(operation.keys.iter().map(|key| key.name))
    )
}

pub(crate) fn unknown_key_of(operation: &Operation, found: &Ident) -> String {
    if operation.name == "attention" {
        let help = nearest_key(&found.to_string());
        return format!("`attention` has no key `{found}`\n{help}");
    }
    let names = operation.keys.iter().map(|key| key.name);
    let text = found.to_string();
    let owner = owner_of(&text).filter(|(key, _)| operation.key(key.name).is_some());
    let value = owner.map(|(key, word)| format!("{} = {}", key.name, word.shortest()));
    let near = value.as_deref().or_else(|| nearest(&text, names));
    let help = did_you_mean(near, || {
        // A form of `attention` that is one of a key which both have.
        let key = instead_of(&text, NamePosition::Key).filter(|form| {
            let mut keys = operation.keys.iter();
            keys.any(|key| form.contains(&format!("`{} = ", key.name)))
        });
        instead_of_operation(&text)
            .or_else(|| key.map(str::to_owned))
            .unwrap_or_else(|| keys_of(operation))
    });
    format!("`{}` has no key `{found}`\n{help}", operation.name)
}

pub(crate) fn too_many_positional(operation: &Operation, found: &str) -> String {
    let help = match operation.positional().as_slice() {
        [] => keys_of(operation),
        _ => format!(
            "write `{}`, and other keys as `key = value`",
            usage(operation)
        ),
    };
    format!("expected `key = value`, found `{found}`\nhelp: {help}")
}

pub(crate) fn wrong_position(operation: &Operation, expected: &str, found: &str) -> String {
    format!(
        "here stands the `{expected}` of `{}`, found `{found}`\nhelp: the order is {}; or write `{found} = {found}`",
        operation.name,
        operation.positional().join(", ")
    )
}

pub(crate) fn missing_key_of(operation: &Ident, key: &str) -> String {
    let found = Operation::find(&operation.to_string()).and_then(|found| found.key(key));
    let example = found.map(example).unwrap_or_default();
    format!("`{operation}` needs the key `{key}`\nhelp: `{operation}::<{example}>(..)`")
}

pub(crate) fn expected_module(found: &TokenStream) -> String {
    format!("expected the type of a module, found {}", quoted(found))
}

pub(crate) fn contains_itself(model: &Ident) -> String {
    format!("`{model}` contains itself\nhelp: layers that repeat stand in `repeat 2 {{ .. }}`")
}

pub(crate) fn expected_output(found: &TokenStream) -> String {
    format!(
        "expected a shape, found {}\nhelp: `out = [batch, seq, d_model]`",
        quoted(found)
    )
}

pub(crate) fn output_of_indices(found: &Type) -> String {
    format!("`module` returns floats, found {found}\nhelp: `out = [batch, seq, d_model]`")
}

/// The message for a module that returns another shape.
pub(crate) fn module_returns(module: &str, declared: &Type) -> String {
    format!("`{module}` does not return {declared}, which `out` declares")
}

/// The message for requesting facts of a model with a `module`.
pub(crate) fn no_facts(model: &str) -> String {
    format!(
        "`{model}` has no `PARAMS`, no `flops`, no `activation_bytes`, no `summary_of` and no `composed()`: it calls a `module`"
    )
}

pub(crate) fn known_by_type(module: &str) -> String {
    format!("of `{module}` nothing is known but the type")
}

pub(crate) fn zero_size(key: &str) -> String {
    format!("`{key}` must be at least 1, found 0")
}

pub(crate) fn unknown_embedding(found: &Ident, known: impl Iterator<Item = String>) -> String {
    let known: Vec<String> = known.collect();
    let help = if known.is_empty() {
        "help: there is none before this".to_owned()
    } else {
        let names = || known.iter().map(String::as_str);
        did_you_mean(nearest(&found.to_string(), names()), || {
            format!("the embeddings of the model are {}", listed(names()))
        })
    };
    format!("there is no embedding `{found}` to tie to\n{help}")
}

pub(crate) fn embedding_of_repeat(found: &Ident) -> String {
    format!(
        "the embedding `{found}` is one of a `repeat`, and is seen there only\nhelp: every round has its own table"
    )
}

pub(crate) fn key_of_tied(table: &Ident, key: &str) -> String {
    format!(
        "`tied` contradicts `{key}`: the table of `{table}` is all that it has\nhelp: leave out `{key}`"
    )
}

pub(crate) fn init_of_tied(table: &Ident) -> String {
    format!(
        "`tied` contradicts `init`: the table belongs to `{table}`\nhelp: give `init` to that embedding"
    )
}

pub(crate) fn tied_size(out: &Size, field: &Ident, vocab: &Size) -> String {
    format!("`out` is {out}, but the vocabulary of `{field}` is {vocab}")
}

pub(crate) fn tied_width(field: &Ident, width: &Size, found: &Type) -> String {
    format!("`linear` tied to `{field}` takes [.., {width}], found {found}")
}

/// `axis`: the name of the axis along which they stand, if it is given.
pub(crate) fn concat_differs(a: &Type, b: &Type, axis: Option<&TokenStream>) -> String {
    let axis = axis.map_or("the last".to_owned(), quoted);
    format!("`concat`: one is {a}, the other {b}\nhelp: all axes but {axis} are the same")
}

pub(crate) const PERMUTE_WITHOUT_AXES: &str = "`permute` needs the axes, in the new order\n\
    help: `permute::<[seq, batch, d_model]>(x)`";

/// A permutation that leaves an axis out.
pub(crate) fn not_all_axes(found: usize, value: &Type) -> String {
    format!(
        "`permute` names {found} of the {} axes of {value}\nhelp: write all of them, in the new order",
        value.axes.len()
    )
}

pub(crate) fn same_order(operation: &str, value: &Type) -> String {
    format!("{value} has its axes in this order\nhelp: leave out `{operation}`")
}

pub(crate) fn padding_of_pool(
    operation: &Operation,
    lens: &Type,
    mask: &Type,
    found: &Type,
) -> String {
    let name = operation.name;
    format!("`{name}` takes {lens} or {mask} as its second operand, found {found}")
}
