//! `export_onnx`, or that of another function than `forward`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::{Emitter, MODEL, trainer};
use crate::onnx;

/// The graph is a literal, so that a model which nobody exports costs next to nothing.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    if trainer::is_loss(cx.model) {
        return TokenStream::new();
    }
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let built = cx.built(MODEL);
    let collections = cx.built_collections(MODEL);
    let export = cx.method("export_onnx");
    let label = cx.label();
    let (text, tables) = match cx.model.poisoned {
        // After a mistake it is there, so that uses compile.
        true => (Err(String::new()), onnx::Tables::default()),
        false => onnx::write(cx.krate, cx.model),
    };
    let text = match text {
        Ok(text) => quote!(Ok(#text)),
        Err(reason) => quote!(Err(#reason)),
    };
    let onnx::Tables {
        sizes,
        numbers,
        rotaries,
        buffers,
        proved,
    } = tables;
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl<E: p::Element, D: p::Backend<E> #collections> #name<E, D #built> {
            /// Writes the model with its weights to an ONNX file, for inference by other runtimes: see `attn::onnx`.
            #[doc(alias = "onnx.export")]
            #vis fn #export(&self, path: impl p::AsRef<p::Path>) -> Result<(), p::OnnxError> {
                let program = p::Program {
                    model: #label,
                    text: #text,
                    sizes: #sizes,
                    numbers: #numbers,
                    rotaries: #rotaries,
                    buffers: #buffers,
                    proved: #proved,
                };
                p::export(self, program, p::AsRef::as_ref(&path))
            }
        }
    }
}
