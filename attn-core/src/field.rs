//! The fields of layers and models, as dfdx visits them.

use dfdx::{
    dtypes::Dtype,
    nn::tensor_collection::{ModuleFields, ModuleVisitor, TensorCollection},
    shapes::Rank2,
    tensor::Tensor,
    tensor_ops::Device,
};

use crate::{
    Element,
    init::{self, Initial},
    nn::Linear,
    ops::visit_linear,
};

/// `N` consecutive fields of the layer `M` that are [`Linear`]s with the same sizes and initial distribution. Their biases start
/// at 0. One object serves all of their tensors, because every closure in an expansion costs compile time.
pub struct LinearFields<M, const N: usize, const I: usize, const O: usize, E: Dtype, D: Device<E>> {
    /// The names of the fields.
    pub names: [&'static str; N],
    /// The fields.
    pub get: fn(&M) -> [&Linear<I, O, E, D>; N],
    /// The fields, mutably.
    pub get_mut: fn(&mut M) -> [&mut Linear<I, O, E, D>; N],
    /// Initialises a weight.
    pub reset: fn(&mut Tensor<Rank2<O, I>, E, D>) -> Result<(), D::Err>,
}

impl<M, const N: usize, const I: usize, const O: usize, E, D> LinearFields<M, N, I, O, E, D>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    fn visit_field<V: ModuleVisitor<M, E, D>>(
        &self,
        index: usize,
        visitor: &mut V,
    ) -> Result<Option<Linear<I, O, V::E2, V::D2>>, V::Err> {
        let name = self.names[index];
        let weight = format!("{name}.weight");
        let bias = format!("{name}.bias");
        visit_linear(
            visitor,
            [&weight, &bias],
            |layer| (self.get)(layer)[index],
            |layer| pick((self.get_mut)(layer), index),
            self.reset,
            |bias| init::zeros(bias),
        )
    }
}

/// An element by value: mutable borrows cannot be copied out of an array.
fn pick<T, const N: usize>(fields: [T; N], index: usize) -> T {
    let field = fields.into_iter().nth(index);
    field.expect("the index is below the number of fields")
}

impl<M, const N: usize, const I: usize, const O: usize, E, D> ModuleFields<M, E, D>
    for LinearFields<M, N, I, O, E, D>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    type Options<E2: Dtype, D2: Device<E2>> = Option<[Linear<I, O, E2, D2>; N]>;
    type Output<E2: Dtype, D2: Device<E2>> = [Linear<I, O, E2, D2>; N];

    fn visit_fields<V: ModuleVisitor<M, E, D>>(
        self,
        visitor: &mut V,
    ) -> Result<Self::Options<V::E2, V::D2>, V::Err> {
        let mut built = Vec::with_capacity(N);
        for index in 0..N {
            built.extend(self.visit_field(index, visitor)?);
        }
        // A visitor that builds nothing leaves the vector empty.
        Ok(built.try_into().ok())
    }

    fn handle_options<E2: Dtype, D2: Device<E2>>(
        fields: Self::Options<E2, D2>,
    ) -> Option<Self::Output<E2, D2>> {
        fields
    }
}

/// A field whose layer initialises its matrices with this distribution, and everything else with its own.
pub struct InitialField<F> {
    /// The field.
    pub field: F,
    /// The distribution of its matrices.
    pub initial: Initial,
}

impl<M, F, E, D> ModuleFields<M, E, D> for InitialField<F>
where
    M: TensorCollection<E, D>,
    F: ModuleFields<M, E, D>,
    E: Element,
    D: Device<E>,
{
    type Options<E2: Dtype, D2: Device<E2>> = F::Options<E2, D2>;
    type Output<E2: Dtype, D2: Device<E2>> = F::Output<E2, D2>;

    fn visit_fields<V: ModuleVisitor<M, E, D>>(
        self,
        visitor: &mut V,
    ) -> Result<Self::Options<V::E2, V::D2>, V::Err> {
        self.initial.within(|| self.field.visit_fields(visitor))
    }

    fn handle_options<E2: Dtype, D2: Device<E2>>(
        options: Self::Options<E2, D2>,
    ) -> Option<Self::Output<E2, D2>> {
        F::handle_options(options)
    }
}
