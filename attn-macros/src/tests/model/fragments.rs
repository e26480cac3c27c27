//! Declarations that a macro of the user puts together of what it matched.

use proc_macro2::{Delimiter, Group, TokenStream};
use quote::{ToTokens, quote};

use crate::pipeline;
use crate::tests::support::{parse_file, reports};

/// A fragment, as `macro_rules!` hands it on.
fn fragment(tokens: TokenStream) -> Group {
    Group::new(Delimiter::None, tokens)
}

#[test]
fn a_macro_can_hand_on_every_part_of_a_declaration() {
    let meta = fragment(quote!(doc = "A model."));
    let vis = fragment(quote!(pub(crate)));
    let name = fragment(quote!(M));
    let size = fragment(quote!(4 * 2));
    let ty = fragment(quote!(layers::Square));
    let output = pipeline::model(quote! {
        [::attn] #[#meta] #vis struct #name<d = #size>;
        fn forward(x: [batch, d]) -> [batch, d] { module::<#ty, out = [batch, 8]>(x) }
    });
    assert!(output.to_string().contains("= layers :: Square ;"));
    let file = parse_file(output);
    assert_eq!(reports(&file).len(), 0);
    let model = file.items.iter().find_map(|item| match item {
        syn::Item::Struct(item) if item.ident == "M" => Some(item),
        _ => None,
    });
    let model = model.expect("the struct of the model");
    assert!(matches!(model.vis, syn::Visibility::Restricted(_)));
    let attributes = model.attrs.iter().map(ToTokens::to_token_stream);
    let attributes: TokenStream = attributes.collect();
    assert!(attributes.to_string().contains("A model."));
}

#[test]
fn a_visibility_may_be_empty() {
    let vis = fragment(TokenStream::new());
    let output = pipeline::model(quote! {
        [::attn] #vis struct M<d = 8>;
        fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }
    });
    assert_eq!(reports(&parse_file(output)).len(), 0);
}

#[test]
fn values_and_masks_are_put_together_of_fragments() {
    let value = fragment(quote!(gelu(x) + 1));
    let mask = fragment(quote!(causal & sliding_window(3)));
    let choice = fragment(quote!(if d > 4 { causal } else { none }));
    let output = pipeline::model(quote! {
        [::attn] struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = #value * 2;
            let z = attention::<2, mask = #mask>(x) + attention::<2, mask = #choice>(y);
            #value + z
        }
    });
    let reports = reports(&parse_file(output));
    let messages: Vec<_> = reports.iter().map(|report| &report.message).collect();
    assert!(messages.is_empty(), "{messages:?}");
}
