//! Expansions of some models for readers: a small one in full, and the relevant parts of others.

use super::{GPT, expand};
use crate::tests::support::parts;
use quote::ToTokens;

fn expansion(source: &str) -> String {
    without_drawings(prettyplease::unparse(&expand(source)))
}

/// Other tests check the drawings.
fn without_drawings(mut text: String) -> String {
    while let Some((before, drawing)) = text.split_once("<svg ") {
        let (_, after) = drawing.split_once("</svg>").expect("a drawing ends");
        text = format!("{before}(a drawing){after}");
    }
    text
}

/// The two passes only.
fn passes(source: &str) -> String {
    let text = expansion(source);
    let (_, text) = text
        .split_once("/// The forward pass, operation by operation.")
        .expect("a forward pass");
    let (forward, backward) = text
        .split_once("/// The derivative, operation by operation")
        .expect("a backward pass");
    let (backward, _) = backward
        .split_once("\n        }\n")
        .expect("the function ends");
    format!("{forward}{backward}")
}

/// Dropout that is fused with its neighbours.
#[test]
fn dropout_beside_its_neighbours() {
    insta::assert_snapshot!(passes(
        "struct Residual<vocab = 9, d_model = 8>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d_model] {
            let mut x = dropout::<0.1>(embedding::<vocab, d_model>(tokens) + sinusoidal_position::<d_model>(tokens));
            repeat 2, name = blocks {
                x = x + dropout::<0.2>(linear::<d_model>(layer_norm(x)));
                x = x + dropout::<0.3>(linear::<d_model>(dropout::<0.4>(gelu(layer_norm(x)))));
            }
            dropout::<0.5>(linear::<d_model>(x)) * x
        }"
    ));
}

/// The whole expansion of a small model.
#[test]
fn residual() {
    insta::assert_snapshot!(expansion(
        "struct Residual<d_model = 8>;
        fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
            let mut x = x;
            repeat 2 { x = x + linear::<d_model>(layer_norm(x)); }
            x
        }"
    ));
}

#[test]
fn the_page_names_hidden_layers_that_are_rounded() {
    let page = |value: &str| {
        expansion(&format!(
            "struct M<d = 8>; fn forward(x: [n, d]) -> [n, d] {{ {value} }}"
        ))
    };
    let named = "In `feed_forward`, the hidden layer reads";
    assert!(page("feed_forward::<16>(x)").contains(named));
    assert!(!page("linear::<d>(x)").contains("the hidden layer"));
}

/// The order of operations in a loop, whose memory is reused.
#[test]
fn gpt() {
    insta::assert_snapshot!(passes(GPT));
}

/// The expansion does not grow with the rounds of a loop: for two numbers of rounds only the number differs.
#[test]
fn the_code_of_many_rounds_is_that_of_one() {
    let of = |layers: &str| {
        let source = GPT.replace("layers = 6", &format!("layers = {layers}"));
        without_drawings(expand(&source).to_token_stream().to_string())
    };
    let few = of("2");
    let many = of("96");
    assert_ne!(few, many);
    assert_eq!(few, many.replace("96", "2"));
}

/// The chain of operations, the only form of a model with modules, and the types of the modules.
#[test]
fn opaque_modules() {
    let source = "struct Mixed<d_model = 8, hidden = { 2 * N }>;
        fn forward(x: [batch, seq, d_model], lens: lens[batch]) -> [batch, 3] {
            let mut x = x;
            repeat 4 {
                x = x + module::<Padded, out = [batch, seq, d_model], name = attn>(layer_norm(x), lens);
            }
            repeat 2, share = true, name = again {
                x = module::<(Linear<d_model, hidden>, ReLU, Linear<hidden, 8>), out = [batch, seq, d_model]>(x);
            }
            linear::<3>(mean_pool(x))
        }";
    let names = ["Mixed", "MixedBlocks", "MixedAgain", "run_graph"];
    insta::assert_snapshot!(prettyplease::unparse(&parts(expand(source), &names)));
}

/// Values that two results read, and a round whose gradients are accumulated.
#[test]
fn encoder_with_two_inputs_and_a_shared_round() {
    insta::assert_snapshot!(passes(
        "struct Encoder<vocab = 9, d_model = 8>;
        fn forward(tokens: ids[batch, seq], lens: lens[batch]) -> ([batch, d_model], [batch, seq, vocab]) {
            let mut x = embedding::<vocab, d_model, name = tokens>(tokens) * 2 + sinusoidal_position::<d_model>(tokens);
            repeat 4, share = true {
                x = layer_norm(x + attention::<2, d_model, mask = padding>(x, padding = lens));
            }
            (mean_pool(x, lens), linear::<tied = tokens>(x))
        }"
    ));
}

/// How the fields of a struct are visited: those with another initial distribution, and those without.
#[test]
fn initial_distributions() {
    let text = expansion(
        "struct Tied<vocab = 9, d_model = 8>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d_model, init = normal(0.02)>(tokens)
                + learned_position::<4, d_model, init = normal(std = { DEVIATION / 2.0 })>(tokens);
            let x = feed_forward::<16, init = xavier_uniform>(x) + linear::<d_model, init = kaiming_uniform>(layer_norm(x));
            linear::<tied = embedding>(x)
        }",
    );
    let (_, visited) = text.split_once("::visit_fields(").expect("a visit");
    let (visited, _) = visited.split_once("|(").expect("what is built of it");
    insta::assert_snapshot!(visited);
}

/// A norm that is written by hand: strips of rows, forward and backward.
#[test]
fn norm_by_hand() {
    insta::assert_snapshot!(passes(
        "struct Norm<d_model = 8>;
        fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
            param gain: [d_model] = ones;
            x / sqrt(mean::<d_model>(x * x) + 1e-6) * gain
        }"
    ));
}
