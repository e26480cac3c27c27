//! The layers with parameters, as fields of the struct of a model.

use proc_macro2::TokenStream;

use crate::spec::keys::{DISTRIBUTIONS, Key, KeyKind, TRUTHS};
use crate::spec::{Real, Size};

/// A module of `attn::nn` among the layers of a model.
pub(crate) trait Layer {
    /// Its type: `krate` is the path of `attn`, `rest` the element and the device, `, E, D`.
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream;

    /// In a word or two, with its sizes.
    fn label(&self) -> String;

    /// The epsilon of a norm, where that is not the default.
    fn epsilon(&self) -> Option<&Real>;

    /// The numbers of rows and columns of its table, if others may be tied to it.
    fn table(&self) -> Option<[&Size; 2]>;

    /// The numbers of the layer that a trainer in bf16 rounds.
    fn rounding(&self) -> Rounding;

    /// The numbers of rows and columns of what it remembers in a session, if it goes along the tokens.
    fn recent(&self) -> Option<[Size; 2]>;
}

/// The numbers of a layer that a trainer in bf16 rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    None,
    /// The operands of its products.
    Products,
    /// The operands of its products, and the input of its hidden layer.
    ProductsAndHidden,
}

/// `linear 4 -> 8`
pub(super) fn label(name: &str, sizes: &[&Size]) -> String {
    let sizes: Vec<_> = sizes.iter().map(|size| size.to_string()).collect();
    format!("{name} {}", sizes.join(" -> "))
}

pub(super) const fn size(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key {
        name,
        kind: KeyKind::Size,
        default,
        doc,
    }
}

pub(super) const fn bias(default: &'static str, doc: &'static str) -> Key {
    Key {
        name: "bias",
        kind: KeyKind::Word(TRUTHS),
        default,
        doc,
    }
}

pub(super) const fn init(default: &'static str, doc: &'static str) -> Key {
    Key {
        name: "init",
        kind: KeyKind::Word(DISTRIBUTIONS),
        default,
        doc,
    }
}
