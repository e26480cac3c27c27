//! Tests of `model!` from inside.

mod across_functions;
mod attend;
mod axes;
mod blocks;
mod budget;
mod buffers;
mod by_group;
mod conditions;
mod convolutions;
mod dots;
mod elsewhere;
mod fragments;
mod ids;
mod leaks;
mod lora;
mod losses;
mod mistakes;
mod names;
mod passes;
mod picture;
mod plan;
mod products;
mod property;
mod scans;
mod shapes;
mod shared;
mod size_mistakes;
mod snapshots;

mod unimplemented;

use proc_macro2::TokenStream;
use quote::quote;

use crate::diag::Diagnostics;
use crate::model::{self, graph::Model};
use crate::pipeline;

fn tokens(source: &str) -> TokenStream {
    let source: TokenStream = source.parse().expect("the test's text is made of tokens");
    quote!([::attn] #source)
}

fn expand(source: &str) -> syn::File {
    syn::parse2(pipeline::model(tokens(source))).expect("the macro emits items")
}

/// The graph of the only model in `source`, which has no mistake.
pub(crate) fn lower(source: &str) -> Model {
    lower_all(source).remove(0)
}

/// All of its functions.
fn lower_all(source: &str) -> Vec<Model> {
    let cx = Diagnostics::default();
    let mut declarations = model::parse(tokens(source), &cx);
    let draft = declarations.models.remove(0);
    let krate = declarations.krate;
    let mut models = model::lower(draft, &[], &krate, &cx);
    pipeline::fuse_models(&mut models);
    assert_eq!(cx.into_compile_errors().to_string(), "", "in {source}");
    models
}

/// A GPT that fits a page.
pub(in crate::tests) const GPT: &str = "
    /// GPT-style decoder.
    pub struct Gpt<vocab = 65, d_model = 384, heads = 6, layers = 6, max_len = 256>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, d_model, mask = causal>(layer_norm(x));
            x = x + feed_forward::<hidden = { 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<vocab, bias = false>(layer_norm(x))
    }
";
