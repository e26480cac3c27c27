//! Tokens to choices: `if x < y && y != 0 { x } else { y }`, of values or of statements.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::{Token, braced, parenthesized, token};

use super::expression::{in_the_way, parse_expr};
use super::parse::{read, require};
use super::signature::begins_with_entry;
use super::statement::parse_statements;
use super::syntax::{Comparison, Condition, Expr, Statement};
use crate::diag::Diagnostics;
use crate::messages::model as messages;

/// Whether a choice between statements follows, not one between values.
pub(super) fn is_choice_of_statements(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    let mut tokens = std::iter::from_fn(|| fork.parse::<TokenTree>().ok()).peekable();
    let is_word =
        |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(found) if found == word);
    while tokens.next().is_some_and(|token| is_word(&token, "if")) {
        let mut branch = None;
        // A number of the condition may stand in braces: at its start or behind a sign.
        let mut expects_value = true;
        for token in tokens.by_ref() {
            match &token {
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Brace && !expects_value =>
                {
                    branch = Some(group.clone());
                    break;
                }
                TokenTree::Punct(sign) if sign.as_char() == ';' => return false,
                _ => {}
            }
            expects_value = matches!(token, TokenTree::Punct(_));
        }
        if branch.is_some_and(|branch| holds_statements(&branch)) {
            return true;
        }
        if !tokens.next().is_some_and(|token| is_word(&token, "else")) {
            return false;
        }
        if let Some(TokenTree::Group(group)) = tokens.peek() {
            return holds_statements(group);
        }
    }
    false
}

fn holds_statements(branch: &Group) -> bool {
    let mut tokens = branch.stream().into_iter().peekable();
    let is_empty = tokens.peek().is_none();
    let is_repeat = matches!(tokens.peek(), Some(TokenTree::Ident(first)) if first == "repeat");
    let returns_names =
        matches!(tokens.peek(), Some(TokenTree::Group(group)) if begins_with_entry(group));
    is_empty
        || is_repeat
        || returns_names
        || tokens.any(|token| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ';'))
}

/// A choice between statements, from the word `if` on.
pub(super) fn parse_choice(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Statement> {
    let at = input.parse::<Token![if]>()?.span;
    let condition = parse_condition(input, cx)?;
    let then = parse_block(input, cx)?;
    let otherwise = if input.parse::<Option<Token![else]>>()?.is_none() {
        Vec::new()
    } else if input.peek(Token![if]) {
        vec![parse_choice(input, cx)?]
    } else {
        parse_block(input, cx)?
    };
    Ok(Statement::If {
        at,
        condition,
        branches: [then, otherwise],
    })
}

fn parse_block(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Vec<Statement>> {
    require(input, input.peek(token::Brace), messages::EXPECTED_BRANCH)?;
    let content;
    braced!(content in input);
    Ok(parse_statements(&content, cx))
}

/// A choice between values, from the word `if` on.
pub(super) fn parse_if(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let at = input.parse::<Token![if]>()?.span;
    let condition = parse_condition(input, cx)?;
    let then = parse_branch(input, cx)?;
    if input.is_empty() {
        return Err(syn::Error::new(at, messages::EXPECTED_ELSE));
    }
    require(input, input.peek(Token![else]), messages::EXPECTED_ELSE)?;
    input.parse::<Token![else]>()?;
    let otherwise = match input.peek(Token![if]) {
        true => parse_if(input, cx)?,
        false => parse_branch(input, cx)?,
    };
    Ok(Expr::If {
        at,
        condition: Box::new(condition),
        branches: Box::new([then, otherwise]),
    })
}

fn parse_branch(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    require(input, !is_word_of_logic(input), messages::LOGIC)?;
    require(input, input.peek(token::Brace), messages::EXPECTED_BRANCH)?;
    let content;
    braced!(content in input);
    read(&content, |content| {
        let value = parse_expr(content, cx)?;
        match content.is_empty() {
            true => Ok(value),
            false => Err(in_the_way(content, messages::ONE_VALUE_OF_A_BRANCH)),
        }
    })
}

/// `if local { sliding_window(8) } else { causal }` as the value of a key.
pub(super) struct ChoiceOfKey {
    pub(super) at: Span,
    pub(super) condition: Condition,
    pub(super) branches: [TokenStream; 2],
}

/// Whether the value of a key is a choice.
pub(super) fn is_choice_of_key(value: &TokenStream) -> bool {
    matches!(value.clone().into_iter().next(), Some(TokenTree::Ident(word)) if word == "if")
}

/// The choice, from the word `if` on. Another one behind `else` is the tokens of the second branch.
pub(super) fn parse_choice_of_key(value: &TokenStream, cx: &Diagnostics) -> Option<ChoiceOfKey> {
    let parser = |input: ParseStream<'_>| {
        let at = input.parse::<Token![if]>()?.span;
        let condition = parse_condition(input, cx)?;
        let then = parse_tokens(input)?;
        if input.is_empty() {
            return Err(syn::Error::new(at, messages::EXPECTED_ELSE));
        }
        require(input, input.peek(Token![else]), messages::EXPECTED_ELSE)?;
        input.parse::<Token![else]>()?;
        let otherwise = match input.peek(Token![if]) {
            true => input.parse()?,
            false => parse_tokens(input)?,
        };
        match input.is_empty() {
            true => Ok(ChoiceOfKey {
                at,
                condition,
                branches: [then, otherwise],
            }),
            false => Err(in_the_way(input, messages::ONE_VALUE_OF_A_BRANCH)),
        }
    };
    let parsed = parser.parse2(value.clone());
    parsed.map_err(|error| cx.push(error)).ok()
}

fn parse_tokens(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    require(input, !is_word_of_logic(input), messages::LOGIC)?;
    require(input, input.peek(token::Brace), messages::EXPECTED_BRANCH)?;
    let content;
    braced!(content in input);
    content.parse()
}

/// Whether a word of Python's conditions follows, with what it is about.
fn is_word_of_logic(input: ParseStream<'_>) -> bool {
    let word = input.cursor().ident().map(|(word, _)| word.to_string());
    matches!(word.as_deref(), Some("and" | "or" | "not"))
        && (input.peek2(syn::Ident) || input.peek2(token::Paren))
}

/// Conditions with `||` between them.
fn parse_condition(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Condition> {
    let mut left = parse_and(input, cx)?;
    while input.parse::<Option<Token![||]>>()?.is_some() {
        left = Condition::Or(Box::new([left, parse_and(input, cx)?]));
    }
    Ok(left)
}

fn parse_and(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Condition> {
    let mut left = parse_atom(input, cx)?;
    while input.parse::<Option<Token![&&]>>()?.is_some() {
        left = Condition::And(Box::new([left, parse_atom(input, cx)?]));
    }
    Ok(left)
}

fn parse_atom(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Condition> {
    if input.parse::<Option<Token![!]>>()?.is_some() {
        return Ok(Condition::Not(Box::new(parse_atom(input, cx)?)));
    }
    if is_condition_in_parentheses(input) {
        let content;
        parenthesized!(content in input);
        return read(&content, |content| {
            let inner = parse_condition(content, cx)?;
            match content.is_empty() {
                true => Ok(inner),
                false => Err(in_the_way(content, messages::EXPECTED_COMPARISON)),
            }
        });
    }
    require(input, !is_word_of_logic(input), messages::LOGIC)?;
    let left = parse_expr(input, cx)?;
    let ends = input.is_empty() || input.peek(token::Brace);
    let left = match left {
        Expr::Name(name) if ends || input.peek(Token![&&]) || input.peek(Token![||]) => {
            return Ok(Condition::Switch(name));
        }
        left => left,
    };
    require(input, !is_word_of_logic(input), messages::LOGIC)?;
    let comparison = parse_comparison(input)?;
    let right = parse_expr(input, cx)?;
    Ok(Condition::Compare {
        comparison,
        sides: Box::new([left, right]),
    })
}

/// Parentheses with nothing behind them that a value would be an operand of.
fn is_condition_in_parentheses(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    if !fork.peek(token::Paren) || fork.parse::<Group>().is_err() {
        return false;
    }
    fork.is_empty() || fork.peek(token::Brace) || fork.peek(Token![&&]) || fork.peek(Token![||])
}

fn parse_comparison(input: ParseStream<'_>) -> syn::Result<Comparison> {
    let fork = input.fork();
    let mut signs = String::new();
    while let Ok(TokenTree::Punct(sign)) = fork.parse() {
        signs.push(sign.as_char());
        if sign.spacing() == proc_macro2::Spacing::Alone {
            break;
        }
    }
    // `x <-1` is `x < -1`.
    let signs = signs.trim_end_matches('-');
    let Some(comparison) = Comparison::find(signs) else {
        return Err(in_the_way(input, messages::EXPECTED_COMPARISON));
    };
    for _ in 0..signs.len() {
        input.parse::<TokenTree>()?;
    }
    Ok(comparison)
}
