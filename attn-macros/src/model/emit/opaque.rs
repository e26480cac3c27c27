//! Modules of which the macro knows nothing but the type that the user names.
//!
//! The built type of a module depends on the elements and the device, and only dfdx's trait says how: so the struct has a
//! type variable for each such module, as dfdx's tuples have, and that has what is built as its default.
//!
//! ```text
//! type __NetHead = (Linear<8, 3>, ReLU);                           // as written
//! pub struct Net<E, D, NetHeadBuilt = Built<__NetHead, D, E>> { head: NetHeadBuilt, .. }
//! impl<.., NetHeadBuilt> NetInput<E, D, NetHeadBuilt> for Tensor<.., T> // what `forward` accepts
//! where
//!     NetHeadBuilt: Module<Tensor<(Batch, Const<8>), E, D, T>, Output = Tensor<(Batch, Const<3>), E, D, T>, ..>,
//! { .. }
//! const _: () = { .. };                                             // rustc looks at the shapes, whether `forward` is called or not
//! ```
//!
//! Such a module may change while it runs: `forward_mut` borrows the model mutably, and has a function and a trait of its own.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Emitter, tuple};
use crate::emit::on_unimplemented;
use crate::messages::model as messages;
use crate::model::graph::{ModuleId, Opaque};
use crate::model::syntax::first;

/// How a forward pass borrows the model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Shared,
    Exclusive,
}

impl Access {
    /// The word behind the `&`.
    pub(super) fn mutability(self) -> Option<TokenStream> {
        (self == Access::Exclusive).then(|| quote!(mut))
    }

    /// The function of the forward pass.
    pub(super) fn function(self) -> Ident {
        match self {
            Access::Shared => format_ident!("run_graph"),
            Access::Exclusive => format_ident!("run_graph_mut"),
        }
    }
}

impl Opaque {
    /// The type variable of the module.
    pub(super) fn built(&self) -> Ident {
        format_ident!("{}Built", self.name)
    }

    /// The alias of the type. It is no name of the user's.
    pub(super) fn alias(&self) -> Ident {
        format_ident!("__{}", self.name)
    }

    /// Where rustc's notes place what is emitted for it: at its type as written.
    pub(super) fn at(&self) -> Span {
        Span::call_site().located_at(first(&self.ty))
    }
}

impl Emitter<'_> {
    pub(super) fn is_opaque(&self) -> bool {
        !self.model.opaques.is_empty()
    }

    /// How `forward` and `forward_mut` borrow the model.
    pub(super) fn accesses(&self) -> &'static [Access] {
        if self.is_opaque() {
            &[Access::Shared, Access::Exclusive]
        } else {
            &[Access::Shared]
        }
    }

    /// How `forward_mut` borrows the model.
    pub(super) fn training_access(&self) -> Access {
        self.accesses().last().copied().unwrap_or(Access::Shared)
    }

    /// The trait of what is accepted.
    pub(super) fn input(&self, access: Access) -> Ident {
        let name = self.stem();
        match access {
            Access::Shared => format_ident!("{name}Input"),
            Access::Exclusive => format_ident!("{name}InputMut"),
        }
    }

    /// `, NetHeadBuilt`: the type variables of a struct behind those of the elements and the device.
    pub(super) fn built(&self, module: ModuleId) -> TokenStream {
        self.of_each(module, |built, _| quote!(#built))
    }

    /// `, NetHeadBuilt = Built<__NetHead, D, E>`
    pub(super) fn built_by_default(&self, module: ModuleId) -> TokenStream {
        let (krate, [e, d]) = (self.krate, self.generics());
        self.of_each(
            module,
            |built, alias| quote!(#built = #krate::__private::Built<#alias, #d, #e>),
        )
    }

    /// `, NetHeadBuilt: TensorCollection<E, D>`
    pub(super) fn built_collections(&self, module: ModuleId) -> TokenStream {
        self.of_each(module, |built, _| quote!(#built: p::TensorCollection<E, D>))
    }

    /// `, NetHeadBuilt::To<E2, D2>`
    pub(super) fn built_converted(&self, module: ModuleId) -> TokenStream {
        self.of_each(module, |built, _| quote!(#built::To<E2, D2>))
    }

    /// `, Built<__NetHead, D, E>`
    pub(super) fn built_types(&self, module: ModuleId) -> TokenStream {
        self.of_each(module, |_, alias| quote!(p::Built<#alias, D, E>))
    }

    /// `where __NetHead: BuildOnDevice<D, E>`
    pub(super) fn built_where(&self, module: ModuleId) -> Option<TokenStream> {
        let opaques = self.model.opaques_in(module);
        let aliases = opaques.iter().map(|opaque| opaque.alias());
        (!opaques.is_empty()).then(|| quote!(where #(#aliases: p::BuildOnDevice<D, E>),*))
    }

    fn of_each(
        &self,
        module: ModuleId,
        emit: impl Fn(&Ident, &Ident) -> TokenStream,
    ) -> TokenStream {
        let opaques = self.model.opaques_in(module);
        let each = opaques
            .iter()
            .map(|opaque| emit(&opaque.built(), &opaque.alias()));
        quote!(#(, #each)*)
    }

    /// `where NetHeadBuilt: Module<.., Output = ..>`: what a forward pass asks of the modules.
    pub(super) fn calls_where(&self, access: Access) -> Option<TokenStream> {
        let calls = self.model.opaques.iter().map(|opaque| {
            let built = opaque.built();
            let x = self.operands_type(opaque, &quote!(T));
            let y = self.tensor(&self.model.value(opaque.result).ty, &quote!(T));
            let module = match access {
                Access::Shared => quote!(Module),
                Access::Exclusive => quote!(ModuleMut),
            };
            quote!(#built: p::#module<#x, Output = #y, Error = D::Err>)
        });
        self.is_opaque().then(|| quote!(where #(#calls),*))
    }

    /// The operands of a module as dfdx's modules take them: several as a tuple, the first one with the tape.
    fn operands_type(&self, opaque: &Opaque, tape: &TokenStream) -> TokenStream {
        let none = TokenStream::new();
        let operands = opaque.operands.iter().enumerate().map(|(index, id)| {
            let tape = if index == 0 { tape } else { &none };
            self.tensor(&self.model.value(*id).ty, tape)
        });
        tuple(&operands.collect::<Vec<_>>())
    }
}

/// The types as written, by a name that means the same wherever it stands.
pub(super) fn emit_aliases(cx: &Emitter<'_>) -> TokenStream {
    let cfgs = &cx.cfgs;
    let aliases = cx.model.opaques.iter().map(|opaque| {
        let alias = opaque.alias();
        let ty = &opaque.ty;
        quote! {
            #(#cfgs)*
            #[allow(non_camel_case_types)]
            type #alias = #ty;
        }
    });
    aliases.collect()
}

/// The shapes of every module, as rustc finds them: wrong ones are errors at the type as written.
pub(super) fn emit_checks(cx: &Emitter<'_>) -> TokenStream {
    let checks = cx.model.opaques.iter().map(|opaque| emit_check(cx, opaque));
    checks.collect()
}

/// The axes are type variables: the module takes any, and has to keep them apart. Elements and device are the default ones.
fn emit_check(cx: &Emitter<'_>, opaque: &Opaque) -> TokenStream {
    let symbols = cx.symbols();
    let alias = opaque.alias();
    let none = TokenStream::new();
    let declared = &cx.model.value(opaque.result).ty;
    let x = cx.operands_type(opaque, &none);
    let y = cx.tensor(declared, &none);
    let message = messages::module_returns(&opaque.text, declared);
    let unimplemented = on_unimplemented(opaque.at(), &["Self"], &message, "returns `{Self}`", &[]);
    let name = &opaque.name;
    let output = format_ident!("{name}Output");
    let axes = cx.model.symbols.iter().map(|name| cx.symbol(name));
    let axes = quote!((#(#axes,)*));
    quote_spanned! {opaque.at()=>
        #[allow(dead_code, non_camel_case_types)]
        const _: () = {
            type E = f32;
            type D = p::AutoDevice;

            #unimplemented
            trait #output<Axes> {}
            impl<#symbols> #output<#axes> for #y {}

            fn maps<M: p::Module<X, Output: #output<Axes>>, X, Axes>() {}
            fn check<#symbols>() {
                maps::<p::Built<#alias, D, E>, #x, #axes>()
            }
        };
    }
}
