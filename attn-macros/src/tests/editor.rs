//! What editors are told: the names of the language where the user wrote them.

use std::collections::BTreeSet;

use super::{GPT, tokens};
use crate::diag::Diagnostics;
use crate::emit::ide::key_items;
use crate::model;

/// The paths of the modules that have a `KEY`.
fn paths(items: &[syn::Item], before: &str, found: &mut BTreeSet<String>) {
    for item in items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        let path = format!("{before}{}", module.ident);
        let inner = module.content.iter().flat_map(|(_, items)| items);
        let inner: Vec<_> = inner.cloned().collect();
        if inner.iter().any(|item| matches!(item, syn::Item::Const(_))) {
            found.insert(path.clone());
        }
        paths(&inner, &format!("{path}::"), found);
    }
}

/// The paths that editors are told of these declarations.
fn mentioned(sources: &[&str]) -> BTreeSet<String> {
    let cx = Diagnostics::default();
    for source in sources {
        let (krate, drafts) = model::parse(tokens(source), &cx);
        for draft in drafts {
            model::lower(draft, &[], &krate, &cx);
        }
    }
    assert_eq!(cx.count(), 0);
    let mentions = cx.mentions().into_iter();
    mentions
        .map(|path| path.to_string().replace(' ', ""))
        .collect()
}

#[test]
fn a_key_without_its_name_is_documented_where_its_number_stands() {
    let found = mentioned(&["
        struct Positional<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 4] {
            linear::<4>(dropout::<0.5>(attention::<2, d>(feed_forward::<d>(x))))
        }"]);
    for name in ["heads", "model::linear::out", "model::dropout::p"] {
        assert!(found.contains(name), "{name}: {found:?}");
    }
    for name in ["d_model", "model::feed_forward::hidden"] {
        assert!(!found.contains(name), "{name}: {found:?}");
    }
}

#[test]
fn every_name_of_a_model_is_documented() {
    let rest = "
        struct Rest<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = feed_forward::<hidden = 8, activation = swiglu, name = a, init = normal(std = 0.02)>(layer_norm::<epsilon = 0.1>(x));
            let z = attention::<heads = 2, mask = causal & sliding_window(3), position = rope, bias = [q, k]>(y);
            linear::<out = d, bias = false>(dropout::<p = 0.5>(z)) + module::<ReLU, out = [batch, seq, d]>(x)
        }";
    let file: syn::File = syn::parse2(key_items()).expect("items");
    let mut known = BTreeSet::new();
    paths(&file.items, "", &mut known);
    let mentioned = mentioned(&[GPT, rest]);
    let unknown: Vec<_> = mentioned.difference(&known).collect();
    assert_eq!(unknown, Vec::<&String>::new());
    for name in [
        "heads",
        "mask::causal",
        "position::rope",
        "activation::swiglu",
        "model::attention",
        "init::normal",
        "model::feed_forward::activation",
        "model::feed_forward::init",
        "model::linear::bias",
        "model::dropout::p",
        "model::module::out",
    ] {
        assert!(mentioned.contains(name), "{name}: {mentioned:?}");
    }
}
