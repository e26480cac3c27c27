//! The tables of the documentation: a row has as many cells as its header.

use proc_macro2::{TokenStream, TokenTree};

use super::support::{expand, parse_file, reports, tokens};
use crate::ops::OPERATIONS;
use crate::pipeline;
use crate::spec::body::{FUNCTIONS, FunctionKind};
use crate::spec::elsewhere::{NamePosition, aliases, forms, instead_of};
use crate::spec::keys::{KEYS, Key};

/// The documentation in `tokens`.
fn docs(tokens: TokenStream, found: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for part in tokens.windows(3) {
        if matches!(&part[0], TokenTree::Ident(name) if name == "doc")
            && let Ok(doc) = syn::parse2::<syn::LitStr>(part[2].clone().into())
        {
            found.push(doc.value());
        }
    }
    for token in tokens {
        if let TokenTree::Group(group) = token {
            docs(group.stream(), found);
        }
    }
}

/// The number of cells of a row. A `|` ends one, unless it is escaped, also in code.
fn cells(row: &str) -> usize {
    row.replace("\\|", "").matches('|').count() - 1
}

/// The rows of the tables in `page`. Each must have as many cells as the header.
fn rows(page: &str) -> usize {
    let mut width = None;
    let mut rows = 0;
    for line in page.lines() {
        if !line.starts_with('|') {
            width = None;
            continue;
        }
        let width = *width.get_or_insert(cells(line));
        assert_eq!(cells(line), width, "{line}");
        assert!(line.ends_with('|'), "{line}");
        rows += 1;
    }
    rows
}

#[test]
fn tables_of_keys_and_operations_are_complete() {
    let keys: TokenStream = crate::emit::tables::key_table();
    let keys: syn::LitStr = syn::parse2(keys).expect("a string");
    assert!(rows(&keys.value()) > 40, "{}", keys.value());
    assert!(rows(&crate::ops::table()) > 20);
    let keys: TokenStream = crate::emit::tables::attend_key_table();
    let keys: syn::LitStr = syn::parse2(keys).expect("a string");
    for key in crate::spec::keys::ATTEND_KEYS {
        assert!(keys.value().contains(&format!("| `{}` |", key.name)));
    }
}

#[test]
fn tables_of_a_layer_and_a_model_are_complete() {
    let layer = expand(
        "struct Either<heads = 2, d_model = { N | 1 }, mask = causal | padding> {
            /// As `|x|`.
            param slope: [heads] = ones;
            /// One |
            /// or the other.
            data far: [batch, kv_len];
            fn score(score, b, h, kv_idx) { score * slope[h] + far[b, kv_idx] }
        }",
    );
    let model = pipeline::model(tokens(
        "struct Either<d = { N | 1 }>;
        fn forward(x: [batch, d]) -> [batch, { N | 1 }] {
            let mut y = module::<Other<{ N | 1 }>, out = [batch, d]>(x);
            repeat 2 { y = linear::<{ N | 1 }>(y); }
            y
        }",
    ));
    for (output, least) in [(layer, 30), (model, 10)] {
        let mut found = Vec::new();
        docs(output, &mut found);
        let counts: usize = found.iter().map(|page| rows(page)).sum();
        assert!(counts >= least, "{counts} rows in {found:?}");
    }
}

/// The names of keys, of their words, and of the arguments of these.
fn names_of(keys: &'static [Key]) -> impl Iterator<Item = &'static str> {
    keys.iter().flat_map(|key| {
        let words = key.words().iter();
        let words = words.flat_map(|word| {
            [word.name]
                .into_iter()
                .chain(word.args.iter().map(|arg| arg.name))
        });
        [key.name].into_iter().chain(words)
    })
}

#[test]
fn a_name_from_elsewhere_is_none_of_the_language_and_leads_to_one() {
    let operations = || OPERATIONS.iter().map(|operation| operation.name);
    let functions = || FUNCTIONS.iter().map(|function| function.name);
    let words = names_of(KEYS).chain(
        OPERATIONS
            .iter()
            .flat_map(|operation| names_of(operation.keys)),
    );
    let words: Vec<&str> = words.chain(functions()).collect();
    let arguments: Vec<String> = FunctionKind::ALL
        .into_iter()
        .flat_map(FunctionKind::args)
        .collect();
    for (alias, name) in aliases() {
        let is_known = words.contains(&name) || arguments.iter().any(|arg| arg == name);
        assert!(is_known, "`{alias}` leads to `{name}`");
    }
    let mut seen = Vec::new();
    for (place, name) in forms() {
        let taken: Vec<&str> = match place {
            NamePosition::Key => KEYS.iter().map(|key| key.name).collect(),
            NamePosition::Operation => operations().collect(),
            NamePosition::Function => functions().collect(),
            NamePosition::Operand => {
                vec!["context", "values", "padding", "document", "position_ids"]
            }
        };
        assert!(
            !taken.contains(&name),
            "`{name}` is a {place:?} of the language"
        );
        assert!(
            !seen.contains(&(place, name)),
            "`{name}` stands twice as a {place:?}"
        );
        seen.push((place, name));
    }
}

/// The messages about `found` in each place where a name stands.
fn messages_about(found: &str) -> impl Iterator<Item = String> {
    let layer = |rest: String| expand(&format!("struct L<heads = 2, d_model = 4{rest}"));
    let model = |call: String| {
        let forward = format!("fn forward(x: [batch, d]) -> [batch, d] {{ {call} }}");
        pipeline::model(tokens(&format!("struct M<d = 4>; {forward}")))
    };
    let keyed = OPERATIONS
        .iter()
        .filter(|operation| !operation.keys.is_empty());
    let calls = keyed.map(move |operation| format!("{}::<{found} = 1>(x)", operation.name));
    let others = [
        format!("{found}(x)"),
        format!("attention::<2>(x, {found} = x)"),
    ];
    let calls = others.into_iter().chain(calls);
    let worded = KEYS.iter().filter(|key| !key.words().is_empty());
    let values = worded.map(move |key| format!(", {} = {found}>;", key.name));
    let layers = [
        format!(", {found} = 1>;"),
        format!("> {{ fn score(score) {{ {found}(score) }} }}"),
        format!("> {{ fn score(score) {{ score * {found} }} }}"),
        format!("> {{ fn mask({found}) {{ true }} }}"),
    ];
    let layers = layers.into_iter().chain(values);
    let outputs = calls.map(model).chain(layers.map(layer));
    let reports = outputs.flat_map(|output| reports(&parse_file(output)));
    reports.map(|report| report.message)
}

/// A row that no message reads would be of no use.
#[test]
fn every_name_from_elsewhere_is_answered_by_its_row() {
    for (place, name) in forms() {
        let write = instead_of(name, place).expect("it has a row");
        let is_said = |message: String| message.contains(write);
        assert!(messages_about(name).any(is_said), "{place:?} `{name}`");
    }
    for (alias, name) in aliases() {
        let is_meant = |message: String| {
            let help = message.split_once("did you mean `").map(|(_, help)| help);
            let meant = help.and_then(|help| help.split_once("`?"));
            meant.is_some_and(|(meant, _)| meant.split([' ', '(']).any(|part| part == name))
        };
        assert!(messages_about(alias).any(is_meant), "`{alias}`");
    }
}

/// The documentation of the facade is searched for the words of the language: these are values of keys, and no items.
#[test]
fn a_search_finds_the_words_of_the_language() {
    let facade = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/lib.rs");
    let facade = std::fs::read_to_string(facade).expect("the facade is beside this crate");
    let (_, attributes) = facade
        .split_once("attn_macros::key_table!()")
        .expect("the table is on the page of the macro");
    let (aliases, _) = attributes
        .split_once("macro_rules! attention")
        .expect("the facade has the macro");
    for key in ["mask", "score", "normalizer", "position"] {
        let key = Key::find(key).expect("a key");
        for word in key.words().iter().filter(|word| word.name != "none") {
            assert!(
                aliases.contains(&format!("\"{}\"", word.name)),
                "{}",
                word.name
            );
        }
    }
}
