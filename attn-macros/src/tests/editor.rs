//! The expansion for editors: the names of a declaration, their positions, and the names that are possible there.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream};
use proptest::prelude::*;
use quote::{ToTokens, quote};

use super::model::GPT;
use super::random::trees::{self, Soup};
use super::random::words;
use super::support::cases;
use crate::{editor, pipeline};

/// The first part of an expansion for an editor.
struct Told {
    /// Every written name, as a path.
    paths: Vec<String>,
    /// The names of each module, by its path.
    modules: BTreeMap<String, BTreeSet<String>>,
}

impl Told {
    fn of(output: TokenStream) -> Self {
        let file: syn::File = syn::parse2(output).expect("items");
        let items = syn::parse2::<syn::File>(editor::items()).expect("items");
        let mut modules = BTreeMap::new();
        enter("::attn::__private::keys", &items.items, &mut modules);
        let mut paths = Vec::new();
        for item in file.items.into_iter().flat_map(block) {
            match item {
                syn::Item::Fn(function) if function.sig.ident == "mentioned" => {
                    paths.extend(function.block.stmts.iter().map(path_of));
                }
                syn::Item::Mod(names) if names.ident == "names" => {
                    let (_, items) = names.content.expect("braces");
                    enter("names", &items, &mut modules);
                }
                _ => {}
            }
        }
        Told { paths, modules }
    }

    /// The paths that do not resolve.
    fn lost(&self) -> Vec<&String> {
        let is_there = |path: &&String| {
            let (module, name) = path.rsplit_once("::").expect("a path");
            let names = self.modules.get(module);
            names.is_some_and(|names| name == "nothing" || names.contains(name))
        };
        self.paths.iter().filter(|path| !is_there(path)).collect()
    }

    fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|told| told.ends_with(path))
    }
}

/// The items in the block of a constant.
fn block(item: syn::Item) -> impl Iterator<Item = syn::Item> {
    let block = match item {
        syn::Item::Const(item) => match *item.expr {
            syn::Expr::Block(block) => block.block.stmts,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    block.into_iter().filter_map(|stmt| match stmt {
        syn::Stmt::Item(item) => Some(item),
        _ => None,
    })
}

fn path_of(stmt: &syn::Stmt) -> String {
    let text = stmt.to_token_stream().to_string();
    text.replace([' ', ';'], "")
}

/// The names in `items`: constants, and those of imported modules.
fn enter(path: &str, items: &[syn::Item], modules: &mut BTreeMap<String, BTreeSet<String>>) {
    let mut names = BTreeSet::new();
    for item in items {
        match item {
            syn::Item::Const(item) => drop(names.insert(item.ident.to_string())),
            syn::Item::Mod(module) => {
                let path = format!("{path}::{}", module.ident);
                let (_, items) = module.content.as_ref().expect("braces");
                enter(&path, items, modules);
            }
            syn::Item::Use(import) => {
                let from = import.to_token_stream().to_string();
                if !from.contains('*') {
                    // Of two names, which `*` imports, too.
                    continue;
                }
                let from = from.replace([' ', ';', '*'], "");
                let from = from.trim_start_matches("pubuse").trim_end_matches("::");
                let from = from.replace("super::", "names::");
                names.extend(modules.get(&from).into_iter().flatten().cloned());
            }
            _ => {}
        }
    }
    modules.insert(path.to_owned(), names);
}

fn layer(source: &str) -> Told {
    let source: TokenStream = source.parse().expect("tokens");
    Told::of(pipeline::attention(quote!([editor ::attn] #source)))
}

fn model(source: &str) -> Told {
    let source: TokenStream = source.parse().expect("tokens");
    Told::of(pipeline::model(quote!([editor ::attn] #source)))
}

const REST: &str = "
    struct Rest<d = 8>;
    fn forward(x: [batch, seq, d], keep: bool[batch, seq]) -> [batch, seq, d] {
        let y = feed_forward::<hidden = 8, activation = swiglu, name = a, init = normal(std = 0.02)>(layer_norm::<epsilon = 0.1>(x));
        let z = attention::<heads = 2, mask = causal & sliding_window(3) & padding, position = rope, bias = [q, k]>(y, padding = keep) {
            param slope: [heads] = alibi_slopes;
            fn score(score, h, q_idx) { let far = slope[h]; score - far * q_idx as f32 }
        };
        param table: [4, d] = truncated_normal(std = 0.02);
        param bound: [] = WIDTH;
        let (left, right) = split::<axis = d>(z[seq = 0, d = 1..FIRST]);
        let ids = argmax::<axis = seq>(z);
        let (values, order) = top_k::<axis = seq, k = 2>(z[seq = ids] + z[d = [0, 1]][seq = 0]);
        let z = detach(z) + values[seq = 0] * one_hot::<count = d>(order)[seq = 0] + table[order][seq = argmax::<seq>(z)];
        let z = z + sum::<[batch, seq]>(z) * concat::<d>(left, right) - mean::<seq>(z) + bound * table[4 = -1];
        let z = einsum::<axes = [batch, seq, d]>(z as [batch, kv = seq, d], einsum::<[batch, seq, kv]>(z, z as [batch, kv = seq, d]));
        let z = rearrange::<[batch, (steps, 2), d] -> [rows = (batch, steps), { 2 * WIDTH }, d]>(pad::<seq, before = 1, to = longer>(z));
        let z = stack::<axis = [rows, kinds, d]>(shift::<longer, -1>(z), windows::<rows, 3, step = 2, to = n>(z)) + z[n = 1..];
        linear::<out = d, bias = false>(dropout::<p = 0.5>(z)) + module::<ReLU, out = [batch, seq, d]>(x)
    }";

const BLOCKS: &str = "
    struct Blocks<d = 8, rounds = 2>;
    block mlp(x: [.., n], ids: ids[batch], hidden, out = { 2 * n }) -> ([.., out], [.., n]) {
        param gain: [n] = 0.5;
        let y = gain * x + embedding::<4, n>(ids);
        (linear::<out>(linear::<hidden>(y)), y)
    }
    fn forward(x: [batch, d], ids: ids[batch]) -> [batch, d] {
        let mut y = x;
        repeat rounds {
            let (z, w) = mlp::<d, out = d, name = a>(y, ids);
            y += last(z) + w;
        }
        last(y)
    }
    block last(x: [..]) -> [..] { gelu(x) }";

const SCANS: &str = "
    struct Scans<d = 8, step = 1>;
    fn forward(x: [batch, seq, d], lens: lens[batch]) -> ([batch, seq, d], [batch, d]) {
        let y = conv1d::<axis = seq, out = d, kernel = 3, padding = causal, dilation = step>(learned_position::<max_len = 9>(x));
        let (y, end) = scan seq, reverse = true {
            state h: [batch, d] = 0.5 * max_pool(y, lens);
            state c: [batch, d] = 0.0;
            let gate = sigmoid(linear::<d, name = gate>(h) + y);
            c += gate * x;
            h = tanh(c);
            yield h * gate;
            c
        };
        let mut last = end;
        repeat 2 { last = scan seq { state h: [batch, d] = last; h = h + y; h }; }
        let q = rearrange::<[batch, seq, (places, step)] -> [batch, seq, places, step]>(rope::<axis = seq, theta = 100.0, interleaved = true>(y));
        let _ = conv2d::<[seq, d], 4, 3, padding = same, stride = [step, 2], channels = batch>(x);
        let y = attend::<mask = padding, heads = places>(q, q, q, padding = lens) { fn score(score, q_row) { score + dot(q + y, last[q_row]) } };
        scan seq { yield y; last }
    }";

#[test]
fn every_name_of_a_scan_is_documented() {
    let told = model(SCANS);
    assert_eq!(told.lost(), Vec::<&String>::new());
    for path in [
        "operations::scan",
        "scan::reverse",
        "statements_of_scan::state",
        "keywords::yield_",
        "::causal",
        "operands::attend::padding",
        "attend::heads",
        "rope::interleaved",
        "arguments_of_score::q_row",
        "conv2d::channels",
        "::gate",
        "::h",
        "::c",
    ] {
        assert!(told.has(path), "{path}: {:?}", told.paths);
    }
}

#[test]
fn every_name_of_a_model_is_documented() {
    for source in [GPT, REST] {
        let told = model(source);
        assert_eq!(told.lost(), Vec::<&String>::new());
    }
    let told = model(REST);
    for path in [
        "attention::heads",
        "words::mask::causal",
        "words::position::rope",
        "words::bias::q",
        "words::activation::swiglu",
        "words::init::normal",
        "words::initializer::alibi_slopes",
        "arguments::init::normal::std",
        "arguments_of_score::q_idx",
        "operations::attention",
        "operands::attention::padding",
        "kinds::bool",
        "feed_forward::activation",
        "linear::bias",
        "dropout::p",
        "module::out",
        "operations::param",
        "operations::split",
        "split::axis",
        "::steps",
        "::rows",
        "::longer",
        "::kinds",
        "::n",
        "pad::before",
        "shift::by",
        "windows::size",
        "words::init::truncated_normal",
        "arguments::init::truncated_normal::std",
        "::table",
        "::left",
        "::ids",
        "::order",
        "operations::argmax",
        "top_k::k",
        "one_hot::count",
        "::right",
        "items::param",
        "::slope",
        "::far",
        "::seq",
        "::z",
    ] {
        assert!(told.has(path), "{path}: {:?}", told.paths);
    }
}

#[test]
fn every_name_of_a_block_is_documented() {
    let told = model(
        "struct Blocks<d = 8>;
        block mlp(x: [.., width], tokens: ids[batch], hidden, depth = { 2 * width }) -> [.., width] {
            let inner = linear::<hidden>(x) + linear::<depth>(x) + embedding::<width, hidden>(tokens);
            later(linear::<width>(inner))
        }
        fn forward(x: [batch, seq, d], keep: bool[batch, seq]) -> [batch, seq, d] {
            mlp::<4>(mlp::<hidden = d, name = first>(x))
        }
        fn encode(x: [batch, seq, d]) -> { code: [batch, seq, d], pooled: [batch, d] } {
            { pooled: mean::<seq>(x), code: linear::<d>(x) }
        }
        fn score(z: [batch, seq, d], lens: lens[batch] = seq) -> [batch, seq, d] { let { code: read, .. } = encode(later(z)); mean_pool(read, lens) + read }
        block later(x: [..]) -> [..] { gelu(x) }",
    );
    assert_eq!(told.lost(), Vec::<&String>::new());
    for path in [
        "operations::block",
        "::mlp",
        "::later",
        "::hidden",
        "::width",
        "::inner",
        "::depth",
        "kinds::ids",
        "::batch",
    ] {
        assert!(told.has(path), "{path}: {:?}", told.paths);
    }
    let names = |name: &str| {
        told.paths
            .iter()
            .filter(|path| path.ends_with(&format!("::{name}")))
            .count()
    };
    // Each call by its name, and the number by position under the key that it is.
    assert_eq!([names("mlp"), names("later"), names("name")], [2, 2, 1]);
    assert_eq!([names("encode"), names("z"), names("read")], [1, 1, 2]);
    assert_eq!(names("hidden"), 4);
}

#[test]
fn every_name_of_a_layer_is_documented() {
    let told = layer(
        "/// As it is.
        pub struct Layer<heads = HEADS, d_model = 8, mask = !(chunked(3) | document), score = additive(hidden = 4),
            ensure = { document }, qk_norm = rms> {
            data kinds: ids[batch, kv_len];
            fn mask(b, q_idx, kv_idx) { kinds[b, kv_idx] > heads && q_idx > WIDTH as i64 }
        }",
    );
    assert_eq!(told.lost(), Vec::<&String>::new());
    for path in [
        "layer::heads",
        "words::mask::document",
        "axes::kv_len",
        "::kinds",
    ] {
        assert!(told.has(path), "{path}: {:?}", told.paths);
    }
    assert!(!told.has("HEADS") && !told.has("WIDTH"));
}

#[test]
fn a_key_without_its_name_is_documented_where_its_number_stands() {
    let told = model(
        "struct Positional<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 4] {
            linear::<4>(dropout::<0.5>(attention::<2, d>(feed_forward::<d>(x))))
        }",
    );
    for path in ["attention::heads", "linear::out", "dropout::p"] {
        assert!(told.has(path), "{path}: {:?}", told.paths);
    }
    for path in ["::d_model", "::hidden"] {
        assert!(!told.has(path), "{path}: {:?}", told.paths);
    }
}

#[test]
fn expansions_for_rustc_have_no_editor_names() {
    let source: TokenStream = REST.parse().expect("tokens");
    let [rustc, editor] = [quote!([::attn]), quote!([editor::attn])]
        .map(|path| pipeline::model(quote!(#path #source)).to_string());
    assert!(!rustc.contains("mentioned") && !rustc.contains("rust_analyzer"));
    assert!(editor.ends_with(&rustc), "the rest of it is the same");
}

/// For any tokens, the names for an editor are items, and the rest of the expansion is that for rustc.
fn check(soup: &[Soup], head: &str, expand: fn(TokenStream) -> TokenStream) {
    let text = format!("{head} {}", trees::to_text(soup));
    let tokens = trees::to_tokens(&text);
    let rustc = expand(quote!([::attn] #tokens)).to_string();
    let editor = expand(quote!([editor ::attn] #tokens));
    assert!(editor.to_string().ends_with(&rustc), "in {text}");
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn token_soup_in_a_layer_is_walked(soup in trees::soups(&words::attention())) {
        check(&soup, "struct Layer<", pipeline::attention);
    }

    #[test]
    fn token_soup_in_a_body_is_walked(soup in trees::soups(&words::attention())) {
        let body = [Soup::Group(Delimiter::Brace, soup)];
        check(&body, "struct Layer<heads = 2, d_model = 8>", pipeline::attention);
    }

    #[test]
    fn token_soup_in_a_model_is_walked(soup in trees::soups(&words::model())) {
        let statements = [Soup::Group(Delimiter::Brace, soup)];
        check(&statements, "struct Model<d = 8>; fn forward(x: [batch, d]) -> [batch, d]", pipeline::model);
    }

    #[test]
    fn token_soup_in_a_block_is_walked(soup in trees::soups(&words::model())) {
        let [signature, body] = [Delimiter::Parenthesis, Delimiter::Brace].map(|delimiter| [Soup::Group(delimiter, soup.clone())]);
        let text = format!("{} -> [.., d] {}", trees::to_text(&signature), trees::to_text(&body));
        check(&body, &format!("struct Model<d = 8>; block b{text} fn forward(x: [batch, d]) -> [batch, d]"), pipeline::model);
    }

    #[test]
    fn mistakes_in_blocks_are_walked(mistakes in trees::mistakes(&words::model())) {
        check(&trees::mistaken(BLOCKS, &mistakes), "", pipeline::model);
    }

    #[test]
    fn mistakes_in_a_model_are_walked(mistakes in trees::mistakes(&words::model())) {
        check(&trees::mistaken(REST, &mistakes), "", pipeline::model);
    }

    #[test]
    fn mistakes_in_scans_are_walked(mistakes in trees::mistakes(&words::model())) {
        check(&trees::mistaken(SCANS, &mistakes), "", pipeline::model);
    }
}
