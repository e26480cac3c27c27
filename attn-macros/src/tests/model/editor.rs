//! What editors are told: the names of the language where the user wrote them.

use std::collections::BTreeSet;

use quote::ToTokens;

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

#[test]
fn every_name_of_a_model_is_documented() {
    let rest = "
        struct Rest<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = feed_forward::<hidden = 8, activation = swiglu, name = a>(layer_norm::<epsilon = 0.1>(x));
            let z = attention::<heads = 2, mask = causal & sliding_window(3), position = rope, bias = [q, k]>(y);
            linear::<out = d, bias = false>(dropout::<p = 0.5>(z)) + module::<ReLU, out = [batch, seq, d]>(x)
        }";
    let cx = Diagnostics::default();
    for source in [GPT, rest] {
        let (krate, drafts) = model::parse(tokens(source), &cx);
        for draft in drafts {
            model::lower(draft, &krate, &cx);
        }
    }
    assert_eq!(cx.count(), 0);
    let file: syn::File = syn::parse2(key_items()).expect("items");
    let mut known = BTreeSet::new();
    paths(&file.items, "", &mut known);
    let mentions = cx.mentions();
    let mentioned: BTreeSet<String> = mentions
        .iter()
        .map(|path| path.to_token_stream().to_string().replace(' ', ""))
        .collect();
    let unknown: Vec<_> = mentioned.difference(&known).collect();
    assert_eq!(unknown, Vec::<&String>::new());
    for name in [
        "heads",
        "mask::causal",
        "position::rope",
        "activation::swiglu",
        "model::attention",
        "model::feed_forward::activation",
        "model::linear::bias",
        "model::dropout::p",
        "model::module::out",
    ] {
        assert!(mentioned.contains(name), "{name}: {mentioned:?}");
    }
}
