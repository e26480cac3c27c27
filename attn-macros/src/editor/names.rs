//! The names of the input: paths, and the modules that the paths lead into.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

use super::tokens::Tokens;

/// The paths to names in the order in which these stand in the input, and the modules of names that it declares.
pub(super) struct Names<'a> {
    krate: &'a TokenStream,
    paths: TokenStream,
    constants: TokenStream,
    scopes: TokenStream,
    count: usize,
}

/// A module of names.
#[derive(Clone, Copy)]
pub(super) struct Scope(usize);

/// A name that a declaration introduces, and its hover text.
#[derive(Clone)]
pub(super) struct Own {
    pub(super) name: Ident,
    pub(super) doc: String,
}

impl<'a> Names<'a> {
    pub(super) fn new(krate: &'a TokenStream) -> Self {
        Names {
            krate,
            paths: TokenStream::new(),
            constants: TokenStream::new(),
            scopes: TokenStream::new(),
            count: 0,
        }
    }

    /// A name of the language, or its place if it is missing. `module` is the module of [`items`](super::items()) with all names
    /// that are possible there.
    pub(super) fn language(&mut self, module: &str, name: Option<&Ident>) {
        let module = self.module(module);
        self.path(&module, name);
    }

    /// A name of the declaration, or its place if it is missing.
    pub(super) fn own(&mut self, scope: Scope, name: Option<&Ident>) {
        let module = module_of(scope);
        self.path(&quote!(names::#module), name);
    }

    /// A value of Rust: names in it are those of the program.
    pub(super) fn constant(&mut self, value: &[TokenTree]) {
        let nothing = Some(placeholder()).filter(|_| value.is_empty());
        self.constants
            .extend(quote!(const _: usize = { #(#value)* #nothing };));
    }

    /// A type of Rust.
    pub(super) fn ty(&mut self, ty: &[TokenTree]) {
        let nothing = Some(placeholder()).filter(|_| ty.is_empty());
        self.constants
            .extend(quote!(const _: fn(#(#ty)* #nothing) = |_| ();));
    }

    /// A module of names: all of `around`, of these modules of the language, and `own`, which shadow others of the same name.
    pub(super) fn scope(&mut self, around: &[Scope], language: &[&str], own: &[Own]) -> Scope {
        let around = around.iter().map(|scope| module_of(*scope));
        let language: Vec<_> = language.iter().map(|module| self.module(module)).collect();
        let mut known: Vec<&Ident> = Vec::new();
        let mut items = TokenStream::new();
        for Own { name, doc } in own {
            if is_name(&name.to_string()) && !known.contains(&name) {
                known.push(name);
                items.extend(quote!(#[doc = #doc] pub const #name: () = ();));
            }
        }
        let scope = Scope(self.count);
        let name = module_of(scope);
        self.count += 1;
        self.scopes.extend(quote! {
            pub mod #name {
                #(pub use super::#around::*;)*
                #(pub use #language::*;)*
                #items
            }
        });
        scope
    }

    /// The paths come first: they start at the same place in the expansions with and without the name at the cursor.
    pub(super) fn emit(self) -> TokenStream {
        let Names {
            paths,
            constants,
            scopes,
            ..
        } = self;
        quote! {
            #constants
            const _: () = {
                fn mentioned() { #paths }
                #[allow(non_upper_case_globals)]
                mod names { #scopes }
            };
        }
    }

    fn module(&self, path: &str) -> TokenStream {
        let krate = self.krate;
        let path = path.split("::").map(|part| format_ident!("{part}"));
        quote!(#krate::__private::keys #(::#path)*)
    }

    fn path(&mut self, module: &TokenStream, name: Option<&Ident>) {
        let nothing = placeholder();
        let name = name.unwrap_or(&nothing);
        if is_name(&name.to_string()) {
            self.paths.extend(quote!(#module::#name;));
        }
    }
}

fn module_of(Scope(number): Scope) -> Ident {
    format_ident!("scope_{number}")
}

/// The placeholder of a missing name.
fn placeholder() -> Ident {
    Ident::new("nothing", Span::call_site())
}

/// Whether it is no keyword of Rust, which would break a path.
pub(super) fn is_name(name: &str) -> bool {
    syn::parse_str::<Ident>(name).is_ok()
}

/// Constants are written in capitals.
pub(super) fn is_constant(name: &Ident) -> bool {
    name.unraw().to_string().starts_with(char::is_uppercase)
}

/// A value that rustc computes, in which `sizes` are possible besides the constants of the program.
pub(super) fn size(names: &mut Names<'_>, value: &Tokens, sizes: Option<Scope>) {
    let is_path = value.rest().windows(2).any(|pair| {
        pair.iter()
            .all(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':'))
    });
    match sizes {
        Some(sizes) if !is_path => sizes_in(names, value.rest(), sizes),
        _ => names.constant(value.rest()),
    }
}

fn sizes_in(names: &mut Names<'_>, value: &[TokenTree], sizes: Scope) {
    if value.is_empty() {
        names.own(sizes, None);
    }
    for token in value {
        match token {
            TokenTree::Ident(name) if is_constant(name) => {
                names.constant(std::slice::from_ref(token))
            }
            TokenTree::Ident(name) => names.own(sizes, Some(name)),
            TokenTree::Group(group) => {
                let inner = Tokens::new(group.stream());
                sizes_in(names, inner.rest(), sizes);
            }
            _ => {}
        }
    }
}
