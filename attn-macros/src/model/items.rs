//! The items behind the header of a model, its functions and its blocks: tokens to drafts.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::parse::ParseStream;
use syn::{Attribute, Token, Visibility, braced, parenthesized, token};

use super::budget;
use super::parse::{parse_arguments, recover, require, tokens_of_argument};
use super::signature::{Takes, parse_input, parse_inputs, parse_results, skip_to_body};
use super::statement::parse_statements;
use super::syntax::{
    Argument, BlockDraft, BudgetDraft, InputDraft, Parameter, Statement, TypeDraft,
};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::expect;

/// The items of a model.
#[derive(Default)]
pub(super) struct Items {
    pub(super) functions: Vec<BlockDraft>,
    pub(super) blocks: Vec<BlockDraft>,
}

/// To the next model, or to the end.
pub(super) fn parse_items(
    model: &Ident,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<Items> {
    let mut items = Items::default();
    if next_item(input).is_none() {
        expect::<Token![fn]>(input, messages::EXPECTED_FORWARD)?;
    }
    while let Some(kind) = next_item(input) {
        let docs = parse_documentation(input, cx)?;
        let vis: Visibility = input.parse()?;
        match kind {
            Kind::Block => items.blocks.push(parse_block((docs, vis), input, cx)?),
            Kind::Function => {
                if !matches!(vis, Visibility::Inherited) {
                    cx.error(vis, messages::VISIBLE_FUNCTION);
                }
                items.functions.push(parse_function(docs, input, cx)?);
            }
        }
    }
    match items.functions.as_slice() {
        [] => cx.error(model, messages::no_forward(model)),
        [only] if only.name != "forward" => cx.error(&only.name, messages::EXPECTED_FORWARD),
        functions if functions.iter().all(|function| function.name != "forward") => {
            cx.error(model, messages::no_forward(model));
        }
        _ => {}
    }
    Ok(items)
}

/// Blocks alone, without a model.
pub(super) fn parse_blocks(
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<Vec<BlockDraft>> {
    let mut blocks = Vec::new();
    while let Some(Kind::Block) = next_item(input) {
        let docs = parse_documentation(input, cx)?;
        let vis = input.parse()?;
        blocks.push(parse_block((docs, vis), input, cx)?);
    }
    Ok(blocks)
}

pub(super) enum Kind {
    Function,
    Block,
}

/// The kind of the item that begins here, behind its documentation.
pub(super) fn next_item(input: ParseStream<'_>) -> Option<Kind> {
    let fork = input.fork();
    fork.call(Attribute::parse_outer).ok()?;
    fork.parse::<Visibility>().ok()?;
    if fork.peek(Token![fn]) {
        return Some(Kind::Function);
    }
    starts_block(&fork).then_some(Kind::Block)
}

/// `block name`
pub(super) fn starts_block(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    fork.parse::<Ident>().is_ok_and(|word| word == "block") && fork.peek(syn::Ident)
}

/// The comments before an item. Other attributes have no meaning here.
fn parse_documentation(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Vec<Attribute>> {
    let (docs, others): (Vec<_>, Vec<_>) = input
        .call(Attribute::parse_outer)?
        .into_iter()
        .partition(|attr| attr.path().is_ident("doc"));
    for attr in others {
        cx.error(attr, messages::ATTRIBUTE_OF_ITEM);
    }
    Ok(docs)
}

/// `fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] { .. }`, perhaps with `<memory = 64 MiB for (batch = 8, seq = 256)>`.
fn parse_function(
    docs: Vec<Attribute>,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<BlockDraft> {
    expect::<Token![fn]>(input, messages::EXPECTED_FORWARD)?;
    let name: Ident = expect(input, messages::EXPECTED_FORWARD)?;
    let budget = parse_keys_of_function(&name, input, cx)?;
    require(input, input.peek(token::Paren), messages::EXPECTED_FORWARD)?;
    let content;
    parenthesized!(content in input);
    let inputs = parse_inputs(&content, cx).into_iter();
    let (results, names, statements) = parse_result_and_body(&name.to_string(), input, cx)?;
    Ok(BlockDraft {
        docs,
        vis: Visibility::Inherited,
        tokens: TokenStream::new(),
        name,
        parameters: inputs.map(Parameter::Operand).collect(),
        results,
        names,
        statements,
        budget,
    })
}

/// `<memory = 64 MiB for (batch = 8, seq = 256)>`, or nothing.
fn parse_keys_of_function(
    name: &Ident,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<Option<BudgetDraft>> {
    let mut budget = None;
    if input.parse::<Option<Token![<]>>()?.is_none() {
        return Ok(budget);
    }
    for Argument { key, value } in parse_arguments(input, cx)? {
        match key {
            Some(key) if key == "memory" && budget.is_some() => {
                cx.error(&key, messages::MEMORY_TWICE);
            }
            Some(key) if key == "memory" => budget = budget::parse(&key, value, cx),
            Some(key) => cx.error(&key, messages::key_of_function(name)),
            None => cx.error(&value, messages::key_of_function(name)),
        }
    }
    Ok(budget)
}

/// `block mlp(x: [.., d_model], hidden) -> [.., d_model] { .. }`
fn parse_block(
    (docs, vis): (Vec<Attribute>, Visibility),
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<BlockDraft> {
    let start: TokenStream = input.fork().parse()?;
    input.parse::<Ident>()?;
    let name: Ident = input.parse()?;
    let message = messages::expected_parameters(&name);
    require(input, input.peek(token::Paren), &message)?;
    let content;
    parenthesized!(content in input);
    let parameters = parse_parameters(&content, cx);
    let (results, names, statements) = parse_result_and_body(&name.to_string(), input, cx)?;
    let rest: TokenStream = input.fork().parse()?;
    let count = |tokens: &TokenStream| tokens.clone().into_iter().count();
    let length = count(&start) - count(&rest);
    let tokens = start.into_iter().take(length);
    Ok(BlockDraft {
        tokens: tokens.collect(),
        docs,
        vis,
        name,
        parameters,
        results,
        names,
        statements,
        budget: None,
    })
}

/// The types of results, their names, and the statements.
type ResultsAndStatements = (Option<Vec<TypeDraft>>, Vec<Ident>, Vec<Statement>);

/// `-> [.., d_model] { .. }`
fn parse_result_and_body(
    of: &str,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<ResultsAndStatements> {
    let results = parse_results(of, input, cx);
    if results.is_err() {
        skip_to_body(input);
    }
    let results = recover(results, input.peek(token::Brace), cx)?;
    let (types, names) = results.map_or_else(Default::default, |results| {
        (Some(results.types), results.names)
    });
    require(
        input,
        input.peek(token::Brace),
        &messages::expected_body(of),
    )?;
    let content;
    braced!(content in input);
    Ok((types, names, parse_statements(&content, cx)))
}

/// `x: [.., d_model], hidden, ..`
fn parse_parameters(input: ParseStream<'_>, cx: &Diagnostics) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    while !input.is_empty() {
        let mut draft = InputDraft::default();
        let parsed = match starts_key(input) {
            true => parse_key(input, cx).map(|key| parameters.push(key)),
            false => parse_input(input, &mut draft, cx).map(|takes| match takes {
                Takes::Input => {
                    if let Some(default) = draft.default.take() {
                        cx.error(default, messages::DEFAULT_IN_BLOCK);
                    }
                    parameters.push(Parameter::Operand(std::mem::take(&mut draft)));
                }
                Takes::Itself => {}
            }),
        };
        if let Err(error) = parsed {
            cx.push(error);
            parameters.push(Parameter::Operand(draft));
            // The rest of it, and the comma, or what is in the way.
            tokens_of_argument(input);
            let _ = input.parse::<TokenTree>();
        }
    }
    parameters
}

/// A name without a shape: `hidden`, `hidden = 256`, or, as others write it, `hidden: usize`.
fn starts_key(input: ParseStream<'_>) -> bool {
    let fork = input.fork();
    if fork.parse::<Ident>().is_err() {
        return false;
    }
    if fork.peek(Token![:]) && !fork.peek(Token![::]) {
        let is_word = fork.peek2(syn::Ident) && !fork.peek3(token::Bracket);
        return is_word;
    }
    fork.is_empty() || fork.peek(Token![,]) || fork.peek(Token![=])
}

fn parse_key(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Parameter> {
    let name: Ident = input.parse()?;
    if input.parse::<Option<Token![:]>>()?.is_some() {
        let ty: Ident = input.parse()?;
        cx.error(&ty, messages::key_with_type(&name));
    }
    let mut default = None;
    if input.parse::<Option<Token![=]>>()?.is_some() {
        let tokens = tokens_of_argument(input);
        if tokens.is_empty() {
            cx.error(&name, messages::size_without_value(&name));
        }
        default = Some(tokens).filter(|tokens| !tokens.is_empty());
    }
    if !input.is_empty() {
        expect::<Token![,]>(input, &messages::expected_parameters(&name))?;
    }
    Ok(Parameter::Key { name, default })
}
