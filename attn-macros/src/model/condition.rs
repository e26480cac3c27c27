//! Tokens to choices: `if x < y && y != 0 { x } else { y }`.

use proc_macro2::{Group, TokenTree};
use syn::parse::ParseStream;
use syn::{Token, braced, parenthesized, token};

use super::expression::{in_the_way, parse_expr};
use super::parse::{read, require};
use super::syntax::{Comparison, Condition, Expr};
use crate::diag::Diagnostics;
use crate::messages::model as messages;

/// From the word `if` on.
pub(super) fn parse_if(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Expr> {
    let at = input.parse::<Token![if]>()?.span;
    let condition = parse_condition(input, cx)?;
    let then = parse_branch(input, cx)?;
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
    let left = parse_expr(input, cx)?;
    let at = input.span();
    let comparison = parse_comparison(input)?;
    let right = parse_expr(input, cx)?;
    Ok(Condition::Compare {
        comparison,
        at,
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
