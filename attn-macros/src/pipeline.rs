//! The whole story of an expansion.

use proc_macro2::TokenStream;

use crate::{comments, depth, diag::Diagnostics, emit, graph, model as network, spec};

/// Expands the specs in `input`. Whatever the tokens, this returns: mistakes are collected on the way, reported together,
/// and the item is emitted all the same, so that its users do not turn red as well.
pub(crate) fn attention(input: TokenStream) -> TokenStream {
    let cx = Diagnostics::default();
    let mut output = TokenStream::new();
    let input = comments::remove(depth::limit(input, &cx), &cx);
    let (krate, specs) = spec::parse(input, &cx);
    for draft in specs {
        let spec = spec::check(draft, &krate, &cx);
        let graph = graph::build(&spec);
        output.extend(emit::layer(&krate, &spec, &graph, emit::Caller::User));
    }
    finish(output, &krate, cx)
}

/// Expands the models in `input`, in the same way.
pub(crate) fn model(input: TokenStream) -> TokenStream {
    let cx = Diagnostics::default();
    let mut output = TokenStream::new();
    let input = comments::remove(depth::limit(input, &cx), &cx);
    let (krate, drafts) = network::parse(input, &cx);
    let types = drafts.iter().map(|draft| draft.item.name.to_string());
    let mut types: Vec<String> = types.collect();
    for draft in drafts {
        let model = network::lower(draft, &types, &krate, &cx);
        types.extend(model.types());
        output.extend(network::emit::model(&krate, &model));
    }
    finish(output, &krate, cx)
}

/// The items, the names for editors and the errors. Where there are no items, as the macro may stand in place of an expression or
/// of a type, the errors alone.
fn finish(mut output: TokenStream, krate: &TokenStream, cx: Diagnostics) -> TokenStream {
    if !output.is_empty() {
        output.extend(emit::ide::emit(krate, &cx.mentions()));
    }
    output.extend(cx.into_compile_errors());
    output
}
