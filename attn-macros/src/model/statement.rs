//! Tokens to [`Statement`]s.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Token, braced, token};

use super::condition::{is_choice_of_statements, parse_choice};
use super::expression::{in_the_way, parse_expr, parse_values};
use super::items::starts_block;
use super::parse::{argument, require, skip};
use super::scan::{follows_scan, is_scan, parse_scan, parse_state, parse_yield};
use super::signature::{is_named_values, parse_named_parts, parse_named_values, parse_type};
use super::sizes;
use super::syntax::{BufferDraft, Expr, LoopIndex, Operator, Repeat, ScanTo, Statement, TypeDraft};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::{expect, split_at_commas};

pub(super) fn parse_statements(input: ParseStream<'_>, cx: &Diagnostics) -> Vec<Statement> {
    let mut statements = Vec::new();
    while !input.is_empty() {
        if let Ok(semicolon) = input.parse::<Token![;]>() {
            cx.error(semicolon, messages::STRAY_SEMICOLON);
            continue;
        }
        match parse_statement(input, cx) {
            Ok(statement) => statements.push(statement),
            Err(error) => {
                cx.push(error);
                skip(input);
            }
        }
    }
    statements
}

fn parse_statement(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    if input.peek(Token![let]) {
        return parse_let(input, cx);
    }
    if is_tensor(input, "param") {
        return parse_param(input, cx);
    }
    if is_tensor(input, "buffer") {
        return parse_buffer(input, cx);
    }
    if is_tensor(input, "state") {
        return parse_state(input, cx);
    }
    if input.peek(Token![yield]) {
        return parse_yield(input, cx);
    }
    if is_scan(input) {
        return parse_scan(input, ScanTo::Return, cx);
    }
    if let Some(word) = unsupported(input) {
        return Err(syn::Error::new(input.span(), messages::unsupported(&word)));
    }
    if starts_block(input) {
        return Err(syn::Error::new(input.span(), messages::BLOCK_IN_FUNCTION));
    }
    if is_repeat(input) {
        return parse_repeat(input, cx).map(Statement::Repeat);
    }
    if input.peek(syn::Ident) && (input.peek2(Token![=]) || is_compound(input)) {
        return parse_assignment(input, cx);
    }
    if input.peek(token::Paren) && input.peek2(Token![=]) {
        let group: Group = input.parse()?;
        cx.error(&group, messages::SEVERAL_VARIABLES);
        let declares = sizes::names(&group.stream());
        skip(input);
        return Ok(Statement::Unreadable { declares });
    }
    if input.peek(Token![if]) && is_choice_of_statements(input) {
        return parse_choice(input, cx);
    }
    let at = input.span();
    let (names, values) = match is_named_values(input) {
        true => parse_named_values(input, cx)?,
        false => (Vec::new(), parse_values(input, cx)?),
    };
    if input.peek(Token![let]) && matches!(*values, [Expr::If { .. }]) {
        // The rest is a statement of its own.
        cx.push(syn::Error::new(at, messages::NOTHING_IS_DONE));
        let declares = Vec::new();
        return Ok(Statement::Unreadable { declares });
    }
    if !input.is_empty() {
        return Err(if input.peek(Token![;]) {
            input.error(messages::NOTHING_IS_DONE)
        } else if input.peek(Token![,]) {
            input.error(messages::SEVERAL_RESULTS)
        } else {
            in_the_way(input, messages::EXPECTED_OPERATOR)
        });
    }
    Ok(Statement::Return { values, names })
}

/// A construct of Rust that the language has not.
fn unsupported(input: ParseStream<'_>) -> Option<String> {
    let fork = input.fork();
    let word = fork.call(Ident::parse_any).ok()?.to_string();
    let is_rusts = matches!(
        word.as_str(),
        "for" | "while" | "loop" | "match" | "return" | "fn"
    );
    is_rusts.then_some(word)
}

fn is_repeat(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    fork.parse::<Ident>().is_ok_and(|word| word == "repeat")
        && !fork.peek(Token![=])
        && !fork.is_empty()
        && !fork.peek(Token![;])
}

/// `param name`, `buffer name`
pub(super) fn is_tensor(input: ParseStream<'_>, word: &str) -> bool {
    let fork = input.fork();
    let is_word = fork.parse::<Ident>().is_ok_and(|found| found == word);
    let is_label = fork.peek(Token![:]) && !fork.peek(Token![::]);
    is_word && (fork.peek(Ident::peek_any) || is_label)
}

/// `param token: [1, d] = normal(0.02);`
fn parse_param(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    input.parse::<Ident>()?;
    let mutable = input.parse::<Option<Token![mut]>>()?;
    let name: Ident = expect(input, messages::EXPECTED_PARAM)?;
    if let Some(mutable) = mutable {
        cx.error(mutable, messages::param_changes(&name));
    }
    Ok(match parse_tensor(input) {
        Ok((ty, init)) => Statement::Param { name, ty, init },
        Err(error) => {
            cx.push(error);
            skip(input);
            let declares = vec![name];
            Statement::Unreadable { declares }
        }
    })
}

/// `buffer slope: [heads] = |h| pow(2, -8 * (h + 1) / heads);`
fn parse_buffer(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    input.parse::<Ident>()?;
    let mutable = input.parse::<Option<Token![mut]>>()?;
    let name: Ident = expect(input, messages::EXPECTED_BUFFER)?;
    if let Some(mutable) = mutable {
        cx.error(mutable, messages::buffer_changes(&name));
    }
    Ok(match parse_table(input, cx) {
        Ok((ty, indices, value)) => Statement::Buffer(BufferDraft {
            name,
            ty,
            indices,
            value,
        }),
        Err(error) => {
            cx.push(error);
            skip(input);
            let declares = vec![name];
            Statement::Unreadable { declares }
        }
    })
}

/// `: [heads] = |h| pow(2, -8 * (h + 1) / heads);`
fn parse_table(
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<(TypeDraft, Option<Vec<Ident>>, Expr)> {
    expect::<Token![:]>(input, messages::EXPECTED_BUFFER)?;
    let ty = parse_type(input)?;
    expect::<Token![=]>(input, messages::EXPECTED_BUFFER)?;
    require(input, !input.peek(Token![;]), messages::EXPECTED_BUFFER)?;
    let indices = parse_indices(input)?;
    Ok((ty, indices, parse_to_end(input, cx)?))
}

/// `|h, _|`
fn parse_indices(input: ParseStream<'_>) -> syn::Result<Option<Vec<Ident>>> {
    if input.parse::<Option<Token![||]>>()?.is_some() {
        return Ok(Some(Vec::new()));
    }
    if input.parse::<Option<Token![|]>>()?.is_none() {
        return Ok(None);
    }
    let mut indices = Vec::new();
    while !input.peek(Token![|]) {
        let is_name = input.peek(syn::Ident) || input.peek(Token![_]);
        require(input, is_name, messages::EXPECTED_INDICES)?;
        indices.push(input.call(Ident::parse_any)?);
        if !input.peek(Token![|]) {
            expect::<Token![,]>(input, messages::EXPECTED_INDICES)?;
        }
    }
    input.parse::<Token![|]>()?;
    Ok(Some(indices))
}

/// `: [1, d] = normal(0.02);`
fn parse_tensor(input: ParseStream<'_>) -> syn::Result<(TypeDraft, TokenStream)> {
    expect::<Token![:]>(input, messages::EXPECTED_PARAM)?;
    let ty = parse_type(input)?;
    expect::<Token![=]>(input, messages::EXPECTED_PARAM)?;
    require(input, !input.peek(Token![;]), messages::EXPECTED_PARAM)?;
    let mut init = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![;]) {
        init.extend([input.parse::<TokenTree>()?]);
    }
    expect::<Token![;]>(input, messages::EXPECTED_END_OF_PARAM)?;
    Ok((ty, init))
}

fn parse_let(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    input.parse::<Token![let]>()?;
    let mutable = input.parse::<Option<Token![mut]>>()?.is_some();
    if input.peek(token::Brace) && !mutable {
        return parse_let_named(input, cx);
    }
    if input.peek(token::Paren) || input.peek(token::Bracket) || input.peek(token::Brace) {
        return parse_let_parts(mutable, input, cx);
    }
    let name: Ident = expect(input, messages::EXPECTED_VARIABLE)?;
    if follows_scan(input) {
        input.parse::<Token![=]>()?;
        let names = vec![name];
        return parse_scan(input, ScanTo::Let { names, mutable }, cx);
    }
    if input.peek(Token![,]) {
        cx.error(input.parse::<Token![,]>()?, messages::SEVERAL_VARIABLES);
        let mut declares = vec![name];
        while let Ok(name) = input.parse::<Ident>() {
            declares.push(name);
            input.parse::<Option<Token![,]>>()?;
        }
        skip(input);
        return Ok(Statement::Unreadable { declares });
    }
    if input.peek(Token![:]) {
        cx.error(input.parse::<Token![:]>()?, messages::INFERRED);
        while !input.is_empty() && !input.peek(Token![=]) && !input.peek(Token![;]) {
            input.parse::<TokenTree>()?;
        }
    }
    let value = parse_value(input, cx).unwrap_or_else(|error| {
        // The name is set all the same, so that its uses are no mistakes.
        cx.push(error);
        skip(input);
        Expr::Invalid(name.span())
    });
    Ok(Statement::Let {
        name,
        mutable,
        value,
    })
}

/// `(a, b) = split::<axis>(x);`
fn parse_let_parts(
    mutable: bool,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<Statement> {
    let group: Group = input.parse()?;
    let declares = sizes::names(&group.stream());
    let names = Punctuated::<Ident, Token![,]>::parse_terminated.parse2(group.stream());
    let is_tuple = group.delimiter() == Delimiter::Parenthesis && !mutable;
    let names: Vec<Ident> = match names {
        Ok(names) if is_tuple && !names.is_empty() => names.into_iter().collect(),
        _ => {
            let word = mutable.then(|| quote!(mut));
            cx.error(&group, messages::expected_names(&quote!(#word #group)));
            skip(input);
            return Ok(Statement::Unreadable { declares });
        }
    };
    if follows_scan(input) {
        input.parse::<Token![=]>()?;
        return parse_scan(input, ScanTo::Let { names, mutable }, cx);
    }
    match parse_value(input, cx) {
        Ok(value) => Ok(Statement::LetParts {
            names,
            of: None,
            value,
        }),
        Err(error) => {
            cx.push(error);
            skip(input);
            Ok(Statement::Unreadable { declares })
        }
    }
}

/// `{ logits, hidden: b, .. } = read(x);`
fn parse_let_named(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    let group: Group = input.fork().parse()?;
    let parts = parse_named_parts(input);
    let parsed = parts.and_then(|parts| Ok((parts, parse_value(input, cx)?)));
    match parsed {
        Ok(((names, of), value)) => Ok(Statement::LetParts {
            names,
            of: Some(of),
            value,
        }),
        Err(error) => {
            cx.push(error);
            skip(input);
            let declares = sizes::names(&group.stream());
            Ok(Statement::Unreadable { declares })
        }
    }
}

/// `= value;`
fn parse_value(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    expect::<Token![=]>(input, messages::EXPECTED_VALUE)?;
    parse_to_end(input, cx)
}

/// `value;`
pub(super) fn parse_to_end(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let value = parse_expr(input, cx)?;
    if input.is_empty() {
        return Err(syn::Error::new(value.span(), messages::NO_SEMICOLON));
    }
    if !input.peek(Token![;]) {
        if let Some(at) = last_scan(&value) {
            return Err(syn::Error::new(at, messages::SCAN_ALONE));
        }
        return Err(in_the_way(input, messages::EXPECTED_OPERATOR_OR_END));
    }
    expect::<Token![;]>(input, messages::EXPECTED_OPERATOR_OR_END)?;
    Ok(value)
}

/// The word `scan` as the last operand, where a header follows.
fn last_scan(value: &Expr) -> Option<Span> {
    match value {
        Expr::Name(name) => (name == "scan").then(|| name.span()),
        Expr::Negate(_, value) => last_scan(value),
        Expr::Binary { sides, .. } => last_scan(&sides[1]),
        _ => None,
    }
}

fn is_compound(input: ParseStream<'_>) -> bool {
    input.peek2(Token![+=])
        || input.peek2(Token![-=])
        || input.peek2(Token![*=])
        || input.peek2(Token![/=])
}

/// `x = value;`, or `x += value;`, which is `x = x + value;`.
fn parse_assignment(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    let name: Ident = input.parse()?;
    let at = input.span();
    if follows_scan(input) {
        input.parse::<Token![=]>()?;
        return parse_scan(input, ScanTo::Assign(name), cx);
    }
    let operator = if input.parse::<Option<Token![+=]>>()?.is_some() {
        Some(Operator::Add)
    } else if input.parse::<Option<Token![-=]>>()?.is_some() {
        Some(Operator::Sub)
    } else if input.parse::<Option<Token![*=]>>()?.is_some() {
        Some(Operator::Mul)
    } else if input.parse::<Option<Token![/=]>>()?.is_some() {
        Some(Operator::Div)
    } else {
        input.parse::<Token![=]>()?;
        None
    };
    let value = parse_to_end(input, cx).unwrap_or_else(|error| {
        cx.push(error);
        skip(input);
        Expr::Invalid(name.span())
    });
    let value = match operator {
        Some(operator) => Expr::Binary {
            operator,
            at,
            sides: Box::new([Expr::Name(name.clone()), value]),
        },
        None => value,
    };
    Ok(Statement::Assign { name, value })
}

/// `repeat layers, name = encoder { .. }`
fn parse_repeat(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Repeat> {
    let at: Ident = input.parse()?;
    let mut header = TokenStream::new();
    // A count may be in braces, too: the last group is the block.
    while !input.is_empty() && (!input.peek(token::Brace) || header.is_empty()) {
        header.extend([input.parse::<TokenTree>()?]);
    }
    if !input.peek(token::Brace) {
        return Err(syn::Error::new(at.span(), messages::EXPECTED_REPEAT));
    }
    let content;
    braced!(content in input);
    let mut parts = split_at_commas(header).into_iter();
    let (count, index) = with_index(parts.next().unwrap_or_default());
    let index = match index {
        None => None,
        Some(name) => Some(LoopIndex {
            name,
            body: content.fork().parse()?,
        }),
    };
    Ok(Repeat {
        at,
        count,
        options: parts.map(argument).collect(),
        index,
        statements: parse_statements(&content, cx),
    })
}

/// `layers as i`: the count, and the name of an index. The type of a cast is none.
fn with_index(header: TokenStream) -> (TokenStream, Option<Ident>) {
    let tokens: Vec<TokenTree> = header.clone().into_iter().collect();
    match tokens.as_slice() {
        [count @ .., TokenTree::Ident(word), TokenTree::Ident(name)]
            if word == "as" && name != "usize" && !count.is_empty() =>
        {
            (count.iter().cloned().collect(), Some(name.clone()))
        }
        _ => (header, None),
    }
}
