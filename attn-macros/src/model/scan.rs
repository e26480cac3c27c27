//! Tokens to scans: `let y = scan seq { state h: [batch, hidden] = 0; h = ..; yield h; };`

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::parse::ParseStream;
use syn::{Token, braced, token};

use super::expression::{in_the_way, parse_values_before};
use super::parse::{argument, skip};
use super::signature::parse_type;
use super::statement::{parse_statements, parse_to_end};
use super::syntax::{Expr, Scan, ScanTo, Statement, TypeDraft};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::{expect, split_at_commas};

/// `scan seq`, `scan { 2 * steps }`
pub(super) fn is_scan(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    let is_word = fork.parse::<Ident>().is_ok_and(|word| word == "scan");
    let is_header = fork.peek(syn::Ident) || fork.peek(syn::Lit) || fork.peek(token::Brace);
    // `scan(seq) { .. }` is reported as one.
    is_word && (is_header || fork.peek(token::Paren) && fork.peek2(token::Brace))
}

/// `= scan seq`
pub(super) fn follows_scan(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    fork.parse::<Token![=]>().is_ok() && is_scan(&fork)
}

/// `scan seq, reverse = true { .. }`
pub(super) fn parse_scan(
    input: ParseStream<'_>,
    to: ScanTo,
    cx: &Diagnostics,
) -> syn::Result<Statement> {
    let at: Ident = input.parse()?;
    let is_in_parentheses = input.peek(token::Paren);
    let is_without_axis =
        input.peek(token::Brace) && !input.peek2(token::Brace) && !input.peek2(Token![,]);
    if is_in_parentheses || is_without_axis {
        cx.error(&at, messages::EXPECTED_SCAN);
        skip(input);
        return Ok(Statement::Unreadable {
            declares: to.declares().to_vec(),
        });
    }
    let mut header = TokenStream::new();
    while !input.is_empty() && (!input.peek(token::Brace) || header.is_empty()) {
        header.extend([input.parse::<TokenTree>()?]);
    }
    if !input.peek(token::Brace) {
        return Err(syn::Error::new(at.span(), messages::EXPECTED_SCAN));
    }
    let content;
    braced!(content in input);
    let mut parts = split_at_commas(header).into_iter();
    let scan = Scan {
        result: Expr::Invalid(at.span()),
        axis: parts.next().unwrap_or_default(),
        options: parts.map(argument).collect(),
        statements: parse_statements(&content, cx),
        at,
        to,
    };
    match scan.to {
        ScanTo::Return if input.is_empty() => {}
        ScanTo::Return => {
            cx.error(&scan.at, messages::SCAN_IS_NOT_READ);
            input.parse::<Option<Token![;]>>()?;
        }
        ScanTo::Let { .. } | ScanTo::Assign(_) if input.is_empty() => {
            cx.error(&scan.at, messages::NO_SEMICOLON);
        }
        _ => {
            let end = expect::<Token![;]>(input, messages::EXPECTED_OPERATOR_OR_END);
            if end.is_err() {
                cx.push(in_the_way(input, messages::EXPECTED_OPERATOR_OR_END));
                skip(input);
            }
        }
    }
    Ok(Statement::Scan(scan))
}

/// `state h: [batch, hidden] = 0.0;`
pub(super) fn parse_state(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    input.parse::<Ident>()?;
    // A state changes anyway.
    input.parse::<Option<Token![mut]>>()?;
    let name: Ident = expect(input, messages::EXPECTED_STATE)?;
    Ok(match parse_initial(input, cx) {
        Ok((ty, init)) => Statement::State { name, ty, init },
        Err(error) => {
            cx.push(error);
            skip(input);
            let declares = vec![name];
            Statement::Unreadable { declares }
        }
    })
}

fn parse_initial(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<(TypeDraft, Expr)> {
    expect::<Token![:]>(input, messages::EXPECTED_STATE)?;
    let ty = parse_type(input)?;
    expect::<Token![=]>(input, messages::EXPECTED_STATE)?;
    Ok((ty, parse_to_end(input, cx)?))
}

/// `yield y;`, `yield (a, b);`
pub(super) fn parse_yield(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    let at = input.parse::<Token![yield]>()?.span;
    let values = parse_values_before(input, |rest| rest.peek(Token![;]), cx)?;
    if input.is_empty() {
        return Err(syn::Error::new(at, messages::NO_SEMICOLON));
    }
    if !input.peek(Token![;]) {
        return Err(in_the_way(input, messages::EXPECTED_OPERATOR_OR_END));
    }
    input.parse::<Token![;]>()?;
    Ok(Statement::Yield { at, values })
}
