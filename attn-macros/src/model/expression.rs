//! Tokens to expressions: sums of products of calls and names.

use proc_macro2::{Delimiter, Group, Ident, Punct, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::{Lit, Token, braced, parenthesized, token};

use super::condition::parse_if;
use super::items::starts_block;
use super::parse::{argument, parse_arguments, read, require};
use super::syntax::{Argument, AxisDraft, Call, Expr, Index, Operator, Part};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::ops::{Lower, Operation};
use crate::spec::{body, expect, split_at_commas};

/// One value, or several in parentheses.
pub(super) fn parse_values(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Vec<Expr>> {
    let ends = |rest: ParseStream<'_>| rest.is_empty() || rest.peek(Token![,]);
    parse_values_before(input, ends, cx)
}

/// The same where this tells whether they end.
pub(super) fn parse_values_before(
    input: ParseStream<'_>,
    ends: impl Fn(ParseStream<'_>) -> bool,
    cx: &Diagnostics,
) -> syn::Result<Vec<Expr>> {
    if input.peek(token::Paren) {
        let fork = input.fork();
        let group: Group = fork.parse()?;
        if ends(&fork) && has_comma(&group.stream()) {
            let content;
            parenthesized!(content in input);
            return read(&content, |content| {
                let mut values = Vec::new();
                while !content.is_empty() {
                    values.push(parse_expr(content, cx)?);
                    expect_comma(content)?;
                }
                Ok(values)
            });
        }
    }
    Ok(vec![parse_expr(input, cx)?])
}

fn has_comma(tokens: &TokenStream) -> bool {
    split_at_commas(tokens.clone()).len() > 1
}

/// Sums of products.
pub(super) fn parse_expr(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let mut left = parse_product(input, cx)?;
    while let Some((operator, at)) = take_operator(input, &[Operator::Add, Operator::Sub]) {
        left = binary(operator, at, left, parse_product(input, cx)?);
    }
    Ok(left)
}

fn parse_product(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let mut left = parse_renamed(input, cx)?;
    let operators = [Operator::Mul, Operator::Div, Operator::Rem];
    while let Some((operator, at)) = take_operator(input, &operators) {
        require(input, !input.peek(Token![*]), messages::POWER)?;
        left = binary(operator, at, left, parse_renamed(input, cx)?);
    }
    Ok(left)
}

/// An operand, perhaps with other names for its axes.
fn parse_renamed(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let mut value = parse_operand(input, cx)?;
    while let Some(word) = input.parse::<Option<Token![as]>>()? {
        require(
            input,
            input.peek(token::Bracket),
            messages::EXPECTED_AXES_OF_AS,
        )?;
        let group: Group = input.parse()?;
        let axes = split_at_commas(group.stream()).into_iter();
        value = Expr::Rename {
            value: Box::new(value),
            at: word.span,
            axes: axes.map(parse_axis).collect::<syn::Result<_>>()?,
        };
    }
    Ok(value)
}

/// `kv = seq`, `seq`
fn parse_axis(entry: TokenStream) -> syn::Result<AxisDraft> {
    let tokens: Vec<TokenTree> = entry.clone().into_iter().collect();
    let is_equals =
        |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == '=');
    match tokens.as_slice() {
        [TokenTree::Ident(name), equals, axis @ ..] if is_equals(equals) && !axis.is_empty() => {
            Ok(AxisDraft {
                name: Some(name.clone()),
                axis: axis.iter().cloned().collect(),
            })
        }
        tokens if tokens.iter().any(is_equals) => Err(syn::Error::new_spanned(
            entry,
            messages::EXPECTED_AXES_OF_AS,
        )),
        _ => Ok(AxisDraft {
            name: None,
            axis: entry,
        }),
    }
}

/// The next sign, if it is that of one of these operators.
fn take_operator(input: ParseStream<'_>, operators: &[Operator]) -> Option<(Operator, Span)> {
    let (sign, _) = input.cursor().punct()?;
    let is_it = |operator: &Operator| operator.text().starts_with(sign.as_char());
    let operator = *operators.iter().find(|operator| is_it(operator))?;
    input.parse::<Punct>().ok()?;
    Some((operator, sign.span()))
}

fn binary(operator: Operator, at: Span, left: Expr, right: Expr) -> Expr {
    Expr::Binary {
        operator,
        at,
        sides: Box::new([left, right]),
    }
}

fn parse_operand(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let at = input.span();
    if input.parse::<Option<Token![-]>>()?.is_some() {
        return Ok(Expr::Negate(at, Box::new(parse_operand(input, cx)?)));
    }
    if input.peek(Lit) {
        let literal: Lit = input.parse()?;
        return Ok(Expr::Number(literal.to_token_stream()));
    }
    if input.peek(token::Brace) {
        let group: Group = input.parse()?;
        return Ok(Expr::Number(group.to_token_stream()));
    }
    if input.peek(token::Paren) {
        return parse_in_parentheses(input, cx);
    }
    if input.peek(Token![if]) {
        return parse_if(input, cx);
    }
    parse_named(input, cx)
}

/// `(value)`
fn parse_in_parentheses(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let content;
    parenthesized!(content in input);
    read(&content, |content| {
        let inner = parse_expr(content, cx)?;
        if !content.is_empty() {
            return Err(in_the_way(content, messages::EXPECTED_OPERATOR));
        }
        Ok(inner)
    })
}

/// A variable or a call, perhaps a part of it.
fn parse_named(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    require(input, !input.peek(token::Bracket), messages::LIST)?;
    require(input, !input.peek(Token![where]), messages::TERNARY)?;
    require(input, !input.peek(Token![self]), messages::NO_SELF_IN_BODY)?;
    if starts_block(input) {
        return Err(syn::Error::new(input.span(), messages::BLOCK_IN_FUNCTION));
    }
    let name: Ident = expect(input, messages::EXPECTED_OPERAND)?;
    if let Some(message) = loop_as_operand(&name, input) {
        return Err(syn::Error::new(name.span(), message));
    }
    if input.peek(Token![!]) && !input.peek(Token![!=]) {
        return Err(syn::Error::new(name.span(), messages::macro_call(&name)));
    }
    if input.peek(Token![::]) && !input.peek3(Token![<]) {
        return parse_path(name, input, cx);
    }
    let is_call = input.peek(Token![::]) || has_lost_colons(input) || input.peek(token::Paren);
    let mut value = if is_call || (input.peek(token::Bracket) && input.peek2(token::Paren)) {
        Expr::Call(Box::new(parse_call(name, input, cx)?))
    } else {
        Expr::Name(name)
    };
    while input.peek(token::Bracket) {
        value = parse_indices(value, input, cx)?;
    }
    if input.peek(Token![.]) {
        return Err(in_the_way(input, messages::EXPECTED_OPERATOR));
    }
    Ok(value)
}

/// The message of a loop in the place of an operand: `y + scan seq { .. }`, `y + repeat 2 { .. }`. A variable may have these names.
fn loop_as_operand(word: &Ident, input: ParseStream<'_>) -> Option<&'static str> {
    let has_name = input.peek(syn::Ident);
    let has_count =
        has_name || input.peek(Lit) || input.peek(token::Brace) && input.peek2(token::Brace);
    if word == "scan" && has_name {
        Some(messages::SCAN_ALONE)
    } else if word == "repeat" && has_count {
        Some(messages::REPEAT_ALONE)
    } else {
        None
    }
}

/// The error of what stands behind a value, where `expected` should.
pub(super) fn in_the_way(input: ParseStream<'_>, expected: &str) -> syn::Error {
    if input.peek(Token![.]) {
        let fork = input.fork();
        let mut method: Option<Ident> = None;
        while let Ok(next) = fork.parse::<Token![.]>().and_then(|_| fork.parse()) {
            method = Some(next);
        }
        return input.error(messages::method_call(method.as_ref()));
    }
    input.error(if input.peek(token::Bracket) {
        messages::PART_OF_OPERATION
    } else if input.peek(Token![@]) {
        messages::MATRIX_PRODUCT
    } else if input.peek(Token![?]) && (input.peek2(syn::Ident) || input.peek2(Lit)) {
        messages::TERNARY
    } else if input.peek(Token![?]) {
        messages::QUESTION
    } else if input.peek(Token![^]) {
        messages::CARET
    } else if input.peek(Token![if]) {
        messages::TERNARY
    } else if input.peek(Token![%]) {
        messages::REMAINDER
    } else if input.peek(Token![<])
        || input.peek(Token![>])
        || input.peek(Token![<=])
        || input.peek(Token![>=])
        || input.peek(Token![==])
        || input.peek(Token![!=])
        || input.peek(Token![&&])
        || input.peek(Token![||])
    {
        messages::COMPARISON
    } else {
        expected
    })
}

/// `[seq = 0, d_model = 1..]` or `[ids]` behind a value.
fn parse_indices(value: Expr, input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let group: Group = input.parse()?;
    let entries = split_outside_angles(group.stream());
    if entries.is_empty() {
        let message = messages::expected_part(&group.stream());
        return Err(syn::Error::new(group.span(), message));
    }
    let entries = entries.into_iter().enumerate();
    let indices = entries.map(|(place, entry)| parse_index(place, entry, cx));
    Ok(Expr::Index {
        value: Box::new(value),
        indices: indices.collect::<syn::Result<_>>()?,
    })
}

/// The parts between commas, but for those in the keys of a call.
fn split_outside_angles(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![TokenStream::new()];
    let mut depth = 0;
    let mut before = ' ';
    for token in tokens {
        let sign = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match sign {
            '<' if depth > 0 || before == ':' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ => {}
        }
        before = sign;
        match parts.last_mut() {
            Some(last) if sign != ',' || depth > 0 => last.extend([token]),
            _ => parts.push(TokenStream::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// `axis = index`, `axis = start..end`, `axis = ids`, or `ids` of the first axis.
fn parse_index(place: usize, entry: TokenStream, cx: &Diagnostics) -> syn::Result<Index> {
    let tokens: Vec<TokenTree> = entry.clone().into_iter().collect();
    let (axis, value) = match tokens.as_slice() {
        [axis, equals, value @ ..]
            if is_sign(equals, '=') && value.first().is_some_and(|first| !is_sign(first, '=')) =>
        {
            (Some(TokenStream::from(axis.clone())), value)
        }
        value if place == 0 && (is_of_ids(value) || matches!(value, [TokenTree::Ident(_)])) => {
            (None, value)
        }
        _ => {
            let message = messages::expected_part(&entry);
            return Err(syn::Error::new_spanned(entry, message));
        }
    };
    let part = parse_part(value, cx)?;
    Ok(Index { axis, part, entry })
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// Whether ids are computed or listed here: no constant begins so.
fn is_of_ids(value: &[TokenTree]) -> bool {
    match value {
        [TokenTree::Group(list)] => list.delimiter() == Delimiter::Bracket,
        [TokenTree::Ident(_), TokenTree::Group(operands), ..] => {
            operands.delimiter() != Delimiter::Brace
        }
        [TokenTree::Ident(_), colon, _, angle, ..] => is_sign(colon, ':') && is_sign(angle, '<'),
        _ => false,
    }
}

fn parse_part(value: &[TokenTree], cx: &Diagnostics) -> syn::Result<Part> {
    let all = || value.iter().cloned().collect::<TokenStream>();
    let side = |tokens: &[TokenTree]| -> Option<TokenStream> {
        (!tokens.is_empty()).then(|| tokens.iter().cloned().collect())
    };
    let dots = value
        .windows(2)
        .position(|pair| pair.iter().all(|token| is_sign(token, '.')));
    Ok(match (value, dots) {
        ([TokenTree::Group(list)], _) if is_of_ids(value) => {
            Part::List(split_at_commas(list.stream()))
        }
        (_, None) if is_of_ids(value) => {
            let ids = |input: ParseStream<'_>| {
                let ids = parse_expr(input, cx)?;
                match input.is_empty() {
                    true => Ok(ids),
                    false => Err(in_the_way(input, messages::EXPECTED_OPERATOR)),
                }
            };
            Part::Of(ids.parse2(all())?)
        }
        (_, None) => Part::At(all()),
        (_, Some(dots)) => {
            let end = &value[dots + 2..];
            if let Some(sign) = end
                .first()
                .filter(|token| is_sign(token, '=') || is_sign(token, '.'))
            {
                return Err(syn::Error::new(sign.span(), messages::HALF_OPEN));
            }
            Part::Range([side(&value[..dots]), side(end)])
        }
    })
}

/// `nn::Embedding(..)`, `attn::embedding::<..>(..)`: operations have no paths. What is called is read, if it is one.
fn parse_path(first: Ident, input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let mut path = first.to_string();
    let mut last = first.clone();
    while input.peek(Token![::]) && !input.peek3(Token![<]) {
        input.parse::<Token![::]>()?;
        last = expect(input, messages::EXPECTED_ARGUMENTS)?;
        path = format!("{path}::{last}");
    }
    let is_call = input.peek(Token![::]) || input.peek(Token![<]) || input.peek(token::Paren);
    let message = match is_call {
        true => messages::path_of_operation(&path, &last),
        false => messages::path_of_constant(&path),
    };
    cx.error(&first, message);
    if !is_call {
        return Ok(Expr::Invalid(first.span()));
    }
    if Operation::find(&last.to_string()).is_some() {
        return parse_call(last, input, cx).map(|call| Expr::Call(Box::new(call)));
    }
    parse_call(last, input, &Diagnostics::default())?;
    Ok(Expr::Invalid(first.span()))
}

/// A comma, or the end.
fn expect_comma(input: ParseStream<'_>) -> syn::Result<()> {
    if !input.is_empty() {
        if !input.peek(Token![,]) {
            return Err(in_the_way(input, messages::EXPECTED_OPERATOR));
        }
        input.parse::<Token![,]>()?;
    }
    Ok(())
}

/// Whether `<keys>(..)` follows: no comparison ends in that.
fn has_lost_colons(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    let mut before = None;
    while let Ok(token) = fork.parse::<TokenTree>() {
        match &token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                return input.peek(Token![<]) && before == Some('>');
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return false,
            TokenTree::Punct(sign) if sign.as_char() == ';' => return false,
            // `x < y && z > (w)`: no key has a condition in it.
            TokenTree::Punct(sign)
                if matches!(sign.as_char(), '&' | '|') && before == Some(sign.as_char()) =>
            {
                return false;
            }
            _ => {}
        }
        before = match token {
            TokenTree::Punct(sign) => Some(sign.as_char()),
            _ => None,
        };
    }
    false
}

/// `name<keys>(..)`, which is read as a call.
fn lost_colons(name: &Ident, input: ParseStream<'_>, cx: &Diagnostics) -> bool {
    let is_lost = has_lost_colons(input);
    if is_lost {
        let fork = input.fork();
        let mut call = TokenStream::new();
        while let Ok(token) = fork.parse::<TokenTree>() {
            let is_end = matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
            call.extend([token]);
            if is_end {
                break;
            }
        }
        cx.push(syn::Error::new(
            input.span(),
            messages::lost_colons(name, &call),
        ));
    }
    is_lost
}

/// `embedding(vocab, d_model)(tokens)`, `embedding[vocab, d_model](tokens)`: the keys in other brackets.
fn misplaced_arguments(
    name: &Ident,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<(Vec<Argument>, Option<syn::Error>)> {
    let keys: Group = input.parse()?;
    let operands: Group = input.fork().parse()?;
    let message = messages::keys_in_angles(name, &keys.stream(), &operands);
    let mut error = Some(syn::Error::new_spanned(&keys, message));
    // The name of another operation is an error by itself, unless it is a block.
    if Operation::find(&name.to_string()).is_some() {
        error.take().into_iter().for_each(|error| cx.push(error));
    }
    let keys = split_at_commas(keys.stream()).into_iter();
    Ok((keys.map(argument).collect(), error))
}

fn parse_call(name: Ident, input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Call> {
    let is_misplaced = input.peek(token::Paren) || input.peek(token::Bracket);
    let mut misplaced = None;
    let arguments = if is_misplaced && input.peek2(token::Paren) {
        let (arguments, error) = misplaced_arguments(&name, input, cx)?;
        misplaced = error;
        arguments
    } else if input.parse::<Option<Token![::]>>()?.is_some() || lost_colons(&name, input, cx) {
        expect::<Token![<]>(input, messages::EXPECTED_ARGUMENTS)?;
        parse_arguments(input, cx)?
    } else {
        Vec::new()
    };
    require(input, input.peek(token::Paren), messages::EXPECTED_OPERANDS)?;
    let content;
    parenthesized!(content in input);
    let mut operands = Vec::new();
    let mut named = Vec::new();
    read(&content, |content| {
        while !content.is_empty() {
            if content.peek(syn::Ident) && content.peek2(Token![=]) {
                let key: Ident = content.parse()?;
                content.parse::<Token![=]>()?;
                named.push((key, parse_values(content, cx)?));
            } else {
                operands.push(parse_expr(content, cx)?);
            }
            expect_comma(content)?;
        }
        Ok(())
    })?;
    let body = if has_body(&name, input) {
        let content;
        braced!(content in input);
        Some(body::parse(&content, cx))
    } else {
        None
    };
    Ok(Call {
        name,
        arguments,
        operands,
        named,
        misplaced,
        body,
    })
}

/// Whether the braces behind a call are its body. Others are a branch: `if x < mean::<seq>(x) { x } else { 0 }`, `if d > max(n, 2) { x = y; }`
fn has_body(operation: &Ident, input: ParseStream<'_>) -> bool {
    let Some((content, ..)) = input.cursor().group(Delimiter::Brace) else {
        return false;
    };
    let may_have_one = || {
        let found = Operation::find(&operation.to_string());
        found.is_some_and(|operation| matches!(operation.lower, Lower::Attention(_)))
    };
    !input.peek2(Token![else]) && (may_have_one() || body::may_start(content))
}
