//! Editor support for a declaration: the names that may stand at each place, and their documentation.
//!
//! rust-analyzer looks at what a name of the input becomes in the expansion: there it resolves it, and completes it where it is half a
//! word. So what is written is said once more in front of the expansion, as paths that end in the user's own names. [`items`] is where
//! the names of the language are, each with its documentation; the names of a declaration, as its variables, are in modules beside the
//! paths ([`names`]). A path into a module offers what is in it, and nothing else.
//!
//! Declarations are half written here most of the time, so nothing is parsed: the tokens are walked, [`header`] and [`body`] for a
//! layer, [`network`] for a model. Where a name may stand and none does, there is a path all the same: rust-analyzer expands the text
//! as it is and with a name at the cursor, and looks in the first expansion for what the second says of it.
//!
//! The facade asks for all of this under `cfg(rust_analyzer)` only. For rustc nothing is walked, and nothing emitted.

mod body;
mod header;
mod items;
mod names;
mod network;
mod tokens;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::quote;

use crate::diag::Diagnostics;
pub(crate) use items::items;
use names::Names;
use tokens::Tokens;

/// Whether the facade's macro speaks to an editor: `[editor $crate]` stands in front instead of `[$crate]`, which is what is left.
pub(crate) fn asks(input: TokenStream) -> (TokenStream, bool) {
    let mut rest = input.clone().into_iter();
    let Some(TokenTree::Group(group)) = rest.next() else {
        return (input, false);
    };
    let mut path = group.stream().into_iter();
    match path.next() {
        Some(TokenTree::Ident(word)) if word == "editor" => {
            let path: TokenStream = path.collect();
            (quote!([#path]).into_iter().chain(rest).collect(), true)
        }
        _ => (input, false),
    }
}

/// The names in the layers that `input` declares.
pub(crate) fn layers(krate: &TokenStream, input: TokenStream) -> TokenStream {
    let mut names = Names::new(krate);
    let mut tokens = Tokens::new(input);
    while item(&mut tokens).is_some() {
        if tokens.take('<') {
            header::walk(&mut names, &mut tokens);
        }
        if let Some(mut inner) = tokens.take_group(Delimiter::Brace) {
            body::walk(&mut names, &mut inner);
        }
    }
    names.emit()
}

/// The names in the models that `input` declares, with the shapes that `cx` has of them.
pub(crate) fn models(krate: &TokenStream, input: TokenStream, cx: &Diagnostics) -> TokenStream {
    let mut names = Names::new(krate);
    let mut tokens = Tokens::new(input);
    while item(&mut tokens).is_some() {
        network::walk(&mut names, &mut tokens, cx);
    }
    names.emit()
}

/// To behind the name of the next struct.
fn item(tokens: &mut Tokens) -> Option<Ident> {
    while let Some(token) = tokens.next() {
        if matches!(token, TokenTree::Ident(word) if word == "struct") {
            return tokens.take_ident();
        }
    }
    None
}
