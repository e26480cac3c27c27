//! Whatever the tokens, the macro answers with items, and what is wrong is said at the user's own tokens.

use proc_macro2::{TokenStream, TokenTree};
use proptest::prelude::*;
use quote::quote;

use super::GPT;
use crate::pipeline;
use crate::tests::support::{cases, reports};

/// All that models are written with, and some more.
const WORDS: &str = "tokens x y d_model heads layers 0 1 65 0.5 \"a\" 'a + - * / = += ; , : :: < > -> ( [ { let mut repeat fn \
    struct attention linear embedding layer_norm ids lens bool batch seq mask causal padding name tied init normal share true module out Linear ReLU # ! & |";

/// A model of modules that only rustc knows.
const OPAQUE: &str = "
    struct Opaque<d_model = 8, hidden = N>;

    fn forward(x: [batch, seq, d_model], lens: lens[batch]) -> [batch, seq, d_model] {
        let mut x = module::<Padded, out = [batch, seq, d_model]>(x, lens);
        repeat 2, share = true {
            x = x + module::<(Linear<d_model, hidden>, ReLU, Linear<hidden, 8>), out = [batch, seq, 8], name = a>(x);
        }
        module::<Repeated<Linear<8, 8>, 2>, out = [batch, seq, 8]>(relu(x))
    }
";

#[derive(Clone, Debug)]
enum Change {
    Remove,
    Double,
    Swap,
    Replace(usize),
}

fn change() -> impl Strategy<Value = (usize, Change)> {
    let kinds = prop_oneof![
        Just(Change::Remove),
        Just(Change::Double),
        Just(Change::Swap),
        (0..200usize).prop_map(Change::Replace),
    ];
    (0..400usize, kinds)
}

/// The tokens at every depth, changed where `changes` say, by their number.
fn changed(tokens: TokenStream, changes: &[(usize, Change)], number: &mut usize) -> TokenStream {
    let mut result: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let here = *number;
        *number += 1;
        let token = match token {
            TokenTree::Group(group) => {
                let inner = changed(group.stream(), changes, number);
                TokenTree::Group(proc_macro2::Group::new(group.delimiter(), inner))
            }
            other => other,
        };
        match changes.iter().find(|(at, _)| *at == here) {
            None => result.push(token),
            Some((_, Change::Remove)) => {}
            Some((_, Change::Double)) => result.extend([token.clone(), token]),
            Some((_, Change::Swap)) => {
                let before = result.pop();
                result.push(token);
                result.extend(before);
            }
            Some((_, Change::Replace(word))) => {
                let words: Vec<_> = WORDS.split_whitespace().collect();
                let word: Result<TokenStream, _> = words[word % words.len()].parse();
                result.extend(word.unwrap_or_default());
            }
        }
    }
    result.into_iter().collect()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_changed_model_is_answered(
        source in prop::sample::select(vec![GPT, OPAQUE]),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let source: TokenStream = source.parse().expect("tokens");
        let tokens = changed(source, &changes, &mut 0);
        // From text again, so that tokens have places.
        let text = tokens.to_string();
        // A quote that lost its lifetime is no token.
        let tokens: Result<TokenStream, _> = text.parse();
        prop_assume!(tokens.is_ok());
        let tokens = tokens.unwrap_or_default();
        let output = pipeline::model(quote!([::attn] #tokens));
        let file: syn::File = syn::parse2(output).expect("the macro emits items");
        for report in reports(&file) {
            prop_assert!(!report.message.is_empty());
            prop_assert!(report.at.is_some(), "{} nowhere in {text}", report.message);
        }
    }
}
