//! Parses the signature of `forward`: tokens to drafts.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Token, bracketed, parenthesized, token};

use super::parse::{read, require, tokens_of_argument};
use super::syntax::{InputDraft, TypeDraft};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::{expect, split_at_commas};

/// `tokens: ids[batch, seq], ..`
pub(super) fn parse_inputs(input: ParseStream<'_>, cx: &Diagnostics) -> Vec<InputDraft> {
    let mut inputs = Vec::new();
    while !input.is_empty() {
        let mut draft = InputDraft::default();
        match parse_input(input, &mut draft, cx) {
            Ok(Takes::Input) => inputs.push(draft),
            Ok(Takes::Itself) => {}
            Err(error) => {
                cx.push(error);
                inputs.push(draft);
                // The rest of it, and the comma, or what is in the way.
                tokens_of_argument(input);
                let _ = input.parse::<TokenTree>();
            }
        }
    }
    inputs
}

/// An item among the inputs.
pub(super) enum Takes {
    Input,
    /// `&self`, which was reported.
    Itself,
}

pub(super) fn parse_input(
    input: ParseStream<'_>,
    draft: &mut InputDraft,
    cx: &Diagnostics,
) -> syn::Result<Takes> {
    let at = input.span();
    let reference: Option<Token![&]> = input.parse()?;
    let mutable: Option<Token![mut]> = input.parse()?;
    if input.parse::<Option<Token![self]>>()?.is_some() {
        cx.push(syn::Error::new(at, messages::NO_SELF));
        tokens_of_argument(input);
        input.parse::<Option<Token![,]>>()?;
        return Ok(Takes::Itself);
    }
    if let Some(reference) = reference {
        cx.error(reference, messages::EXPECTED_INPUT);
    }
    let name: Ident = expect(input, messages::EXPECTED_INPUT)?;
    if let Some(mutable) = mutable {
        cx.error(mutable, messages::input_changes(&name));
        draft.mutable = true;
    }
    draft.name = Some(name);
    expect::<Token![:]>(input, messages::EXPECTED_INPUT)?;
    draft.ty = Some(parse_type(input)?);
    if !input.is_empty() {
        expect::<Token![,]>(input, messages::EXPECTED_INPUT)?;
    }
    Ok(Takes::Input)
}

/// To the braces after the result.
pub(super) fn skip_to_body(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(token::Brace) && !input.peek(Token![struct]) {
        let _ = input.parse::<TokenTree>();
    }
}

/// `-> [batch, seq, vocab]`, or several in parentheses: those of a function or a block.
pub(super) fn parse_results(
    of: &str,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<Vec<TypeDraft>> {
    let expected = &messages::expected_result(of);
    expect::<Token![->]>(input, expected)?;
    if !input.peek(token::Paren) {
        return Ok(vec![parse_type(input)?]);
    }
    let content;
    parenthesized!(content in input);
    let mut results = Vec::new();
    read(&content, |content| {
        while !content.is_empty() {
            results.push(parse_type(content)?);
            if !content.is_empty() {
                expect::<Token![,]>(content, expected)?;
            }
        }
        Ok(())
    })?;
    if results.is_empty() {
        cx.push(syn::Error::new(content.span(), expected));
    }
    Ok(results)
}

pub(crate) fn parse_type(input: ParseStream<'_>) -> syn::Result<TypeDraft> {
    let kind = input.call(Ident::parse_any).ok();
    if let (Some(kind), false) = (&kind, input.peek(token::Bracket)) {
        return Err(syn::Error::new(kind.span(), messages::no_type(kind)));
    }
    require(input, input.peek(token::Bracket), messages::EXPECTED_TYPE)?;
    let content;
    let brackets = bracketed!(content in input);
    let axes: TokenStream = content.parse()?;
    let is_semicolon =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
    if let Some(semicolon) = axes.clone().into_iter().find(is_semicolon) {
        return Err(syn::Error::new(
            semicolon.span(),
            messages::AXES_AND_SEMICOLON,
        ));
    }
    let axes = split_at_commas(axes);
    Ok(TypeDraft {
        kind,
        axes,
        span: brackets.span.join(),
    })
}
