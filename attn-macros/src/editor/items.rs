//! The names of the language, each with its documentation, in modules by the place where they are possible.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::body::ARGUMENTS;
use super::header::arguments_of;
use super::names::is_name;
use crate::model::lora::{self, KEYS as KEYS_OF_LORA};
use crate::ops::{Lower, OPERATIONS, Operation};
use crate::spec::body::{FUNCTIONS, FunctionKind};
use crate::spec::keys::{INITIALIZER, KEYS, Key, KeyKind, Word};

/// A name, and its documentation.
type Named = (&'static str, String);

/// `pub mod operations { /// doc \n pub const linear: () = (); .. } pub mod linear { .. } pub mod words { pub mod mask { .. } .. } ..`
pub(crate) fn items() -> TokenStream {
    let of_operations = OPERATIONS.iter().map(|operation| {
        let keys = operation.keys.iter().map(named_key);
        module(
            operation.name,
            &keys.chain(shared(operation)).collect::<Vec<_>>(),
        )
    });
    // The words of a key are the same for every owner of the key, except for `bias`, whose words have no names, and for sizes.
    let keys: BTreeMap<String, &'static Key> =
        all_keys().map(|key| (module_of_words(key), key)).collect();
    let words = keys.iter().map(|(name, key)| module(name, &words(key)));
    let with_operands = OPERATIONS.iter().filter(|of| has_named_operands(of));
    let operands = with_operands.map(|of| module(of.name, &operands_of(of).collect::<Vec<_>>()));
    let arguments = keys.iter().map(|(name, key)| {
        let name = format_ident!("{name}");
        let words = key.words().iter().filter(|word| !word.args.is_empty());
        let words = words.map(|word| module(word.name, &arguments_of(word)));
        quote!(pub mod #name { #(#words)* })
    });
    let others = others().map(|(name, names)| module(name, &names));
    quote! {
        #(#of_operations)*
        pub mod words {
            #(#words)*
            pub mod truths {}
        }
        pub mod arguments { #(#arguments)* }
        pub mod operands { #(#operands)* }
        #(#others)*
    }
}

/// The name of the module of the words of a key. A convolution over one axis has other words for a size than one over two.
pub(super) fn module_of_words(key: &Key) -> String {
    match key.kind {
        KeyKind::SizePerAxis(words) => {
            let words = words.iter().map(|word| word.name);
            let name: Vec<_> = [key.name].into_iter().chain(words).collect();
            name.join("_")
        }
        _ => key.name.to_owned(),
    }
}

/// The operands that a call gives by name.
fn operands_of(operation: &'static Operation) -> impl Iterator<Item = Named> {
    let has = |name| match (operation.name, &operation.lower) {
        ("attention", _) => true,
        ("attend", _) => name != "context" && name != "values",
        (_, Lower::OperandsAnd(operand, _)) => name == *operand,
        _ => false,
    };
    said(&OPERANDS).filter(move |(name, _)| has(*name))
}

pub(super) fn has_named_operands(operation: &'static Operation) -> bool {
    operands_of(operation).next().is_some()
}

/// Every key with words, and the keys of a layer. These come last: of two keys with one name, the last one wins.
fn all_keys() -> impl Iterator<Item = &'static Key> {
    let of_operations = OPERATIONS.iter().flat_map(|operation| operation.keys);
    let with_words = of_operations.filter(|key| !key.words().is_empty());
    let choices = |key: &'static Key| key.choices().map(|(_, key)| key);
    let of_words = KEYS.iter().flat_map(choices);
    let nested = KEYS.iter().flat_map(choices).flat_map(choices);
    with_words
        .chain(of_words)
        .chain(nested)
        .chain(KEYS)
        .chain([&INITIALIZER])
}

/// The modules of names that are possible at a single place.
fn others() -> impl Iterator<Item = (&'static str, Vec<Named>)> {
    let operations = OPERATIONS.iter().map(|operation| {
        let doc = format!("{}: {}", operation.signature, operation.doc);
        (operation.name, doc)
    });
    let sizes = KEYS.iter().filter(|key| matches!(key.kind, KeyKind::Size));
    let functions = FUNCTIONS.iter().map(|function| {
        let doc = format!("`{}`", function.usage());
        (function.name, doc)
    });
    let of_body = FunctionKind::ALL.iter().map(|kind| {
        let args = kind.args().join(", ");
        (kind.name(), format!("Takes any of `{args}`, by name."))
    });
    let arguments = |kind: FunctionKind| {
        let arguments = ARGUMENTS.iter().filter(move |(name, _)| kind.takes(name));
        arguments
            .map(|(name, doc)| (*name, (*doc).to_owned()))
            .collect()
    };
    [
        ("layer", KEYS.iter().map(named_key).collect()),
        ("operations", operations.chain(said(&STATEMENTS)).collect()),
        ("repeat", said(&OPTIONS).collect()),
        ("scan", said(&OPTIONS_OF_SCAN).collect()),
        ("statements_of_scan", said(&STATEMENTS_OF_SCAN).collect()),
        ("keywords", said(&KEYWORDS).collect()),
        ("kinds", said(&KINDS).collect()),
        ("items", said(&ITEMS).collect()),
        ("header", said(&HEADER).collect()),
        ("lora", KEYS_OF_LORA.iter().map(key_of_lora).collect()),
        ("sizes", sizes.clone().map(named_key).collect()),
        ("axes", said(&AXES).chain(sizes.map(named_key)).collect()),
        ("functions", functions.collect()),
        ("products", said(&[DOT]).collect()),
        ("functions_of_body", of_body.collect()),
        ("arguments_of_score", arguments(FunctionKind::Score)),
        ("arguments_of_mask", arguments(FunctionKind::Mask)),
    ]
    .into_iter()
}

const HEADER: [(&str, &str); 2] = [
    (
        "lora",
        "`lora(rank = 8, on = [\"q_proj\", \"v_proj\"])`: low-rank adapters of linear layers.",
    ),
    (
        "memory",
        "`memory = 2 GiB for (batch = 8, seq = 1024)`: a bound on the activations.",
    ),
];
const DOT: (&str, &str) = (
    "dot",
    "`dot(q, table[i])`: in an `attend` of a model, the product of a query or a key and a row of a table.",
);

const STATEMENTS: [(&str, &str); 5] = [
    (
        "block",
        "`block name(x: [.., d_model], hidden) -> [.., d_model] { .. }`: a part of a model, with parameters of its own at every call. It stands beside `fn forward`.",
    ),
    (
        "repeat",
        "`repeat layers { .. }`: the statements in the braces, so many times, with layers of its own each time.",
    ),
    (
        "scan",
        "`let y = scan seq { state h: [batch, d] = 0; h = ..; yield h; };`: a loop over the steps along an axis, with the same layers at every step. Values are seen without the axis, and what is yielded has it again.",
    ),
    (
        "param",
        "A learned tensor: `param name: [axes] = initializer;`",
    ),
    (
        "buffer",
        "A tensor of constants: `buffer name: [axes] = |i, j| number;`, with an index for each axis.",
    ),
];
const OPTIONS: [(&str, &str); 3] = [
    (
        "name",
        "The name of the field that has the layers. Default: `blocks`.",
    ),
    (
        "tied",
        "The loop of a function before, whose layers run again: those of the same names.",
    ),
    (
        "share",
        "`true`: every round has the same layers. Default: `false`.",
    ),
];
const OPTIONS_OF_SCAN: [(&str, &str); 2] = [
    (
        "reverse",
        "`true`: the last step comes first. Default: `false`.",
    ),
    (
        "keep",
        "`sqrt`: the states are kept before every √n-th step, and the steps between are computed again. Default: `all`.",
    ),
];
const STATEMENTS_OF_SCAN: [(&str, &str); 1] = [(
    "state",
    "`state name: [axes] = initial;`: a value that each step assigns for the next one.",
)];
/// Those of Rust, which cannot be completed.
const KEYWORDS: [(&str, &str); 1] = [(
    "yield_",
    "`yield h;`: a result for each step, which has the axis again. `yield (a, b);` are several.",
)];
const OPERANDS: [(&str, &str); 5] = [
    (
        "context",
        "The sequence that gives keys and values: cross-attention.",
    ),
    (
        "values",
        "The sequence that gives the values, where `context` gives the keys alone: one value for every key.",
    ),
    ("padding", "Valid lengths, or a mask, for `mask = padding`."),
    (
        "document",
        "The ids of documents, for `mask = document`; a pair in cross-attention.",
    ),
    (
        "position_ids",
        "The positions of the tokens, for `position = rope`: `ids[batch, seq]` or `ids[seq]`; a pair in cross-attention.",
    ),
];
const KINDS: [(&str, &str); 3] = [
    ("ids", "A tensor of `usize`."),
    ("lens", "Valid lengths: a tensor of `usize`."),
    ("bool", "A mask: a tensor of `bool`."),
];
const ITEMS: [(&str, &str); 2] = [
    (
        "param",
        "A learned tensor: `param name: [sizes] = initializer;`",
    ),
    (
        "data",
        "A tensor that the call passes: `data name: [axes];`, `ids[axes]`, `bool[axes]`.",
    ),
];
const AXES: [(&str, &str); 3] = [
    ("batch", "How many sequences there are."),
    ("q_len", "How many queries there are."),
    ("kv_len", "How many keys there are."),
];
const NAME: (&str, &str) = ("name", "The name of the layer: its field in the model.");
const TIED: (&str, &str) = (
    "tied",
    "The name of an embedding, whose table this layer reads.",
);

fn said(names: &[(&'static str, &'static str)]) -> impl Iterator<Item = Named> {
    names.iter().map(|(name, doc)| (*name, (*doc).to_owned()))
}

/// The keys that are in no table.
fn shared(operation: &Operation) -> impl Iterator<Item = Named> {
    said(if operation.may_be_tied {
        &[NAME, TIED]
    } else {
        &[NAME]
    })
}

fn key_of_lora(key: &lora::Key) -> Named {
    (key.name, format!("{} PEFT: `{}`.", key.doc, key.of_peft))
}

fn named_key(key: &Key) -> Named {
    (key.name, format!("{} Default: {}.", key.doc, key.default))
}

fn words(key: &'static Key) -> Vec<Named> {
    let named = |word: &Word| (word.name, format!("`{}`: {}", word.usage(), word.doc));
    match key.kind {
        KeyKind::Projections => said(&PROJECTIONS).collect(),
        _ => key.words().iter().map(named).collect(),
    }
}

const PROJECTIONS: [(&str, &str); 4] = [
    ("q", "The projection of queries."),
    ("k", "The projection of keys."),
    ("v", "The projection of values."),
    ("o", "The projection of the output."),
];

/// `pub mod name { /// doc \n pub const word: () = (); .. }`, without keywords of Rust.
fn module(name: &str, names: &[Named]) -> TokenStream {
    let name = format_ident!("{name}");
    let names = names.iter().filter(|(name, _)| is_name(name));
    let names = names.map(|(name, doc)| {
        let name = format_ident!("{name}");
        quote!(#[doc = #doc] pub const #name: () = ();)
    });
    quote!(pub mod #name { #(#names)* })
}
