//! A learned tensor as a value.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, ModuleVisitor, TensorCollection, TensorOptions},
    shapes::{ConstShape, Shape},
    tensor::{AutoDevice, PutTape, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error,
    fused::Operation,
    init::{self, Initial},
    model::{Pass, weighted},
};

/// A learned tensor: a class token, a temperature, the gain of a norm, a table of position biases. It is saved as `<field>.weight`.
///
/// In a model, `param name: [axes] = init;` declares one. PyTorch: `torch.nn.Parameter`.
///
/// The layer that has it sets its initial values. On its own it begins with zeros.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Weight};
///
/// let dev = Cpu::default();
/// let gain: Weight<Rank1<64>> = Weight { weight: dev.ones() };
/// assert_eq!(gain.weight.array(), [1.0; 64]);
///
/// let token = dev.build_module::<Weight<Rank2<1, 8>>, f32>();
/// assert_eq!(token.weight.array(), [[0.0; 8]]);
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "Parameter")]
pub struct Weight<S: Shape, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// The tensor.
    pub weight: Tensor<S, E, D>,
}

impl<S: ConstShape, E: Dtype, D: Storage<E>> Weight<S, E, D> {
    /// The number of parameters.
    pub const PARAMS: usize = S::NUMEL;
}

impl<S: ConstShape, E: Element, D: Device<E>> TensorCollection<E, D> for Weight<S, E, D> {
    type To<E2: Dtype, D2: Device<E2>> = Weight<S, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| match Initial::requested() {
                    None => init::zeros(t),
                    Some(initial) => initial.fill(t),
                }),
            ),
            |weight| Weight { weight },
        )
    }
}

/// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
impl<S: ConstShape, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>> BuildOnDevice<D, E>
    for Weight<S, E0, D0>
{
    type Built = Weight<S, E, D>;
}

weighted! {
    [S: ConstShape] Weight<S, E, D>:
        slices::Param<E>, |layer, operation| slices::Param(operation.parameter(&layer.weight)?);
}

impl<T> Pass<'_, T> {
    /// The tensor of a parameter.
    ///
    /// # Errors
    /// None. All operations of a pass return a result.
    pub fn param<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        layer: &Weight<S, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        // The copy has the same id. So gradients of it are those of the parameter.
        self.with_tape(|tape| Ok(layer.weight.clone().put_tape(tape)))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{
            Gradients, Operand, VisitSlot, VisitWeights, WantsGradient, WeightVisitor, accumulate,
        },
    };

    /// A parameter of a model.
    pub struct Param<E: Element>(pub(super) Operand<E>);

    impl<E: Element> WantsGradient for Param<E> {
        fn slots(&self, visit: VisitSlot<'_>) {
            self.0.slots(visit);
        }
    }

    impl<E: Element> VisitWeights<E> for Param<E> {
        fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
            self.0.visit_weights(visit);
        }
    }

    impl<E: Element> Param<E> {
        /// Copies the numbers.
        pub fn forward(&self, to: &mut [E]) {
            to.copy_from_slice(self.0.values());
        }

        /// The derivative of [`forward`](Self::forward).
        pub fn backward(&self, d_y: &[E], gradients: &mut Gradients<E>) {
            if self.0.is_wanted() {
                accumulate(self.0.gradient(gradients), d_y);
            }
        }
    }
}
