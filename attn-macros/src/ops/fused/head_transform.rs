//! Bias, norm and rotation of the vectors of all heads.

use proc_macro2::TokenStream;
use quote::quote;

use super::{FusedOp, FusedProperties, LayerGradients};
use crate::emit::tracked_code::TrackedCode;
use crate::emit::{ExecMode, LayerNode};
use crate::model::graph::{Derivative, ValueId};
use crate::ops::{Fusion, Gradient, Saved};
use crate::spec::{Real, Size};

/// The transform of vectors before they are used: bias, then norm, then rotation.
#[derive(Clone, Default, Debug)]
pub(crate) struct HeadTransform {
    /// The result of a projection that left its bias.
    pub(crate) bias: Option<ValueId>,
    pub(crate) norm: Option<Norm>,
    /// The base of the angles.
    pub(crate) rope: Option<Real>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Norm {
    /// With the gain in this field.
    Rms(&'static str),
    L2,
}

impl HeadTransform {
    pub(crate) fn norm(norm: Norm) -> Self {
        HeadTransform {
            norm: Some(norm),
            ..Self::default()
        }
    }

    pub(crate) fn rope(theta: Real) -> Self {
        HeadTransform {
            rope: Some(theta),
            ..Self::default()
        }
    }

    /// Both as one transform, if that has their order.
    pub(crate) fn then(&self, next: &HeadTransform) -> Option<Self> {
        let starts_with = |has: [bool; 3]| has.into_iter().position(|has| has);
        let ends_with = |has: [bool; 3]| has.into_iter().rposition(|has| has);
        let is_before = match (ends_with(self.has()), starts_with(next.has())) {
            (Some(end), Some(start)) => end < start,
            _ => true,
        };
        is_before.then(|| HeadTransform {
            bias: self.bias.or(next.bias),
            norm: self.norm.or(next.norm),
            rope: self.rope.clone().or_else(|| next.rope.clone()),
        })
    }

    /// Whether there is a bias, a norm, a rotation.
    fn has(&self) -> [bool; 3] {
        [
            self.bias.is_some(),
            self.norm.is_some(),
            self.rope.is_some(),
        ]
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.has() == [false; 3]
    }

    /// The field of the gain, if there is one.
    pub(crate) fn gain(&self) -> Option<&'static str> {
        match self.norm {
            Some(Norm::Rms(field)) => Some(field),
            _ => None,
        }
    }
}

/// A transform whose result stands in memory, as no attention reads it.
pub(crate) struct TransformHeads {
    pub(crate) heads: Size,
    pub(crate) how: HeadTransform,
}

impl Derivative for TransformHeads {
    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }

    fn saved(&self) -> Saved {
        Saved::Operands
    }

    fn fusion(&self) -> Fusion<'_> {
        Fusion::None
    }
}

impl FusedOp for TransformHeads {
    fn properties(&self) -> FusedProperties<'_> {
        FusedProperties {
            transform: Some(self),
            ..FusedProperties::default()
        }
    }

    fn forward(&self, of: &LayerNode<'_>, to: &TokenStream, lines: &mut TrackedCode) {
        let heads = &self.heads;
        let how = of.transform(&self.how);
        let len = of.length(0);
        let x = of.matrix(0);
        lines.line(match of.mode() {
            ExecMode::Forward => {
                quote!(p::head_transform(&#how, sizes.batch, #len, #heads, #x, #to);)
            }
            ExecMode::Session => quote!(new.prepare(&#how, #heads, #x, #to);),
        });
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &LayerGradients, lines: &mut TrackedCode) {
        let heads = &self.heads;
        let [gain, add_gain] =
            of.parameter_gradient(lines, ("d_gain", "as_mut_slice"), self.how.gain());
        let how = of.transform(&self.how);
        let len = of.length(0);
        let x = of.matrix(0);
        let d_y = &gradients.d_result;
        let d_x = of.gradient_mut(0);
        lines.line(quote! {
            p::head_transform_backward(&#how, sizes.batch, #len, #heads, #x, #d_y, #d_x, #gain);
            #add_gain
        });
    }
}
