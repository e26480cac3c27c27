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
    pub(crate) fn is_nothing(&self) -> bool {
        self.bias.is_none() && self.norm.is_none() && self.rope.is_none()
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
            transforms: vec![&self.how],
            ..FusedProperties::default()
        }
    }

    fn forward(&self, of: &LayerNode<'_>, to: &TokenStream, lines: &mut TrackedCode) {
        let heads = &self.heads;
        let how = of.transform(&self.how);
        let len = of.length(0);
        let x = of.matrix(0);
        lines.line(match of.mode() {
            ExecMode::Forward => quote!(p::prepare(&#how, sizes.batch, #len, #heads, #x, #to);),
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
            p::prepare_backward(&#how, sizes.batch, #len, #heads, #x, #d_y, #d_x, #gain);
            #add_gain
        });
    }
}
