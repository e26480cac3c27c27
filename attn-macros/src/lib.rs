//! The compile-time half of `attn`. Use it through the `attn` crate: `attn::attention!`.
//!
//! A spec goes through [`pipeline`], one stage after the other: tokens → `Spec` → `Graph` → Rust.

mod comments;
mod depth;
mod diag;
mod editor;
mod emit;
mod fragments;
mod graph;
mod markdown;
mod messages;
mod model;
mod onnx;
mod ops;
mod pipeline;
mod score;
mod spec;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// `[$crate] spec...`: what the facade's `attention!` hands on, so that the emitted paths work under any crate name.
#[doc(hidden)]
#[proc_macro]
pub fn attention(input: TokenStream) -> TokenStream {
    pipeline::attention(input.into()).into()
}

/// `[$crate] model...`: what the facade's `model!` hands on.
#[doc(hidden)]
#[proc_macro]
pub fn model(input: TokenStream) -> TokenStream {
    pipeline::model(input.into()).into()
}

/// The table of the operations of `model!` as Markdown, for its documentation.
#[doc(hidden)]
#[proc_macro]
pub fn operation_table(_: TokenStream) -> TokenStream {
    let table = ops::table();
    quote::quote!(#table).into()
}

/// The table of keys as Markdown, for the documentation of the facade's `attention!`.
#[doc(hidden)]
#[proc_macro]
pub fn key_table(_: TokenStream) -> TokenStream {
    emit::tables::key_table().into()
}

/// The table of the keys of `attend` as Markdown, for the documentation of the facade's `model!`.
#[doc(hidden)]
#[proc_macro]
pub fn attend_key_table(_: TokenStream) -> TokenStream {
    emit::tables::attend_key_table().into()
}

/// Modules of documented names, one for every key and word of the language: what editors complete from.
#[doc(hidden)]
#[proc_macro]
pub fn key_items(_: TokenStream) -> TokenStream {
    editor::items().into()
}
