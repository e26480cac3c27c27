//! The constants of a model that only rustc can evaluate. Each is an item of its own with a type, and stands by its name in all that
//! is emitted: a mistake in it is one error, at the user's tokens.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};

use super::sizes::{self, is_value};
use crate::spec::value::{Constant, Size};

pub(crate) struct Constants {
    model: Ident,
    named: Vec<Named>,
    /// `const __Net_1: usize = WIDTH;`
    pub(super) items: Vec<TokenStream>,
}

struct Named {
    ty: &'static str,
    expr: String,
    name: Ident,
}

impl Constants {
    pub(super) fn new(model: &Ident) -> Self {
        Constants {
            model: model.clone(),
            named: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Puts a name in the place of `value`, if only rustc can evaluate it. Equal expressions have one name.
    pub(super) fn name(&mut self, value: &mut dyn Constant) {
        let suffix = (self.items.len() + 1).to_string();
        self.name_as(&suffix, value);
    }

    /// The same, where the name ends in `suffix`, or in that and a number.
    pub(super) fn name_as(&mut self, suffix: &str, value: &mut dyn Constant) {
        let ty = value.ty();
        let Some(tokens) = value.later() else { return };
        *tokens = self.with_names(tokens);
        let expr = tokens.to_string();
        let is_it = |named: &&Named| named.ty == ty && (named.expr == expr || named.name == *expr);
        if let Some(named) = self.named.iter().find(is_it) {
            *tokens = named.name.to_token_stream();
            return;
        }
        let name = self.free_name(suffix);
        self.items.extend(value.name(&name));
        self.named.push(Named { ty, expr, name });
    }

    /// A name that ends in `suffix`, and that no item has: a list in the header of a library may have the name of one in that of the model.
    fn free_name(&self, suffix: &str) -> Ident {
        let first = format_ident!("__{}_{suffix}", self.model);
        let mut name = first.clone();
        let mut count = 1_usize;
        while self.named.iter().any(|named| named.name == name) {
            count += 1;
            name = format_ident!("{first}_{count}");
        }
        name
    }

    /// Gives the item of a size another value: what was reported of the constant is then its only error.
    pub(super) fn give_up(&mut self, size: &Size) {
        let name = size.to_token_stream().to_string();
        let is_it = |item: &&mut TokenStream| {
            let second = (**item).clone().into_iter().nth(1);
            second.is_some_and(|second| second.to_string() == name)
        };
        let Some(item) = self.items.iter_mut().find(is_it) else {
            return;
        };
        // `const`, the name, `:`, `usize`, `=`, and a semicolon at the end.
        let tokens: Vec<TokenTree> = item.clone().into_iter().collect();
        if let Some((start, rest)) = tokens.split_at_checked(5)
            && let Some((end, expr)) = rest.split_last()
        {
            *item = quote!(#(#start)* { let _ = #(#expr)*; 1 } #end);
        }
    }

    /// Drops those behind the `first` ones that nothing of `readers` names.
    pub(super) fn keep(&mut self, first: usize, mut readers: Vec<TokenStream>) {
        let behind = self.items.split_off(first.min(self.items.len()));
        let mut kept = Vec::new();
        // One may name those before it.
        for item in behind.into_iter().rev() {
            // Behind `const`.
            let name = item.clone().into_iter().nth(1);
            let name = name.map(|name| name.to_string());
            let mut named = readers.iter().flat_map(sizes::names);
            if named.any(|other| Some(other.to_string()) == name) {
                readers.push(item.clone());
                kept.push(item);
            }
        }
        self.items.extend(kept.into_iter().rev());
    }

    /// `tokens` with the names of the sizes among the constants in the places of their expressions.
    pub(crate) fn with_names(&self, tokens: &TokenStream) -> TokenStream {
        let expr = tokens.to_string();
        let size = |expr: &str| {
            let mut sizes = self.named.iter().filter(|named| named.ty == "usize");
            sizes.find(|named| named.expr == expr)
        };
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        if let (Some(named), Some(first)) = (size(&expr), tokens.first()) {
            return at(&named.name, first).to_token_stream();
        }
        let replaced = tokens.iter().enumerate().map(|(index, token)| match token {
            TokenTree::Ident(name) => match size(&name.to_string()) {
                Some(named) if is_value(&tokens, index) => at(&named.name, token),
                _ => token.clone(),
            },
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), self.with_names(&group.stream()));
                inner.set_span(group.span());
                inner.into()
            }
            other => other.clone(),
        });
        replaced.collect()
    }
}

/// The name at the place of what it stands for.
fn at(name: &Ident, place: &TokenTree) -> TokenTree {
    let mut name = name.clone();
    name.set_span(name.span().located_at(place.span()));
    name.into()
}
