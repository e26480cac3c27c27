//! For any tokens, the macro emits items, and mistakes are reported at the user's own tokens.

use proptest::prelude::*;
use quote::quote;

use super::GPT;
use crate::pipeline;
use crate::tests::random::{trees, words};
use crate::tests::support::{cases, reports};

/// A model of modules that only rustc can check.
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

/// A model out of blocks.
const BLOCKS: &str = "
    struct Blocks<d_model = 8, layers = 2>;
    block mlp(x: [.., d_model], hidden, out = { 2 * hidden }) -> ([.., d_model], [.., out]) {
        let y = linear::<hidden>(x);
        (gelu(linear::<d_model>(y)), linear::<out>(y))
    }
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let mut x = x;
        repeat layers { let (y, _z) = mlp::<4>(layer_norm(x)); x += last::<name = end>(y); }
        x
    }
    /// It has no parameters.
    block last(x: [..]) -> [..] { x * sigmoid(x) }
";

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn mistakes_in_a_model_are_answered(
        source in prop::sample::select(vec![GPT, OPAQUE, BLOCKS]),
        mistakes in trees::mistakes(&words::model()),
    ) {
        let text = trees::to_text(&trees::mistaken(source, &mistakes));
        let tokens = trees::to_tokens(&text);
        let output = pipeline::model(quote!([::attn] #tokens));
        let file: syn::File = syn::parse2(output).expect("the macro emits items");
        for report in reports(&file) {
            prop_assert!(!report.message.is_empty());
            prop_assert!(report.at.is_some(), "{} nowhere in {text}", report.message);
        }
    }
}
