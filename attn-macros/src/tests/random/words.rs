//! The words of random texts: those of the languages, from their tables, and unknown ones.

use crate::ops::OPERATIONS;
use crate::spec::body::{FUNCTIONS, FunctionKind};
use crate::spec::keys::{ArgKind, INITIALIZER, KEYS, Key};

/// Words of Rust, at any place.
const COMMON: &[&str] = &[
    "struct",
    "pub",
    "fn",
    "let",
    "if",
    "else",
    "as",
    "true",
    "false",
    "_",
    "r#type",
    "Layer",
    "N",
    "<",
    ">",
    "=",
    ",",
    ";",
    ":",
    "&",
    "|",
    "!",
    "+",
    "-",
    "*",
    "/",
    "%",
    "#",
    "$",
    "?",
    "@",
    ".",
    "..",
    "..=",
    "&&",
    "||",
    "::",
    "->",
    "=>",
    "==",
    "!=",
    "<=",
    "+=",
    "<<",
    ">>",
    "'a",
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "0.0",
    "0.1",
    "0.5",
    "1.0",
    "1.",
    "1e400",
    "1e-400",
    "\"text\"",
    "'x'",
    "9223372036854775808",
    "99999999999999999999999999999999999999999",
];

/// Words in a header, besides keys and their values.
const HEADS: &[&str] = &[
    "crate",
    "super",
    "self",
    "const",
    "unsafe",
    "r#struct",
    "r#heads",
    "q",
    "k",
    "v",
    "o",
    "HEADS",
    "héads",
    "8usize",
    "8f32",
    "0x10",
    "512",
    "1_000",
    "18446744073709551615",
    "2147483649",
    "b\"bytes\"",
    "/// documentation\n",
];

/// Words in a body, besides functions and variables.
const BODIES: &[&str] = &[
    "param", "buffer", "data", "ids", "bool", "batch", "doc", "slope", "bias", "heads", "f32",
    "i64", "usize", "match", "for", "return", "W", "C", "x",
];

/// Words in a model, besides operations and their keys.
const MODELS: &[&str] = &[
    "tokens", "x", "y", "ids", "lens", "bool", "batch", "seq", "heads", "layers", "65", "mut",
    "repeat", "scan", "state", "yield", "reverse", "block", "mlp", "forward", "name", "tied",
    "share", "out", "Linear", "ReLU",
];

/// The words of `attention!`'s keys.
pub(in crate::tests) fn attention() -> Vec<String> {
    let functions = FunctionKind::ALL.map(FunctionKind::name);
    list(
        [COMMON, HEADS],
        KEYS.iter().flat_map(of_key).chain(functions),
    )
}

/// The words of a body.
pub(in crate::tests) fn body() -> Vec<String> {
    let kinds = FunctionKind::ALL;
    let arguments = kinds.iter().flat_map(|kind| kind.args());
    let functions = FUNCTIONS.iter().map(|function| function.name);
    let named = kinds.iter().map(|kind| kind.name());
    let mut words = list(
        [COMMON, BODIES],
        functions.chain(named).chain(of_key(&INITIALIZER)),
    );
    words.extend(arguments);
    words.sort_unstable();
    words.dedup();
    words
}

/// The words of `model!`.
pub(in crate::tests) fn model() -> Vec<String> {
    let operations = OPERATIONS.iter().flat_map(|operation| {
        let keys = operation.keys.iter().flat_map(of_key);
        keys.chain([operation.name])
    });
    list([COMMON, MODELS], operations)
}

/// A key, its words, and their arguments.
fn of_key(key: &'static Key) -> Box<dyn Iterator<Item = &'static str>> {
    let words = key.words().iter().flat_map(|word| {
        let args = word.args.iter().flat_map(|arg| {
            let names: Vec<_> = match &arg.kind {
                ArgKind::Flag(flags) => flags.to_vec(),
                ArgKind::Word(key) => of_key(key).collect(),
                ArgKind::Size { .. }
                | ArgKind::Number { .. }
                | ArgKind::Numbers
                | ArgKind::OptionalSize
                | ArgKind::OptionalNumber => Vec::new(),
            };
            names.into_iter().chain([arg.name])
        });
        args.chain([word.name])
    });
    Box::new(words.chain([key.name]))
}

/// A list without duplicates.
fn list(written: [&[&'static str]; 2], named: impl Iterator<Item = &'static str>) -> Vec<String> {
    let mut words = written.concat();
    words.extend(named.filter(|name| !name.is_empty()));
    words.sort_unstable();
    words.dedup();
    words.into_iter().map(str::to_owned).collect()
}
