//! Messages about the blocks of `model!`, and about what stands beside `forward`.

use proc_macro2::{Ident, TokenStream};

use crate::messages::{did_you_mean, listed, quoted};
use crate::model::syntax::{BlockDraft, TypeDraft};
use crate::model::types::{Axis, Type, ValueKind, tuple};
use crate::spec::keys::nearest;

pub(crate) const BLOCK_IN_FUNCTION: &str = "a block is declared beside `fn forward`, and called in it\n\
    help: move the block behind the `;` of the header; a call is `let y = mlp(x);`";
pub(crate) const VISIBLE_FUNCTION: &str = "the functions of a model are as visible as its struct\n\
    help: leave out the visibility";
pub(crate) const EXPECTED_USE: &str =
    "expected the paths of blocks: `use layers::mlp;`, `use layers::{mlp, head as last};`";
pub(crate) const PUB_USE: &str = "a `use` holds in this declaration only\n\
    help: leave out the visibility; outside of `model!`, `pub use layers::mlp;` hands on a block";
pub(crate) const PRIVATE_BLOCK: &str = "nothing can call this block: it is private, and here is no model\n\
    help: `pub block`, or `pub(crate) block`";
pub(crate) const BLOCKS_BEFORE_STRUCT: &str = "the blocks of a model stand behind its `struct`\n\
    help: move them there; or declare them in a `model!` of their own, `pub(crate) block`, and `use` them in this one";
pub(crate) const ATTRIBUTE_OF_ITEM: &str = "only documentation stands here\n\
    help: attributes of the model stand before its `struct`";
pub(crate) const KEY_CALLED_NAME: &str = "every call has the key `name`, under which its parameters are saved\nhelp: choose another name";
pub(crate) const LEADING_AXES_FIRST: &str = "`..` stands for the axes before all others\n\
    help: `[.., seq, d_model]`";
pub(crate) fn leading_axes_of_function(function: &str) -> String {
    format!(
        "every axis of `{function}` has a name, found `..`\n\
         help: `[batch, seq]`; in a `block`, `..` stands for any axes"
    )
}

pub(crate) fn expected_parameters(name: &Ident) -> String {
    format!(
        "expected the parameters of `{name}`: `x: [.., d_model]` is a value, and `hidden`, without a shape, is a size\n\
         help: `block {name}(x: [.., d_model], hidden) -> [.., d_model] {{ .. }}`"
    )
}

pub(crate) fn expected_body(of: &str) -> String {
    format!("expected the statements of `{of}` in braces")
}

pub(crate) fn expected_result(of: &str) -> String {
    let example = match of {
        "forward" => "[batch, seq, d_model]",
        _ => "[.., d_model]",
    };
    format!("expected the result of `{of}`: `-> {example}`, or several in parentheses")
}

pub(crate) const EXPECTED_DEFAULT: &str = "expected a value behind `=`, which stands where a call leaves the input out\n\
    help: `bias: [seq, d_model] = 0.0`";
pub(crate) const DEFAULT_IN_BLOCK: &str = "a block gets all of its values, and has no defaults\n\
    help: an input of a function may have one: `fn forward(x: [batch, seq], bias: [seq] = 0.0) -> ..`";
pub(crate) const DEFAULT_OF_FIRST_INPUT: &str = "the first input has the tape and the device, and no default\n\
    help: an input that is always there stands before it";

/// An axis of an input that may be left out.
pub(crate) fn axis_of_default(input: &Ident, axis: &Axis) -> String {
    format!(
        "`{axis}` has no length where `{input}` is left out\n\
         help: the axes of an input with a default are constants, or axes of inputs without one"
    )
}

/// A default that the kind of the input cannot have.
pub(crate) fn default_of_kind(kind: ValueKind, found: &TokenStream) -> String {
    let expected = match kind {
        ValueKind::Floats => "a number, `0.0`",
        ValueKind::Ids => {
            "a whole number, `0`, the length of an axis, `seq`, or a count along the last axis, `0..`"
        }
        ValueKind::Lens => "the length of an axis, `seq`, or a whole number",
        ValueKind::Bools => "`true` or `false`",
    };
    format!("expected {expected}, found {}", quoted(found))
}

pub(crate) fn expected_named_result(of: &str) -> String {
    format!(
        "expected a name and a shape for each result of `{of}`: `{{ y: [.., d_model], hidden: [.., 64] }}`"
    )
}

pub(crate) const EXPECTED_NAMED_VALUE: &str =
    "expected a name for each result: `{ logits, hidden: layer_norm(x) }`";
pub(crate) const EXPECTED_NAMED_PART: &str = "expected names of results: `let { logits, hidden: x } = read(x);`\n\
    help: behind `:` is another name for the variable; `..` leaves out the other results";
pub(crate) const REST_IS_LAST: &str =
    "expected the end behind `..`, which leaves out the other results";
pub(crate) fn result_twice(of: &str, found: &Ident) -> String {
    format!("two results of `{of}` are called `{found}`")
}

pub(crate) fn result_again(found: &Ident) -> String {
    format!("`{found}` stands here twice")
}

/// `{ logits }` as the last line, where the declared results have no names.
pub(crate) fn results_without_names(of: &str, found: &[Ident]) -> String {
    let named: Vec<_> = found.iter().map(|name| format!("{name}: [..]")).collect();
    format!(
        "the results of `{of}` have no names\n\
         help: `-> {{ {} }}`, or return them in their order: `{}`",
        named.join(", "),
        tuple(found)
    )
}

/// `(logits, hidden)` as the last line, where the declared results have names.
pub(crate) fn results_by_name(of: &str, declared: &[Ident]) -> String {
    format!(
        "the results of `{of}` have names\nhelp: `{{ {} }}`; a value of another name is `{}: ..`",
        in_braces(declared),
        declared[0]
    )
}

/// A call whose results have names, where one value is expected or several in their order.
pub(crate) fn parts_by_name(block: &Ident, declared: &[Ident]) -> String {
    format!(
        "the results of `{block}` have names\nhelp: `let {{ {} }} = {block}(..);`",
        in_braces(declared)
    )
}

fn in_braces(names: &[Ident]) -> String {
    let names: Vec<_> = names.iter().map(Ident::to_string).collect();
    names.join(", ")
}

pub(crate) fn results_have_no_names(of: &Ident) -> String {
    format!("the results of `{of}` have no names\nhelp: `let (a, b) = {of}(..);`")
}

pub(crate) fn unknown_result(of: &str, found: &Ident, declared: &[Ident]) -> String {
    let names: Vec<String> = declared.iter().map(Ident::to_string).collect();
    let near = nearest(&found.to_string(), names.iter().map(String::as_str));
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("its results are `{}`", names.join("`, `")),
    };
    format!("`{of}` has no result `{found}`\nhelp: {help}")
}

pub(crate) fn missing_result(of: &str, missing: &Ident) -> String {
    format!("the result `{missing}` of `{of}` is not here")
}

pub(crate) fn nothing_returned(of: &str) -> String {
    format!("`{of}` returns nothing\nhelp: its last line is the result, without a `;`")
}

pub(crate) fn number_of_results(of: &str, declared: usize, found: usize) -> String {
    format!("`{of}` declares {declared} results, and returns {found}")
}

pub(crate) fn result_differs(of: &str, declared: &Type, found: &Type) -> String {
    format!("`{of}` declares {declared}, and returns {found}")
}

pub(crate) fn result_of_indices(of: &str, found: &Type) -> String {
    let example = match of {
        "forward" => "[batch, seq, d_model]",
        _ => "[.., d_model]",
    };
    format!("`{of}` returns floats, found {found}\nhelp: `-> {example}`")
}

pub(crate) fn no_forward(model: &Ident) -> String {
    format!(
        "`{model}` has no `forward`\nhelp: `fn forward(x: [batch, seq]) -> [batch, seq] {{ .. }}`"
    )
}

pub(crate) const MODULE_AND_FUNCTIONS: &str = "a model with a `module` has no function beside `forward`\n\
    help: declare the other functions as blocks, or in a model of their own";

pub(crate) fn no_input(function: &Ident) -> String {
    format!("`{function}` has no input")
}

/// The name of a block, or of a function.
pub(crate) fn block_named_as(found: &Ident, is_function: bool) -> String {
    let what = match is_function {
        true => "of the language or a method of every model, and no name of a function",
        false => "of the language, and no name of a block",
    };
    format!("`{found}` is a word {what}\nhelp: choose another name")
}

/// A function `encode_mut` beside one that is called `encode`.
pub(crate) fn function_as_method(found: &Ident, other: &Ident) -> String {
    format!(
        "`{found}` and `{other}` would have a method of one name: a function `encode` comes with `encode_mut`, `try_encode` and others\n\
         help: choose another name"
    )
}

pub(crate) fn block_twice(found: &Ident, is_function: bool) -> String {
    let what = if is_function {
        "functions"
    } else {
        "blocks or functions"
    };
    format!("two {what} are called `{found}`")
}

/// The message for requesting a session of a model that calls a function twice.
pub(crate) fn session_twice(attention: &str) -> String {
    format!(
        "its function calls `{attention}` more than once, and a session remembers one sequence for it"
    )
}

pub(crate) fn parameter_twice(block: &Ident, found: &Ident) -> String {
    format!("two parameters of `{block}` are called `{found}`")
}

pub(crate) fn block_without_operand(block: &Ident) -> String {
    format!(
        "`{block}` takes no value\n\
         help: `block {block}(x: [.., d_model]) -> ..`; a learned tensor alone is a `param`"
    )
}

/// `hidden: usize`
pub(crate) fn key_with_type(name: &Ident) -> String {
    format!(
        "expected a shape\n\
         help: a size has no type: `{name}`; values are `{name}: [..]`, `{name}: ids[..]`"
    )
}

pub(crate) fn uncalled_block(name: &Ident) -> String {
    format!(
        "nothing calls the block `{name}`\nhelp: remove it, or call it `_{name}` if that is meant"
    )
}

pub(crate) fn unused_import(name: &Ident) -> String {
    format!("nothing calls the block `{name}`\nhelp: remove the `use`")
}

/// A constant, or a path, in a block that other declarations may use.
pub(crate) fn constant_in_shared_block(block: &Ident, found: &Ident) -> String {
    let key = found.to_string().to_lowercase();
    format!(
        "`{found}` has its meaning here only, and `{block}` can be used elsewhere\n\
         help: make it a key: `{key}` behind the operands of the block, and `{block}::<{key} = {{ {found} }}>(x)` at a call"
    )
}

/// A size of the header whose value only this module knows.
pub(crate) fn size_of_shared_block(block: &Ident, size: &Ident, constant: &Ident) -> String {
    format!(
        "`{size}` is computed of `{constant}`, which has its meaning here only, and `{block}` can be used elsewhere\n\
         help: make `{size}` a key of the block, or a literal in the header"
    )
}

pub(crate) fn module_in_shared_block(block: &Ident) -> String {
    format!(
        "a `module` has a type of this module, and `{block}` can be used elsewhere\n\
         help: leave out the visibility of the block, or call the module outside of it"
    )
}

pub(crate) fn unused_key(block: &Ident, key: &Ident) -> String {
    format!("`{block}` never uses its size `{key}`\nhelp: remove it")
}

/// `found` is used as a size, and nothing reads the key `unused`.
pub(crate) fn key_for_another(block: &Ident, found: &Ident, unused: &Ident) -> String {
    format!(
        "`{block}` has no size `{found}`, and its size `{unused}` is never used\n\
         help: did you mean `{unused}`? If `{found}` is a constant, remove `{unused}`"
    )
}

/// The blocks from a block on to its own call.
pub(crate) fn recursive_block(names: &[String]) -> String {
    let path = names.join(" → ");
    let name = names.last().map_or("", String::as_str);
    format!(
        "`{name}` calls itself, without an end: {path}\n\
         help: layers that repeat stand in `repeat 2 {{ .. }}`"
    )
}

pub(crate) fn too_many_calls(most: usize) -> String {
    format!(
        "blocks are called more than {most} times, those in blocks included, and every call has code of its own\n\
         help: `repeat 12 {{ .. }}` has one copy for all its rounds"
    )
}

pub(crate) fn no_leading_axes(block: &str) -> String {
    format!(
        "no operand of `{block}` has `..` before its axes\n\
         help: `x: [.., d_model]`"
    )
}

/// `mean::<..>(x)` of a value without these axes.
pub(crate) fn lacks_leading_axes(leading: &Type, found: &Type) -> String {
    format!("`..` stands for the axes {leading} here, which {found} does not have")
}

/// `variance::<..>(x)` where `..` stands for nothing.
pub(crate) fn variance_of_no_axes(found: &Type) -> String {
    format!(
        "`..` stands for no axes here, so there is no variance along them: the value is {found}"
    )
}

/// `meanings`: what the names of the declared type stand for.
pub(crate) fn operand_of_block(
    block: &Ident,
    name: &Ident,
    declared: &TypeDraft,
    found: &Type,
    meanings: &[(String, String)],
) -> String {
    let declared = declared.text();
    let meanings: Vec<_> = meanings
        .iter()
        .map(|(name, value)| format!("`{name}` is {value}"))
        .collect();
    let meanings = match meanings.as_slice() {
        [] => String::new(),
        meanings => format!("\nhelp: {}", meanings.join(", ")),
    };
    format!("`{block}` takes {name}: {declared}, found {found}{meanings}")
}

/// The default of `key` reads axes of operands.
pub(crate) fn key_is_set_later(key: &Ident) -> String {
    format!(
        "`{key}` is set from axes of operands, and here it stands for an axis of one\n\
         help: use another name, which the operand gives a size"
    )
}

/// `mlp::<hidden>(x)`
fn usage(block: &BlockDraft) -> String {
    let keys: Vec<_> = block.keys().map(|(name, _)| name.to_string()).collect();
    let keys = match keys.as_slice() {
        [] => String::new(),
        keys => format!("::<{}>", keys.join(", ")),
    };
    let operands = block.operands().filter_map(|operand| operand.name.as_ref());
    let operands: Vec<_> = operands.map(Ident::to_string).collect();
    format!("{}{keys}({})", block.name, operands.join(", "))
}

pub(crate) fn operands_of_block(block: &BlockDraft, found: usize) -> String {
    let count = block.operands().count();
    let word = if count == 1 { "operand" } else { "operands" };
    format!(
        "`{}` has {count} {word}, found {found}\nhelp: `{}`",
        block.name,
        usage(block)
    )
}

pub(crate) fn named_operand_of_block(block: &BlockDraft, found: &Ident) -> String {
    let help = match block.keys().any(|(name, _)| name == found) {
        true => format!(
            "sizes stand in the angle brackets: `{}::<{found} = ..>(..)`",
            block.name
        ),
        false => format!("the operands of `{}` stand by their position", block.name),
    };
    format!("`{}` has no operand `{found}`\nhelp: {help}", block.name)
}

pub(crate) fn number_as_operand_of_block(block: &BlockDraft, found: &str) -> String {
    format!(
        "`{}` takes values with axes, found the number {found}\nhelp: `{}`",
        block.name,
        usage(block)
    )
}

pub(crate) fn unknown_key_of_block(block: &BlockDraft, found: &Ident) -> String {
    let names: Vec<_> = block.keys().map(|(name, _)| name.to_string()).collect();
    let names = || names.iter().map(String::as_str);
    let help = did_you_mean(nearest(&found.to_string(), names()), || {
        match names().next() {
            None => "it has no keys but `name`".to_owned(),
            Some(_) => format!("its keys are {}", listed(names().chain(["name"]))),
        }
    });
    format!("`{}` has no key `{found}`\n{help}", block.name)
}

pub(crate) fn too_many_keys_of_block(block: &BlockDraft, found: &TokenStream) -> String {
    let count = block.keys().count();
    let word = if count == 1 { "key" } else { "keys" };
    format!(
        "`{}` has {count} {word} by position, found {} behind\nhelp: `{}`",
        block.name,
        quoted(found),
        usage(block)
    )
}

/// Tied layers are those of an earlier call or loop, which has named them.
pub(crate) fn tied_with(key: &str) -> String {
    format!(
        "`{key}` has no effect beside `tied`: the layers are those of the call or loop before\nhelp: remove one of them"
    )
}

pub(crate) fn missing_key_of_block(block: &BlockDraft, key: &Ident) -> String {
    format!(
        "`{}` needs the key `{key}`\nhelp: `{}::<{key} = 64>(..)`",
        block.name, block.name
    )
}

/// `block::<.., 64>(x)`
pub(crate) fn key_behind_rest(block: &BlockDraft, value: &TokenStream) -> String {
    format!(
        "`{value}` stands behind `..`, so it is not known which key it is\nhelp: `{}::<{value}, ..>(..)`, or with its name",
        block.name
    )
}

pub(crate) fn rest_without_keys(block: &BlockDraft) -> String {
    let keys: Vec<String> = block.keys().map(|(key, _)| format!("`{key}`")).collect();
    match keys.is_empty() {
        true => format!(
            "`{}` has no keys\nhelp: drop the `..`, which stands for those that are not given",
            block.name
        ),
        false => format!(
            "`..` stands for keys that are not given and have the name of a constant here, and there are none\nhelp: the keys of `{}` are {}",
            block.name,
            keys.join(", ")
        ),
    }
}

/// A call without names for the results.
pub(crate) fn several_results_of(block: &Ident, found: usize) -> String {
    format!(
        "`{block}` has {found} results, and each needs a name\nhelp: `let ({}) = {block}(..);`",
        ["a", "b", "c", "d"][..found.min(4)].join(", ")
    )
}

pub(crate) fn number_of_names(block: &Ident, results: usize, names: usize) -> String {
    let word = if results == 1 { "result" } else { "results" };
    format!("`{block}` has {results} {word}, and here are {names} names")
}

pub(crate) fn embedding_of_block(found: &Ident) -> String {
    format!(
        "the embedding `{found}` is one of a block, and is seen there only\nhelp: every call of the block has its own table"
    )
}
