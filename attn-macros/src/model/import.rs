//! Blocks of other declarations: `use layers::mlp;`.
//!
//! A block that others may use is a macro of its name ([`export`](super::export)), which knows its tokens. A declaration with a `use` expands to
//! a call of that macro with the declaration, and the macro calls `model!` again, with its tokens in front:
//!
//! ```text
//! [$crate] use layers::{mlp, head as last}; struct Net<..>; ..
//! layers::mlp! { [$crate] (mlp) [$crate] use layers::head as last; struct Net<..>; .. }
//! @ { block mlp(..) -> .. { .. } } (mlp) [$crate] use layers::head as last; struct Net<..>; ..
//! ```
//!
//! So a block is lowered where it is called, as one of the declaration itself.

use std::cell::Cell;
use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{ItemUse, Token, UseTree, parenthesized, token};

use super::header::parse_sizes;
use super::items::parse_blocks;
use super::syntax::{BlockDraft, SizeDraft};
use crate::diag::Diagnostics;
use crate::fragments;
use crate::messages::model as messages;

/// A block of another declaration, under its name here.
pub(crate) struct Import {
    pub(crate) name: Ident,
    /// `None` if it has a mistake, which was reported where it is declared.
    pub(crate) library: Option<Library>,
    pub(crate) is_called: Rc<Cell<bool>>,
}

/// A block, and what it calls.
pub(crate) struct Library {
    /// The sizes of its declaration that these name.
    pub(crate) sizes: Vec<SizeDraft>,
    pub(crate) imports: Vec<Import>,
    /// The block is the first one.
    pub(crate) blocks: Vec<BlockDraft>,
}

/// Puts what a block has in front of a declaration behind its `[$crate]`.
pub(crate) fn arrived(input: TokenStream) -> TokenStream {
    let mut rest = input.clone().into_iter();
    let first = rest.next();
    if !matches!(&first, Some(TokenTree::Punct(sign)) if sign.as_char() == '@') {
        return input;
    }
    let block: Vec<TokenTree> = first.into_iter().chain(rest.by_ref().take(2)).collect();
    let header: Option<TokenTree> = rest.next();
    header.into_iter().chain(block).chain(rest).collect()
}

/// The call of the first block that a `use` names, with the rest of the declaration. `None` if there is none.
///
/// `input` begins with `[$crate]`.
pub(crate) fn next(input: &TokenStream, in_editor: bool, cx: &Diagnostics) -> Option<TokenStream> {
    let tokens: Vec<TokenTree> = fragments::of_models(input.clone()).into_iter().collect();
    let is_use = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word == "use");
    let is_end =
        |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ';');
    let start = tokens.iter().position(is_use)?;
    let length = tokens[start..].iter().position(is_end);
    let length = length.unwrap_or(tokens.len() - start - 1);
    let (TokenTree::Group(header), before) = tokens[..start].split_first()? else {
        return None;
    };
    if let Some(vis) = visibility_at_the_end(before) {
        cx.error(vis, messages::PUB_USE);
    }
    let item: TokenStream = tokens[start..=start + length].iter().cloned().collect();
    let names = names_of(item, cx);
    if cx.count() > 0 {
        // Nothing is known of what it names.
        cx.mute();
        return None;
    }
    let ((path, name), others) = names.split_first()?;
    let others = others
        .iter()
        .map(|(path, name)| quote!(use #path as #name;));
    let krate = header.stream();
    let editor = in_editor.then(|| quote!(editor));
    let behind = &tokens[start + length + 1..];
    Some(quote! {
        #path! { [#krate] (#name) [#editor #krate] #(#before)* #(#others)* #(#behind)* }
    })
}

/// The path of each block, and its name here.
fn names_of(item: TokenStream, cx: &Diagnostics) -> Vec<(TokenStream, Ident)> {
    let parsed = syn::parse2::<ItemUse>(item.clone());
    let names = parsed.and_then(|item| {
        let mut names = Vec::new();
        let colons = item.leading_colon;
        flatten(&item.tree, &quote!(#colons), &mut names)?;
        Ok(names)
    });
    let names = names.unwrap_or_default();
    if names.is_empty() {
        cx.error(item, messages::EXPECTED_USE);
    }
    names
}

/// The word of `pub`, or of `pub(crate)`.
fn visibility_at_the_end(tokens: &[TokenTree]) -> Option<&Ident> {
    let word = match tokens {
        [.., word, TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => word,
        [.., word] => word,
        [] => return None,
    };
    match word {
        TokenTree::Ident(word) if word == "pub" => Some(word),
        _ => None,
    }
}

/// Without what a `use` with a mistake leaves behind.
pub(super) fn without_uses(input: TokenStream) -> TokenStream {
    let mut rest = TokenStream::new();
    let mut is_in_use = false;
    for token in input {
        is_in_use |= matches!(&token, TokenTree::Ident(word) if word == "use");
        let is_end = matches!(&token, TokenTree::Punct(sign) if sign.as_char() == ';');
        if !is_in_use {
            rest.extend([token]);
        }
        is_in_use &= !is_end;
    }
    rest
}

fn flatten(
    tree: &UseTree,
    before: &TokenStream,
    names: &mut Vec<(TokenStream, Ident)>,
) -> syn::Result<()> {
    match tree {
        UseTree::Path(path) => {
            let name = &path.ident;
            flatten(&path.tree, &quote!(#before #name::), names)
        }
        UseTree::Name(name) if name.ident != "self" => {
            let name = &name.ident;
            names.push((quote!(#before #name), name.clone()));
            Ok(())
        }
        UseTree::Rename(rename) if rename.ident != "self" && rename.rename != "_" => {
            let name = &rename.ident;
            names.push((quote!(#before #name), rename.rename.clone()));
            Ok(())
        }
        UseTree::Group(group) => {
            let mut trees = group.items.iter();
            trees.try_for_each(|tree| flatten(tree, before, names))
        }
        other => Err(syn::Error::new_spanned(other, messages::EXPECTED_USE)),
    }
}

/// The blocks in front of a declaration: `@ { blocks } (name)`, once for each `use`.
pub(super) fn take(input: ParseStream<'_>) -> syn::Result<Vec<(Group, Ident)>> {
    let mut imports = Vec::new();
    while input.peek(Token![@]) && input.peek2(token::Brace) {
        input.parse::<Token![@]>()?;
        let blocks = input.parse()?;
        let name;
        parenthesized!(name in input);
        imports.push((blocks, name.parse()?));
    }
    Ok(imports)
}

impl Import {
    /// The tokens in the braces were checked where they are declared.
    pub(super) fn parse(blocks: &Group, name: &Ident, is_called: Rc<Cell<bool>>) -> Self {
        let quiet = Diagnostics::default();
        let library = (|input: ParseStream<'_>| parse_library(name, input, &quiet))
            .parse2(blocks.stream())
            .ok();
        let is_sound = |library: &Library| quiet.count() == 0 && !library.blocks.is_empty();
        Import {
            name: name.clone(),
            library: library.filter(is_sound),
            is_called,
        }
    }
}

fn parse_library(name: &Ident, input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Library> {
    let header = parse_sizes(name, input, cx)?;
    let imports = take(input)?.into_iter();
    let imports = imports.map(|(blocks, name)| Import::parse(&blocks, &name, Rc::default()));
    let imports = imports.collect();
    Ok(Library {
        sizes: header.sizes,
        imports,
        blocks: parse_blocks(input, cx)?,
    })
}
