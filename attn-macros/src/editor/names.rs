//! The names of the input: paths, and the modules that the paths lead into.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

use super::tokens::Tokens;

/// The paths to names in the order in which these stand in the input, and the modules of names that it declares.
pub(super) struct Names<'a> {
    krate: &'a TokenStream,
    paths: TokenStream,
    constants: TokenStream,
    scopes: Vec<Module>,
}

/// A module of names, by its index.
#[derive(Clone, Copy)]
pub(super) struct Scope(usize);

#[derive(Default)]
struct Module {
    /// Modules of smaller indices.
    around: Vec<Scope>,
    language: Vec<TokenStream>,
    own: Vec<Own>,
}

/// A name that a declaration introduces, and its hover text.
#[derive(Clone)]
pub(super) struct Own {
    pub(super) name: Ident,
    pub(super) doc: String,
}

/// A name that is seen in a module.
#[derive(Clone, Copy)]
struct Visible {
    /// The module whose own name it is.
    of: Scope,
    /// Whether it shadows another one.
    is_twice: bool,
}

impl<'a> Names<'a> {
    pub(super) fn new(krate: &'a TokenStream) -> Self {
        Names {
            krate,
            paths: TokenStream::new(),
            constants: TokenStream::new(),
            scopes: Vec::new(),
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
        let scope = self.reserve();
        self.define(scope, around, language, own);
        scope
    }

    /// A module whose names are [defined](Self::define) later.
    pub(super) fn reserve(&mut self) -> Scope {
        self.scopes.push(Module::default());
        Scope(self.scopes.len() - 1)
    }

    /// The names of a reserved module, as of [`scope`](Self::scope).
    pub(super) fn define(
        &mut self,
        scope: Scope,
        around: &[Scope],
        language: &[&str],
        own: &[Own],
    ) {
        let mut known: Vec<Own> = Vec::new();
        for own in own {
            let is_new = known.iter().all(|known| known.name != own.name);
            if is_new && is_name(&own.name.to_string()) {
                known.push(own.clone());
            }
        }
        self.scopes[scope.0] = Module {
            around: around.to_vec(),
            language: language.iter().map(|module| self.module(module)).collect(),
            own: known,
        };
    }

    /// The paths come first: they start at the same place in the expansions with and without the name at the cursor.
    pub(super) fn emit(self) -> TokenStream {
        let scopes = self.modules();
        let Names {
            paths, constants, ..
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

    /// rust-analyzer lets a name through several `*` that a name on the way shadows. So one that is there twice is imported by itself.
    fn modules(&self) -> TokenStream {
        let mut modules = TokenStream::new();
        let mut all: Vec<BTreeMap<&Ident, Visible>> = Vec::new();
        for (index, module) in self.scopes.iter().enumerate() {
            let mut visible = BTreeMap::new();
            for scope in &module.around {
                visible.extend(all[scope.0].clone());
            }
            for own in &module.own {
                let is_twice = visible.contains_key(&own.name);
                let of = Scope(index);
                visible.insert(&own.name, Visible { of, is_twice });
            }
            let imported = visible
                .iter()
                .filter(|(_, of)| of.is_twice && of.of.0 != index);
            let imported = imported.map(|(name, Visible { of, .. })| {
                let mut name = Ident::clone(name);
                name.set_span(Span::call_site());
                let of = module_of(*of);
                quote!(pub use super::#of::#name;)
            });
            let name = module_of(Scope(index));
            let around = module.around.iter().map(|scope| module_of(*scope));
            let language = &module.language;
            let own = module
                .own
                .iter()
                .map(|Own { name, doc }| quote!(#[doc = #doc] pub const #name: () = ();));
            modules.extend(quote! {
                pub mod #name {
                    #(pub use super::#around::*;)*
                    #(pub use #language::*;)*
                    #(#imported)*
                    #(#own)*
                }
            });
            all.push(visible);
        }
        modules
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
