//! Blocks that other declarations use: `pub block mlp(..) -> .. { .. }`.
//!
//! ```text
//! #[macro_export]
//! macro_rules! __attn_mlp_4f.. {
//!     ([$($attn:tt)*] $($rest:tt)*) => { $($attn)*::__private::model! { @ { <sizes> blocks } $($rest)* } };
//! }
//! pub use __attn_mlp_4f.. as mlp;
//! ```
//!
//! The name of a macro that is exported is one of the crate, so it is made of the place of the block. `use` gives it that of the block, where
//! the block stands. [`import`](super::import) calls it.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Visibility};

use super::syntax::{BlockDraft, SizeDraft};
use super::{Declarations, sizes, syntax};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::Item;

/// The names of a declaration that its blocks read.
struct Surroundings<'d> {
    sizes: &'d [SizeDraft],
    /// Blocks of other declarations, as they arrived.
    imports: &'d [(Group, Ident)],
    blocks: &'d [BlockDraft],
}

/// A block for others.
pub(crate) struct Export {
    /// Its model, if there is one, and the `cfg` attributes of that.
    model: Option<Ident>,
    cfgs: Vec<Attribute>,
    docs: Vec<Attribute>,
    vis: Visibility,
    name: Ident,
    /// The block, and what it reads.
    library: TokenStream,
}

impl Declarations {
    /// The blocks that other declarations may use.
    pub(crate) fn exports(&self, cx: &Diagnostics) -> Vec<Export> {
        let imports = &self.imports;
        let alone = Surroundings {
            sizes: &[],
            imports,
            blocks: &self.blocks,
        };
        alone.report_unreached(cx);
        for ((_, name), is_called) in imports.iter().zip(&self.calls) {
            is_called.set(self.blocks.iter().any(|block| block.mentions(name)));
        }
        let mut exports = alone.exports(None, cx);
        for model in &self.models {
            let surroundings = Surroundings {
                sizes: &model.sizes,
                imports,
                blocks: &model.blocks,
            };
            exports.extend(surroundings.exports(Some(&model.item), cx));
        }
        without_clashes(exports, cx)
    }
}

/// Those whose names are not taken by one before them.
fn without_clashes(found: Vec<Export>, cx: &Diagnostics) -> Vec<Export> {
    let mut exports: Vec<Export> = Vec::new();
    for export in found {
        if exports.iter().any(|other| other.clashes_with(&export)) {
            let message = messages::block_twice(&export.name, false);
            cx.error(&export.name, message);
        } else {
            exports.push(export);
        }
    }
    exports
}

impl Surroundings<'_> {
    /// `item` is the model around the blocks.
    fn exports(&self, item: Option<&Item>, cx: &Diagnostics) -> Vec<Export> {
        let shared = self.blocks.iter().filter(|block| block.is_shared());
        let cfgs = item.into_iter().flat_map(Item::cfgs);
        let cfgs: Vec<Attribute> = cfgs.cloned().collect();
        let mut reported = BTreeSet::new();
        shared
            .map(|block| Export {
                model: item.map(|item| item.name.clone()),
                cfgs: cfgs.clone(),
                docs: block.docs.clone(),
                vis: block.vis.clone(),
                name: block.name.clone(),
                library: self.library(block, &mut reported, cx),
            })
            .collect()
    }

    /// Without a model, every block has to be there for others.
    fn report_unreached(&self, cx: &Diagnostics) {
        let shared = self.blocks.iter().filter(|block| block.is_shared());
        let reached: Vec<_> = shared.flat_map(|block| self.reached(block)).collect();
        for BlockDraft { name, .. } in self.blocks {
            if !reached.iter().any(|block| block.name == *name) {
                cx.error(name, messages::PRIVATE_BLOCK);
            }
        }
    }

    /// `<sizes> @ { .. } (other) block mlp(..) -> .. { .. } ..`
    fn library(
        &self,
        block: &BlockDraft,
        reported: &mut BTreeSet<String>,
        cx: &Diagnostics,
    ) -> TokenStream {
        let blocks = self.reached(block);
        let mut names = BTreeSet::new();
        for block in &blocks {
            if reported.insert(block.name.to_string()) {
                self.check(block, cx);
            }
            names.extend(self.sizes_in(block));
        }
        // A size may be computed of those before it.
        for size in self.sizes.iter().rev() {
            if names.contains(&size.name.to_string()) {
                names.extend(words(&size.value).iter().map(Ident::to_string));
            }
        }
        let sizes = self.sizes.iter();
        let sizes = sizes.filter(|size| names.contains(&size.name.to_string()));
        let sizes: Vec<_> = sizes
            .map(|SizeDraft { name, value }| quote!(#name = #value))
            .collect();
        let header = (!sizes.is_empty()).then(|| quote!(<#(#sizes),*>));
        let calls = |name: &Ident| blocks.iter().any(|block| block.mentions(name));
        let imports = self.imports.iter().filter(|(_, name)| calls(name));
        let imports = imports.map(|(library, name)| quote!(@ #library (#name)));
        let tokens = blocks.iter().map(|block| &block.tokens);
        quote!(#header #(#imports)* #(#tokens)*)
    }

    /// The block itself, and those that it calls.
    fn reached<'b>(&'b self, block: &'b BlockDraft) -> Vec<&'b BlockDraft> {
        let mut reached = vec![block];
        let mut next = 0;
        while let Some(&block) = reached.get(next) {
            let is_new = |other: &&BlockDraft| {
                block.mentions(&other.name) && !reached.iter().any(|known| known.name == other.name)
            };
            let new: Vec<_> = self.blocks.iter().filter(is_new).collect();
            reached.extend(new);
            next += 1;
        }
        reached
    }

    /// The sizes of the header that a block names.
    fn sizes_in(&self, block: &BlockDraft) -> BTreeSet<String> {
        let keys: Vec<_> = block.keys().map(|(key, _)| key).collect();
        let words = words(&block.tokens).into_iter();
        let of_header = words.filter(|word| {
            !keys.contains(&word) && self.sizes.iter().any(|size| size.name == *word)
        });
        of_header.map(|word| word.to_string()).collect()
    }

    /// Nothing in it may have a meaning where it is declared only.
    fn check(&self, block: &BlockDraft, cx: &Diagnostics) {
        let mut known = block.keys().map(|(key, _)| key.clone()).collect();
        check_tokens(&block.tokens, &mut known, &mut |word| {
            let message = match word == "module" {
                true => messages::module_in_shared_block(&block.name),
                false => messages::constant_in_shared_block(&block.name, word),
            };
            cx.error(word, message);
        });
        for size in self.sizes_in(block) {
            let size = self.sizes.iter().find(|other| other.name == size);
            let Some(SizeDraft { name, value }) = size else {
                continue;
            };
            let is_own = |word: &&Ident| !self.sizes.iter().any(|size| size.name == **word);
            let mut of_others: Vec<Ident> =
                sizes::names(value).iter().filter(is_own).cloned().collect();
            let mut known = self.sizes.iter().map(|size| size.name.clone()).collect();
            check_tokens(value, &mut known, &mut |word| of_others.push(word.clone()));
            if let Some(constant) = of_others.first() {
                let at = words(&block.tokens).into_iter().find(|word| word == name);
                let message = messages::size_of_shared_block(&block.name, name, constant);
                cx.error(at.as_ref().unwrap_or(&block.name), message);
            }
        }
    }
}

/// Reports constants, paths and types: elsewhere they may be others, or none. Once each, and no key. Nothing is read behind `module::`.
fn check_tokens(tokens: &TokenStream, known: &mut Vec<Ident>, report: &mut dyn FnMut(&Ident)) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is_colon = |index: usize| matches!(tokens.get(index), Some(TokenTree::Punct(sign)) if sign.as_char() == ':');
    let colons = |index: usize| is_colon(index) && is_colon(index + 1);
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        match token {
            TokenTree::Group(group) => check_tokens(&group.stream(), known, report),
            TokenTree::Ident(word) if word == "module" && colons(index + 1) => {
                report(word);
                return;
            }
            TokenTree::Ident(word) => {
                let goes_on = |index: usize| {
                    colons(index + 1) && matches!(tokens.get(index + 3), Some(TokenTree::Ident(_)))
                };
                let is_elsewhere = goes_on(index) || syntax::is_name_of_constant(&word.to_string());
                if is_elsewhere && !known.contains(word) {
                    report(word);
                    known.push(word.clone());
                }
                while goes_on(index) {
                    index += 3;
                }
            }
            _ => {}
        }
        index += 1;
    }
}

/// All names.
fn words(tokens: &TokenStream) -> Vec<Ident> {
    let words = tokens.clone().into_iter().flat_map(|token| match token {
        TokenTree::Ident(word) => vec![word],
        TokenTree::Group(group) => words(&group.stream()),
        _ => Vec::new(),
    });
    words.collect()
}

impl BlockDraft {
    /// Whether other declarations may use it.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self.vis, Visibility::Inherited)
    }

    fn mentions(&self, name: &Ident) -> bool {
        words(&self.tokens).contains(name)
    }
}

impl Export {
    /// The macro. After a mistake it has nothing in it, and what uses it says nothing of that.
    pub(crate) fn emit(&self, is_sound: bool) -> TokenStream {
        let Export {
            cfgs,
            docs,
            vis,
            name,
            library,
            ..
        } = self;
        let library = is_sound.then_some(library);
        let hidden = self.name_of_macro();
        let export = matches!(vis, Visibility::Public(_)).then(|| quote!(#[macro_export]));
        quote! {
            #(#cfgs)*
            #[doc(hidden)]
            #[allow(unused_macros, non_local_definitions)]
            #export
            macro_rules! #hidden {
                ([$($attn:tt)*] $($rest:tt)*) => {
                    $($attn)*::__private::model! { @ { #library } $($rest)* }
                };
            }
            #(#cfgs)*
            #(#docs)*
            #[doc(inline)]
            #[allow(unused_imports, unreachable_pub)]
            #vis use #hidden as #name;
        }
    }

    /// Whether both would be one item. Alternatives of `#[cfg]` may have one name, and a model checks its own blocks.
    fn clashes_with(&self, other: &Export) -> bool {
        let are_of_one_model = self.model.is_some() && self.model == other.model;
        let are_always_there = self.cfgs.is_empty() && other.cfgs.is_empty();
        self.name == other.name && are_always_there && !are_of_one_model
    }

    /// No other block of the crate has it.
    fn name_of_macro(&self) -> Ident {
        let mut place = DefaultHasher::new();
        format!("{:?}", self.name.span()).hash(&mut place);
        self.library.to_string().hash(&mut place);
        format_ident!("__attn_{}_{:016x}", self.name.unraw(), place.finish())
    }
}
