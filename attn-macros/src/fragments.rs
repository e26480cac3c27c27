//! Fragments of `macro_rules!`: what `$name:kind` matched arrives in an invisible group, which no parser expects.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::Expr;

/// The tokens of `attention!` without such groups. A body is left as it is, since syn parses it.
pub(crate) fn of_layers(tokens: TokenStream) -> TokenStream {
    let notation = Notation {
        around: Delimiter::Parenthesis,
        keeps_bodies: true,
    };
    notation.visible(tokens, false)
}

/// The same of `model!`, where a constant of several tokens stands in braces.
pub(crate) fn of_models(tokens: TokenStream) -> TokenStream {
    let notation = Notation {
        around: Delimiter::Brace,
        keeps_bodies: false,
    };
    notation.visible(tokens, false)
}

/// How a macro reads fragments.
#[derive(Clone, Copy)]
struct Notation {
    /// Around an expression of several tokens: no operator beside it reaches into it.
    around: Delimiter,
    keeps_bodies: bool,
}

impl Notation {
    fn visible(self, tokens: TokenStream, in_attribute: bool) -> TokenStream {
        let mut sign = None;
        let mut flat = TokenStream::new();
        for token in tokens {
            let before = sign.take();
            match token {
                TokenTree::Group(group) => flat.extend(self.group(group, before, in_attribute)),
                token => {
                    if let TokenTree::Punct(punct) = &token {
                        sign = Some(punct.as_char());
                    }
                    flat.extend([token]);
                }
            }
        }
        flat
    }

    /// A group behind the sign `before`, if there is one.
    fn group(self, group: Group, before: Option<char>, in_attribute: bool) -> TokenStream {
        let in_attribute = match group.delimiter() {
            Delimiter::None => return self.fragment(&group, in_attribute),
            Delimiter::Brace if self.keeps_bodies && before == Some('>') => {
                return TokenTree::from(group).into();
            }
            Delimiter::Bracket if before == Some('#') => true,
            _ => in_attribute,
        };
        let inner = self.visible(group.stream(), in_attribute);
        let mut visible = Group::new(group.delimiter(), inner);
        visible.set_span(group.span());
        TokenTree::from(visible).into()
    }

    /// What a fragment matched. A visibility, a type, a statement and what stands in an attribute are left as they are.
    fn fragment(self, group: &Group, in_attribute: bool) -> TokenStream {
        let tokens = group.stream();
        if in_attribute || !is_long_expression(&tokens) {
            return self.visible(tokens, in_attribute);
        }
        // Within the expression, braces would be a statement.
        let inside = Notation {
            around: Delimiter::Parenthesis,
            ..self
        };
        let inner = inside.visible(tokens, false);
        let first = inner.clone().into_iter().next();
        let mut visible = Group::new(self.around, inner);
        visible.set_span(first.map_or_else(|| group.span(), |first| first.span()));
        TokenTree::from(visible).into()
    }
}

/// Whether these are an expression of several tokens. A fragment in it is an operand to syn.
fn is_long_expression(tokens: &TokenStream) -> bool {
    let is_long = tokens.clone().into_iter().nth(1).is_some();
    is_long && syn::parse2::<Expr>(tokens.clone()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    /// `tokens` as the fragment of another macro hands them on.
    fn fragment(tokens: TokenStream) -> Group {
        Group::new(Delimiter::None, tokens)
    }

    #[test]
    fn attributes_and_visibilities_stand_as_they_are() {
        let meta = fragment(quote!(doc = "A layer."));
        for vis in [quote!(), quote!(pub), quote!(pub(crate))] {
            let fragment = fragment(vis.clone());
            let tokens = quote!([::attn] #[#meta] #fragment struct A; #fragment struct B;);
            let expected =
                quote!([::attn] #[doc = "A layer."] #vis struct A; #vis struct B;).to_string();
            assert_eq!(of_layers(tokens.clone()).to_string(), expected);
            assert_eq!(of_models(tokens).to_string(), expected);
        }
    }

    #[test]
    fn an_expression_stands_in_delimiters() {
        let sum = fragment(quote!(1 + 1));
        let nested = fragment(quote!(#sum * 2));
        let one = fragment(quote!(8));
        let tokens = quote!(struct A<a = #sum, b = #nested, c = #one, d = [#sum]>;);
        assert_eq!(
            of_layers(tokens.clone()).to_string(),
            quote!(struct A<a = (1 + 1), b = ((1 + 1) * 2), c = 8, d = [(1 + 1)]>;).to_string()
        );
        assert_eq!(
            of_models(tokens).to_string(),
            quote!(struct A<a = { 1 + 1 }, b = { (1 + 1) * 2 }, c = 8, d = [{ 1 + 1 }]>;)
                .to_string()
        );
    }

    #[test]
    fn a_type_stands_as_it_is() {
        let ty = fragment(quote!(Linear<4, 4>));
        let tokens = quote!(module::<#ty, out = [batch, 4]>(x));
        let expected = quote!(module::<Linear<4, 4>, out = [batch, 4]>(x)).to_string();
        assert_eq!(of_models(tokens).to_string(), expected);
    }
}
