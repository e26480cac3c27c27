//! A projection of a layer as dfdx visits it.

use dfdx::{
    dtypes::Dtype,
    nn::{
        modules::Linear,
        tensor_collection::{ModuleFields, ModuleVisitor, TensorCollection, TensorOptions},
    },
    shapes::Rank2,
    tensor::Tensor,
    tensor_ops::Device,
};

use crate::{Element, init};

/// A field of the layer `M` that is a [`Linear`] with an initial distribution of its own; its bias starts at 0. One of these
/// for two tensors, because every closure in an expansion is time of its compilation.
pub struct LinearField<M, const I: usize, const O: usize, E: Dtype, D: Device<E>> {
    /// Of weight and bias, as they are saved.
    pub names: [&'static str; 2],
    /// The field.
    pub get: fn(&M) -> &Linear<I, O, E, D>,
    /// The field, to be changed.
    pub get_mut: fn(&mut M) -> &mut Linear<I, O, E, D>,
    /// Initialises the weight.
    pub reset: fn(&mut Tensor<Rank2<O, I>, E, D>) -> Result<(), D::Err>,
}

impl<M, const I: usize, const O: usize, E, D> ModuleFields<M, E, D> for LinearField<M, I, O, E, D>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    type Options<E2: Dtype, D2: Device<E2>> = Option<Linear<I, O, E2, D2>>;
    type Output<E2: Dtype, D2: Device<E2>> = Linear<I, O, E2, D2>;

    fn visit_fields<V: ModuleVisitor<M, E, D>>(
        self,
        visitor: &mut V,
    ) -> Result<Self::Options<V::E2, V::D2>, V::Err> {
        let (get, get_mut) = (self.get, self.get_mut);
        let fields = (
            M::tensor(
                self.names[0],
                |layer| &get(layer).weight,
                |layer| &mut get_mut(layer).weight,
                TensorOptions::reset_with(self.reset),
            ),
            M::tensor(
                self.names[1],
                |layer| &get(layer).bias,
                |layer| &mut get_mut(layer).bias,
                TensorOptions::reset_with(|bias| init::zeros(bias)),
            ),
        );
        let (weight, bias) = fields.visit_fields(visitor)?;
        let both = weight.zip(bias);
        Ok(both.map(|(weight, bias)| Linear { weight, bias }))
    }

    fn handle_options<E2: Dtype, D2: Device<E2>>(
        field: Self::Options<E2, D2>,
    ) -> Option<Self::Output<E2, D2>> {
        field
    }
}
