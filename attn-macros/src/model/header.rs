//! The sizes behind the name of a model: tokens to drafts.

use proc_macro2::{Group, Ident, TokenStream};
use syn::parse::{ParseStream, Parser};
use syn::{Token, token};

use super::parse::parse_arguments;
use super::syntax::{Argument, BudgetDraft, LoraDraft, SizeDraft};
use super::{budget, lora};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::split_at_commas;

/// The constants behind the name of a model.
#[derive(Default)]
pub(super) struct Header {
    pub(super) sizes: Vec<SizeDraft>,
    pub(super) budget: Option<BudgetDraft>,
    pub(super) lora: Option<LoraDraft>,
}

/// `<vocab = 65, heads = HEADS>`, or nothing.
pub(super) fn parse_sizes(
    model: &Ident,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<Header> {
    if input.peek(token::Brace) || input.peek(token::Paren) {
        let group: Group = input.parse()?;
        let entries = split_at_commas(group.stream()).into_iter();
        let sizes: Vec<_> = entries.filter_map(size_with_type).collect();
        cx.error(&group, messages::sizes_in_angles(model, &sizes));
        return Ok(Header {
            sizes,
            ..Header::default()
        });
    }
    let mut header = Header::default();
    if input.parse::<Option<Token![<]>>()?.is_none() {
        return Ok(header);
    }
    let sizes = &mut header.sizes;
    let mut is_reported = false;
    for Argument { key, value } in parse_arguments(input, cx)? {
        if let Some((at, group)) = lora::is_lora(key.as_ref(), &value) {
            match &header.lora {
                Some(_) => cx.error(&at, messages::LORA_TWICE),
                None => header.lora = lora::parse(at, group, cx),
            }
            continue;
        }
        match (key, size_with_type(value.clone())) {
            (Some(key), _) if value.is_empty() => {
                cx.error(&key, messages::size_without_value(&key));
            }
            (Some(key), _) if budget::is_bound(&key, &value) => match &header.budget {
                Some(_) => cx.error(&key, messages::MEMORY_TWICE),
                None => header.budget = budget::parse(&key, value, cx),
            },
            (Some(name), _) => sizes.push(SizeDraft { name, value }),
            (None, Some(size)) => {
                if !std::mem::replace(&mut is_reported, true) {
                    cx.error(&value, messages::size_with_type(&value, &size));
                }
                sizes.push(size);
            }
            (None, None) => cx.error(&value, messages::expected_size(&value)),
        }
    }
    Ok(header)
}

/// `vocab = 65`, and what others write in its place: `vocab: 65`, `vocab: usize = 65`, `const vocab: usize = 65`.
fn size_with_type(tokens: TokenStream) -> Option<SizeDraft> {
    let size = |input: ParseStream<'_>| {
        input.parse::<Option<Token![const]>>()?;
        let name = input.parse()?;
        if input.parse::<Option<Token![:]>>()?.is_some() {
            let fork = input.fork();
            let is_type = fork.parse::<Ident>().is_ok() && fork.peek(Token![=]);
            if is_type {
                input.parse::<Ident>()?;
                input.parse::<Token![=]>()?;
            }
        } else {
            input.parse::<Token![=]>()?;
        }
        let value = input.parse()?;
        Ok(SizeDraft { name, value })
    };
    size.parse2(tokens)
        .ok()
        .filter(|size| !size.value.is_empty())
}
