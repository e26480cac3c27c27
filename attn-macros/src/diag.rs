//! The sink for errors: every stage reports here and goes on.

use std::cell::{Cell, RefCell};

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::Token;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;

/// Collects errors, each at the tokens it is about.
#[derive(Default)]
pub(crate) struct Diagnostics {
    errors: RefCell<Vec<syn::Error>>,
    reported: Cell<usize>,
    muted: Cell<bool>,
    mentions: RefCell<Vec<TokenStream>>,
    end: Cell<Option<Span>>,
}

impl Diagnostics {
    /// Reports `message` at `at`.
    pub(crate) fn error(&self, at: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(at, message));
    }

    /// Where the input ends: for errors about what is missing there.
    pub(crate) fn set_end(&self, end: Option<Span>) {
        self.end.set(end);
    }

    /// Reports `message` at the next token, or at the last one if there is none.
    pub(crate) fn here(&self, input: ParseStream<'_>, message: impl std::fmt::Display) {
        let at = match self.end.get() {
            Some(end) if input.is_empty() => end,
            _ => input.span(),
        };
        self.push(syn::Error::new(at, message));
    }

    /// Reports an error of the parser.
    pub(crate) fn push(&self, error: syn::Error) {
        self.reported.set(self.reported.get() + 1);
        if !self.muted.get() {
            self.errors.borrow_mut().push(error);
        }
    }

    /// Says nothing of further errors, which follow from those that are reported. They are counted all the same.
    pub(crate) fn mute(&self) {
        self.muted.set(true);
    }

    /// How many errors there are so far: a stage compares this before and after.
    pub(crate) fn count(&self) -> usize {
        self.reported.get()
    }

    /// Notes a name of the language where the user wrote it, for editors: `key`, or `key::word`. It need not exist, but a
    /// keyword of Rust would break the path.
    pub(crate) fn mention(&self, path: TokenStream) {
        let names = Punctuated::<Ident, Token![::]>::parse_separated_nonempty;
        if names.parse2(path.clone()).is_ok() {
            self.mentions.borrow_mut().push(path);
        }
    }

    /// What was mentioned.
    pub(crate) fn mentions(&self) -> Vec<TokenStream> {
        self.mentions.borrow().clone()
    }

    /// The errors as `compile_error!` items.
    pub(crate) fn into_compile_errors(self) -> TokenStream {
        let errors = self.errors.into_inner();
        errors.iter().map(syn::Error::to_compile_error).collect()
    }
}
