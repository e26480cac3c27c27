//! Editor support for a declaration: the names that are possible at each place, and their documentation.
//!
//! rust-analyzer maps a name of the input to the expansion. There it resolves the name, and completes it if it is incomplete. So
//! the names of the input are repeated in front of the expansion, as paths that end in the user's own tokens. [`items`] has the
//! names of the language, each with its documentation. The names of a declaration, such as its variables, are in modules beside
//! the paths ([`names`]). A path into a module offers exactly its names.
//!
//! Declarations in an editor are usually incomplete, so they are not parsed: [`header`] and [`body`] walk the tokens of a layer,
//! [`network`] those of a model, with [`scan`] for its scans. Where a name is possible but missing, a path is emitted nevertheless: rust-analyzer expands the
//! text as it is and with a name at the cursor, and searches the first expansion for the position in the second.
//!
//! The facade requests this under `cfg(rust_analyzer)` only. For rustc nothing is walked, and nothing is emitted.

mod body;
mod header;
mod items;
mod names;
mod network;
mod scan;
mod signature;
mod statement;
mod tokens;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::quote;

use crate::diag::Diagnostics;
pub(crate) use items::items;
use names::Names;
use tokens::Tokens;

/// Whether the facade's macro calls it for an editor: the input begins with `[editor $crate]` instead of `[$crate]`, which is
/// restored.
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
            body::walk(&mut names, &mut inner, None);
        }
    }
    names.emit()
}

/// The names in the models that `input` declares, with the shapes that `cx` has for them.
pub(crate) fn models(
    krate: &TokenStream,
    input: TokenStream,
    imports: &[(Group, Ident)],
    cx: &Diagnostics,
) -> TokenStream {
    let mut names = Names::new(krate);
    let mut tokens = Tokens::new(input.clone());
    let mut is_model = false;
    while item(&mut tokens).is_some() {
        is_model = true;
        signature::walk(&mut names, &mut tokens, imports, cx);
    }
    if !is_model {
        // Blocks alone stand behind the path of the crate and the blocks that they call.
        let declared = input.into_iter().skip(1 + 3 * imports.len());
        signature::walk(
            &mut names,
            &mut Tokens::new(declared.collect()),
            imports,
            cx,
        );
    }
    names.emit()
}

/// Skips to the end of the name of the next struct.
fn item(tokens: &mut Tokens) -> Option<Ident> {
    while let Some(token) = tokens.next() {
        if matches!(token, TokenTree::Ident(word) if word == "struct") {
            return tokens.take_ident();
        }
    }
    None
}
