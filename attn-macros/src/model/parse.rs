//! Tokens to [`ModelDraft`]s.

use std::cell::Cell;
use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Token, Visibility, token};

use super::header::parse_sizes;
use super::import::{self, Import};
use super::items::{Kind, next_item, parse_blocks, parse_items};
use super::syntax::{Argument, BlockDraft, ModelDraft};
use crate::diag::Diagnostics;
use crate::fragments;
use crate::messages::model as messages;
use crate::spec::{Item, expect, has_next_entry, parse_crate, tokens_of_entry};

/// The declarations of a macro.
#[derive(Default)]
pub(crate) struct Declarations {
    pub(crate) krate: TokenStream,
    pub(crate) models: Vec<ModelDraft>,
    /// Without a model.
    pub(crate) blocks: Vec<BlockDraft>,
    /// Blocks of other declarations, which all of these may call.
    pub(crate) imports: Vec<(Group, Ident)>,
    /// Whether one of them calls it.
    pub(crate) calls: Vec<Rc<Cell<bool>>>,
}

/// Everything in `input`: the path of the facade crate, then the declarations.
pub(crate) fn parse(input: TokenStream, cx: &Diagnostics) -> Declarations {
    let input = import::without_uses(fragments::of_models(input));
    cx.set_end(input.clone().into_iter().last().map(|token| token.span()));
    let parser = |input: ParseStream<'_>| parse_declarations(input, cx);
    parser.parse2(input).unwrap_or_else(|error| {
        cx.push(error);
        Declarations {
            krate: quote!(::attn),
            ..Declarations::default()
        }
    })
}

fn parse_declarations(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Declarations> {
    let mut declarations = Declarations {
        krate: parse_crate(input),
        imports: import::take(input)?,
        ..Declarations::default()
    };
    let imports = declarations.imports.iter();
    declarations.calls = imports.map(|_| Rc::default()).collect();
    // Perhaps all of it was a comment, which is reported.
    if input.is_empty() && cx.count() == 0 {
        cx.here(input, messages::EMPTY);
    }
    while !input.is_empty() {
        if declarations.models.is_empty() && matches!(next_item(input), Some(Kind::Block)) {
            declarations.blocks = recovered_blocks(input, cx)?;
            continue;
        }
        match parse_model(input, cx) {
            Ok(draft) => declarations.push(draft, cx),
            Err(error) if input.is_empty() => cx.here(input, error),
            Err(error) => {
                cx.push(error);
                // Nothing tells where the next declaration starts.
                input.parse::<TokenStream>()?;
            }
        }
    }
    if let [block, ..] = declarations.blocks.as_slice()
        && !declarations.models.is_empty()
    {
        cx.error(&block.name, messages::BLOCKS_BEFORE_STRUCT);
    }
    Ok(declarations)
}

impl Declarations {
    /// Adds `draft`, which may call the imported blocks, unless its name is taken. (Alternatives of `#[cfg]` may have one name.)
    fn push(&mut self, mut draft: ModelDraft, cx: &Diagnostics) {
        let Item { name, .. } = &draft.item;
        let clashes = |other: &ModelDraft| {
            other.item.name == *name && other.item.cfgs().chain(draft.item.cfgs()).count() == 0
        };
        if self.models.iter().any(clashes) {
            cx.error(name, messages::model_twice(name));
            return;
        }
        let imports = self.imports.iter().zip(&self.calls);
        let imports = imports
            .map(|((blocks, name), is_called)| Import::parse(blocks, name, Rc::clone(is_called)));
        draft.imports = imports.collect();
        self.models.push(draft);
    }
}

/// Blocks without a model. After a mistake the rest is skipped.
fn recovered_blocks(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Vec<BlockDraft>> {
    parse_blocks(input, cx).or_else(|error| {
        cx.push(error);
        input.parse::<TokenStream>()?;
        Ok(Vec::new())
    })
}

fn parse_model(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<ModelDraft> {
    let before = cx.count();
    let attrs = input.call(Attribute::parse_outer)?;
    let vis: Visibility = input.parse()?;
    expect::<Token![struct]>(input, messages::EXPECTED_STRUCT)?;
    let name: Ident = expect(input, messages::EXPECTED_NAME)?;
    let is_in_braces = input.peek(token::Brace);
    let header = parse_sizes(&name, input, cx)?;
    if !is_in_braces || input.peek(Token![;]) {
        let end = expect::<Token![;]>(input, messages::EXPECTED_SEMICOLON);
        recover(end, next_item(input).is_some(), cx)?;
    }
    let items = parse_items(&name, input, cx)?;
    Ok(ModelDraft {
        item: Item { attrs, vis, name },
        sizes: header.sizes,
        budget: header.budget,
        lora: header.lora,
        functions: items.functions,
        blocks: items.blocks,
        imports: Vec::new(),
        poisoned: cx.count() > before,
    })
}

/// The parsed value, or nothing after a mistake. The tokens behind it can be read in both cases.
pub(super) fn recover<T>(
    parsed: syn::Result<T>,
    goes_on: bool,
    cx: &Diagnostics,
) -> syn::Result<Option<T>> {
    match parsed {
        Err(error) if goes_on => {
            cx.push(error);
            Ok(None)
        }
        parsed => parsed.map(Some),
    }
}

pub(super) fn require(input: ParseStream<'_>, holds: bool, message: &str) -> syn::Result<()> {
    if holds {
        Ok(())
    } else {
        Err(syn::Error::new(input.span(), message))
    }
}

/// Reads the content of a group. After a mistake the rest of it is skipped: syn would report it as well.
pub(super) fn read<T>(
    content: ParseStream<'_>,
    parse: impl FnOnce(ParseStream<'_>) -> syn::Result<T>,
) -> syn::Result<T> {
    let parsed = parse(content);
    if parsed.is_err() {
        skip_to_end(content)?;
    }
    parsed
}

fn skip_to_end(content: ParseStream<'_>) -> syn::Result<()> {
    content.parse::<TokenStream>().map(drop)
}

/// `a, key = b, ..>`, after the `<`.
pub(super) fn parse_arguments(
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<Vec<Argument>> {
    let mut arguments = Vec::new();
    while !input.peek(Token![>]) {
        let at = input.span();
        let tokens = tokens_of_argument(input);
        if tokens.is_empty() {
            return Err(syn::Error::new(at, messages::EXPECTED_ARGUMENT));
        }
        arguments.push(argument(tokens));
        if !has_next_entry(input, cx) {
            break;
        }
    }
    expect::<Token![>]>(input, messages::UNCLOSED)?;
    Ok(arguments)
}

/// The tokens before the next comma or the closing `>`. What stands between `<` and `>` is part of a type.
pub(super) fn tokens_of_argument(input: ParseStream<'_>) -> TokenStream {
    let mut tokens = tokens_of_entry(input);
    let mut depth = angles(&tokens);
    while depth > 0 && !input.is_empty() && !input.peek(Token![;]) {
        let Ok(token) = input.parse::<TokenTree>() else {
            break;
        };
        tokens.extend([token]);
        tokens.extend(tokens_of_entry(input));
        depth = angles(&tokens);
    }
    tokens
}

/// How many `<` are open at the end of these tokens.
fn angles(tokens: &TokenStream) -> isize {
    let sides = tokens.clone().into_iter().map(|token| match token {
        TokenTree::Punct(punct) if punct.as_char() == '<' => 1,
        TokenTree::Punct(punct) if punct.as_char() == '>' => -1,
        _ => 0,
    });
    sides.sum()
}

pub(super) fn argument(tokens: TokenStream) -> Argument {
    let mut rest = tokens.clone().into_iter();
    match (rest.next(), rest.next()) {
        (Some(TokenTree::Ident(key)), Some(TokenTree::Punct(punct))) if punct.as_char() == '=' => {
            Argument {
                key: Some(key),
                value: rest.collect(),
            }
        }
        _ => Argument {
            key: None,
            value: tokens,
        },
    }
}

/// To the end, past the next `;`, or past braces that a statement follows.
pub(super) fn skip(input: ParseStream<'_>) {
    while let Ok(token) = input.parse::<TokenTree>() {
        let ends = match &token {
            TokenTree::Punct(punct) => punct.as_char() == ';',
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                input.peek(Token![let]) || input.peek(syn::Ident)
            }
            _ => false,
        };
        if ends {
            break;
        }
    }
}
