//! Parses the signature of `forward`: tokens to drafts.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Token, braced, bracketed, parenthesized, token};

use super::expression::parse_expr;
use super::parse::{read, require, tokens_of_argument};
use super::syntax::{Expr, InputDraft, NamedParts, TypeDraft};
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
    if let Some(sign) = input.parse::<Option<Token![=]>>()? {
        let default = tokens_of_argument(input);
        if default.is_empty() {
            cx.error(sign, messages::EXPECTED_DEFAULT);
        }
        draft.default = Some(default).filter(|default| !default.is_empty());
    }
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

/// The declared results of a function or a block, in their order.
pub(super) struct Results {
    pub(super) types: Vec<TypeDraft>,
    /// None, or one for each.
    pub(super) names: Vec<Ident>,
}

/// `-> [batch, seq, vocab]`, or several in parentheses, or by name in braces.
pub(super) fn parse_results(
    of: &str,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<Results> {
    let expected = &messages::expected_result(of);
    expect::<Token![->]>(input, expected)?;
    let names = Vec::new();
    if is_named_results(input) {
        return parse_named_results(of, input, cx);
    }
    if !input.peek(token::Paren) {
        let types = vec![parse_type(input)?];
        return Ok(Results { types, names });
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
    let types = results;
    Ok(Results { types, names })
}

/// Braces with names and shapes, not those of the statements.
fn is_named_results(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    let group = fork.parse::<Group>();
    // The statements follow.
    let is_first = |group: &Group| is_brace(group) && fork.peek(token::Brace);
    group.is_ok_and(|group| is_first(&group) || begins_with_entry(&group))
}

fn is_brace(group: &Group) -> bool {
    group.delimiter() == Delimiter::Brace
}

/// `{ logits, .. }`, `{ logits: .. }`
pub(super) fn begins_with_entry(group: &Group) -> bool {
    let tokens: Vec<TokenTree> = group.stream().into_iter().take(3).collect();
    let is = |index: usize, sign: char| matches!(tokens.get(index), Some(TokenTree::Punct(found)) if found.as_char() == sign);
    let is_name = matches!(tokens.first(), Some(TokenTree::Ident(_)));
    is_brace(group) && is_name && (is(1, ',') || is(1, ':') && !is(2, ':'))
}

/// `{ logits: [batch, seq, vocab], hidden: [batch, seq, d_model] }`
fn parse_named_results(of: &str, input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Results> {
    let expected = &messages::expected_named_result(of);
    let content;
    braced!(content in input);
    let (mut types, mut names) = (Vec::new(), Vec::<Ident>::new());
    read(&content, |content| {
        require(content, !content.is_empty(), expected)?;
        while !content.is_empty() {
            let name: Ident = expect(content, expected)?;
            expect::<Token![:]>(content, expected)?;
            let ty = parse_type(content)?;
            if names.contains(&name) {
                cx.error(&name, messages::result_twice(of, &name));
            } else {
                types.push(ty);
                names.push(name);
            }
            if !content.is_empty() {
                expect::<Token![,]>(content, expected)?;
            }
        }
        Ok(())
    })?;
    Ok(Results { types, names })
}

/// A line of values by name: `{ logits, hidden: b }`. A name alone is one, too.
pub(super) fn is_named_values(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    let Ok(group) = fork.parse::<Group>() else {
        return false;
    };
    let is_name = || is_brace(&group) && syn::parse2::<Ident>(group.stream()).is_ok();
    let stands_alone = fork.is_empty() || fork.peek(Token![;]);
    stands_alone && (begins_with_entry(&group) || is_name())
}

/// `{ logits, hidden: layer_norm(x) }`: the names, and what they stand for.
pub(super) fn parse_named_values(
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<(Vec<Ident>, Vec<Expr>)> {
    let content;
    braced!(content in input);
    let (mut names, mut values) = (Vec::new(), Vec::new());
    read(&content, |content| {
        while !content.is_empty() {
            let name: Ident = expect(content, messages::EXPECTED_NAMED_VALUE)?;
            values.push(match content.parse::<Option<Token![:]>>()? {
                Some(_) => parse_expr(content, cx)?,
                None => Expr::Name(name.clone()),
            });
            names.push(name);
            if !content.is_empty() {
                expect::<Token![,]>(content, messages::EXPECTED_NAMED_VALUE)?;
            }
        }
        Ok(())
    })?;
    Ok((names, values))
}

/// `{ logits, hidden: b, .. }`: the variables, and the results that they get.
pub(super) fn parse_named_parts(input: ParseStream<'_>) -> syn::Result<(Vec<Ident>, NamedParts)> {
    let content;
    braced!(content in input);
    let (mut variables, mut results) = (Vec::new(), Vec::new());
    let others = read(&content, |content| {
        while !content.is_empty() {
            if content.parse::<Option<Token![..]>>()?.is_some() {
                require(content, content.is_empty(), messages::REST_IS_LAST)?;
                return Ok(true);
            }
            let name: Ident = expect(content, messages::EXPECTED_NAMED_PART)?;
            variables.push(match content.parse::<Option<Token![:]>>()? {
                Some(_) => expect(content, messages::EXPECTED_NAMED_PART)?,
                None => name.clone(),
            });
            results.push(name);
            if !content.is_empty() {
                expect::<Token![,]>(content, messages::EXPECTED_NAMED_PART)?;
            }
        }
        Ok(false)
    })?;
    Ok((variables, NamedParts { results, others }))
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
