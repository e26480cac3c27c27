//! The vectors of all heads side by side, and one axis for the heads: the same memory for the kernels.

use proc_macro2::TokenStream;
use quote::quote;

use super::{LayerDescription, LayerOp};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::emit::{ComposedNode, LayerFrame, LayerNode};
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term};
use crate::ops::{Emit, Fusion, Gradient, Op, Properties, Saved};

/// `[batch, len, heads width] -> [batch, heads, len, width]`
pub(crate) struct SplitHeads;

/// `[batch, heads, len, width] -> [batch, len, heads width]`
pub(crate) struct MergeHeads;

/// A view has nothing to compute, and its gradient is that of what it views.
macro_rules! view {
    ($op:ident, $function:ident) => {
        impl LayerOp for $op {
            fn description(&self) -> LayerDescription<'_> {
                LayerDescription {
                    is_view: true,
                    ..LayerDescription::default()
                }
            }

            fn products(&self, _: &[&Type], _: &Type) -> Vec<Vec<Axis>> {
                Vec::new()
            }

            fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
                Ok(of.$function())
            }
        }

        impl Op for $op {
            fn properties(&self) -> Properties<'_> {
                Properties {
                    saved: Saved::Nothing,
                    kept: None,
                    fusion: Fusion::None,
                }
            }

            fn gradients(&self, _: usize) -> Vec<Gradient> {
                vec![Gradient::Same]
            }
        }

        impl Emit<LayerFrame<'_>> for $op {
            fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
                let x = of.operand(0);
                of.define(&quote!(p::$function(#x)?))
            }

            fn footprints(&self, _: &LayerNode<'_>) -> Footprints {
                Footprints::default()
            }

            fn forward(&self, _: &LayerNode<'_>, _: &Output) -> TokenStream {
                TokenStream::new()
            }

            fn backward(&self, _: &LayerNode<'_>, _: &Gradients) -> TokenStream {
                TokenStream::new()
            }
        }
    };
}

view!(SplitHeads, split_heads);
view!(MergeHeads, merge_heads);
