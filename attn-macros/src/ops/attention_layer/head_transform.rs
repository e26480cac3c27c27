//! Bias, norm and rotation of the vectors of all heads.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::{LayerDescription, LayerOp};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::emit::tracked_code;
use crate::emit::{ComposedNode, ExecMode, LayerFrame, LayerNode, ParameterGradient};
use crate::model::graph::ValueId;
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call};
use crate::ops::{Emit, Fusion, Gradient, Op, Properties, Saved};
use crate::spec::{GainKind, Real, Rotary, Size};

/// The transform of vectors before they are used: bias, then norm, then rotation.
#[derive(Clone, Default, Debug)]
pub(crate) struct HeadTransform {
    /// The result of a projection that left its bias.
    pub(crate) bias: Option<ValueId>,
    pub(crate) norm: Option<Norm>,
    /// The rotation by the position.
    pub(crate) rope: Option<Rotary>,
    /// Whether the vectors are keys: a rotation by positions of the call reads those of the keys.
    pub(crate) of_keys: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Norm {
    Rms {
        gain: GainKind,
        /// The field with the learned gain.
        field: &'static str,
        epsilon: Real,
    },
    /// With its epsilon.
    L2(Real),
}

impl HeadTransform {
    pub(crate) fn norm(norm: Norm) -> Self {
        HeadTransform {
            norm: Some(norm),
            ..Self::default()
        }
    }

    pub(crate) fn rope(rotary: Rotary, of_keys: bool) -> Self {
        HeadTransform {
            rope: Some(rotary),
            of_keys,
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
            norm: self.norm.clone().or_else(|| next.norm.clone()),
            rope: self.rope.clone().or_else(|| next.rope.clone()),
            of_keys: self.of_keys || next.of_keys,
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
        match &self.norm {
            Some(Norm::Rms { gain, field, .. }) if *gain != GainKind::One => Some(*field),
            _ => None,
        }
    }
}

/// A transform whose result stands in memory. As built it is a norm or a rotation.
pub(crate) struct TransformHeads {
    pub(crate) heads: Size,
    pub(crate) how: HeadTransform,
}

impl Op for TransformHeads {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Overwritten]
    }
}

impl LayerOp for TransformHeads {
    fn description(&self) -> LayerDescription<'_> {
        LayerDescription {
            transform: Some(self),
            ..LayerDescription::default()
        }
    }

    fn products(&self, _: &[&Type], _: &Type) -> Vec<Vec<Axis>> {
        Vec::new()
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let x = of.operand(0);
        let axes = &of.operand_type(0).axes;
        if let Some(rotary) = &self.how.rope {
            let positions = of.positions(&axes[2], rotary.position_ids, self.how.of_keys);
            return match &axes[3] {
                Axis::Size(width) => of.rotate(x, rotary, width, positions),
                Axis::Symbol(_) => Ok(x),
            };
        }
        Ok(match &self.how.norm {
            None => x,
            Some(Norm::L2(epsilon)) => {
                let epsilon = of.number(epsilon);
                let squares = x.clone().times(x.clone()).reduce("ReduceSum", -1, true);
                x.over(call("Sqrt", [squares.plus(epsilon)]))
            }
            Some(Norm::Rms {
                gain,
                field,
                epsilon,
            }) => {
                let normed = of.divided_by_rms(x, epsilon);
                match gain {
                    GainKind::One => normed,
                    GainKind::Factor => normed.times(of.parameter(field)),
                    GainKind::OnePlus => normed.times(of.parameter(field).plus(Term::number(1.0))),
                }
            }
        })
    }
}

impl Emit<LayerFrame<'_>> for TransformHeads {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        of.define(&match &self.how {
            HeadTransform {
                rope: Some(rotary),
                of_keys,
                ..
            } => {
                let (rotary, positions) = of.rotary(rotary, *of_keys);
                quote!(p::rope(#x, &#rotary, #positions)?)
            }
            HeadTransform {
                norm:
                    Some(Norm::Rms {
                        gain,
                        field,
                        epsilon,
                    }),
                ..
            } => {
                let gain = gain.tokens(|| of.weight(field));
                quote!(p::rms_norm(#x, #gain, (#epsilon) as f64)?)
            }
            HeadTransform {
                norm: Some(Norm::L2(epsilon)),
                ..
            } => quote!(p::l2_norm(#x, (#epsilon) as f64)?),
            _ => x.to_token_stream(),
        })
    }

    fn footprints(&self, of: &LayerNode<'_>) -> Footprints {
        Footprints {
            forward: None,
            backward: tracked_code::at_once(&[], &self.gain_gradient(of).footprints, &[]),
        }
    }

    fn forward(&self, of: &LayerNode<'_>, to: &Output) -> TokenStream {
        let heads = &self.heads;
        let how = of.transform(&self.how);
        let len = of.length(0);
        let x = of.matrix(0);
        let y = to.matrix();
        match of.mode() {
            ExecMode::Forward | ExecMode::Start => {
                quote!(p::head_transform(&#how, sizes.batch, #len, #heads, #x, #y))
            }
            ExecMode::Session => quote!(new.head_transform(&#how, #heads, #x, #y)),
        }
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &Gradients) -> TokenStream {
        let heads = &self.heads;
        let ParameterGradient {
            make,
            argument,
            add,
            ..
        } = self.gain_gradient(of);
        let how = of.transform(&self.how);
        let len = of.length(0);
        let x = of.matrix(0);
        let d_y = gradients.matrix();
        let d_x = of.gradient_mut(gradients, 0);
        let lines = quote! {
            #make
            p::head_transform_backward(&#how, sizes.batch, #len, #heads, #x, #d_y, #d_x, #argument);
            #add
        };
        match make.is_empty() {
            true => lines,
            false => quote!({ #lines }),
        }
    }
}

impl TransformHeads {
    fn gain_gradient(&self, of: &LayerNode<'_>) -> ParameterGradient {
        of.parameter_gradient(self.how.gain(), "d_gain", "as_mut_slice")
    }
}
