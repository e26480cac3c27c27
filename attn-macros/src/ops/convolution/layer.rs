//! The layer with the weights.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{CONV_TRANSPOSE1D, CONV_TRANSPOSE2D, CONV1D, CONV2D, Kind, Slide};
use crate::ops::layer::{self, Layer, Rounding};
use crate::spec::{Real, Size};

/// The layer.
pub(super) struct Weights {
    pub(super) kind: Kind,
    pub(super) input: Size,
    pub(super) out: Size,
    pub(super) groups: Size,
    pub(super) slides: Vec<Slide>,
    pub(super) bias: bool,
    pub(super) recent: Option<[Size; 2]>,
}

impl Layer for Weights {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let name = format!(
            "{}Conv{}{}d",
            if self.bias { "" } else { "Unbiased" },
            if self.kind.is_transposed {
                "Transpose"
            } else {
                ""
            },
            self.kind.axes
        );
        let name = format_ident!("{name}");
        let of_group = |channels: &Size| match self.groups.value {
            Some(1) => channels.arg(),
            _ => channels.over(&self.groups, krate).arg(),
        };
        let kernel = self.slides.iter().map(|slide| slide.kernel.arg());
        let slides = self.slides.iter().map(|slide| slide.ty(krate));
        let (input, out) = (self.input.arg(), self.out.arg());
        match self.kind.is_transposed {
            false => {
                let input = of_group(&self.input);
                quote!(#krate::nn::#name<#input, #out, #(#kernel,)* #(#slides),* #rest>)
            }
            true => {
                let of_group = of_group(&self.out);
                quote!(#krate::nn::#name<#input, #of_group, #(#kernel,)* #(#slides,)* #out #rest>)
            }
        }
    }

    fn label(&self) -> String {
        let name = match (self.kind.axes, self.kind.is_transposed) {
            (1, false) => CONV1D.name,
            (_, false) => CONV2D.name,
            (1, true) => CONV_TRANSPOSE1D.name,
            (_, true) => CONV_TRANSPOSE2D.name,
        };
        let kernel: Vec<_> = self
            .slides
            .iter()
            .map(|slide| slide.kernel.to_string())
            .collect();
        let groups = match self.groups.value {
            Some(1) => String::new(),
            _ => format!(", {} groups", self.groups),
        };
        let bias = if self.bias { "" } else { ", without bias" };
        let name = layer::label(name, &[&self.input, &self.out]);
        format!("{name}, kernel {}{groups}{bias}", kernel.join(" x "))
    }

    fn epsilon(&self) -> Option<&Real> {
        None
    }

    fn table(&self) -> Option<[&Size; 2]> {
        None
    }

    fn rounding(&self) -> Rounding {
        Rounding::None
    }

    fn recent(&self) -> Option<[Size; 2]> {
        self.recent.clone()
    }
}
