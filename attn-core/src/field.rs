//! The fields of layers and models, as dfdx visits them.

use dfdx::{
    dtypes::Dtype,
    nn::{
        modules::Repeated,
        tensor_collection::{ModuleFields, ModuleVisitor, TensorCollection},
    },
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

/// A loop with an index as a field: rounds of several layers, which have their numbers in the whole loop as names.
pub struct NumberedRounds<M, R, const N: usize> {
    /// The name of the field.
    pub name: &'static str,
    /// How many layers a round has.
    pub per_round: usize,
    /// The rounds.
    pub get: fn(&M) -> &Repeated<R, N>,
    /// The rounds, mutably.
    pub get_mut: fn(&mut M) -> &mut Repeated<R, N>,
}

/// A round of a loop with an index.
pub trait Numbered<E: Dtype, D: Device<E>>: TensorCollection<E, D> {
    /// Visits its layers as fields of another module: a layer has the name `name.number`, where numbers begin at `first`.
    ///
    /// # Errors
    /// The visitor may return errors.
    fn visit_numbered<M: TensorCollection<E, D>, V: ModuleVisitor<M, E, D>>(
        visitor: &mut V,
        name: &str,
        first: usize,
        get: impl Fn(&M) -> &Self + Copy,
        get_mut: impl Fn(&mut M) -> &mut Self + Copy,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err>;
}

/// Visits a layer of a round.
///
/// # Errors
/// The visitor may return errors.
pub fn visit_layer<M, L, E, D, V>(
    visitor: &mut V,
    (name, number): (&str, usize),
    get: impl Fn(&M) -> &L + Copy,
    get_mut: impl Fn(&mut M) -> &mut L + Copy,
) -> Result<Option<L::To<V::E2, V::D2>>, V::Err>
where
    M: TensorCollection<E, D>,
    L: TensorCollection<E, D>,
    E: Dtype,
    D: Device<E>,
    V: ModuleVisitor<M, E, D>,
{
    visitor.visit_module(&format!("{name}.{number}"), get, get_mut)
}

/// Visits neighbouring layers of a round that are alike.
///
/// # Errors
/// The visitor may return errors.
pub fn visit_layers<M, L, E, D, V, const N: usize>(
    visitor: &mut V,
    (name, first): (&str, usize),
    get: impl Fn(&M) -> &Repeated<L, N> + Copy,
    get_mut: impl Fn(&mut M) -> &mut Repeated<L, N> + Copy,
) -> Result<Option<Repeated<L::To<V::E2, V::D2>, N>>, V::Err>
where
    M: TensorCollection<E, D>,
    L: TensorCollection<E, D>,
    E: Dtype,
    D: Device<E>,
    V: ModuleVisitor<M, E, D>,
{
    let mut modules = Vec::with_capacity(N);
    for index in 0..N {
        let name = format!("{name}.{}", first + index);
        modules.extend(visitor.visit_module(
            &name,
            |module| &get(module).modules[index],
            |module| &mut get_mut(module).modules[index],
        )?);
    }
    // A visitor that builds nothing leaves the vector empty.
    Ok((modules.len() == N).then_some(Repeated { modules }))
}

impl<M, R, E, D, const N: usize> ModuleFields<M, E, D> for NumberedRounds<M, R, N>
where
    M: TensorCollection<E, D>,
    R: Numbered<E, D>,
    E: Dtype,
    D: Device<E>,
{
    type Options<E2: Dtype, D2: Device<E2>> = Option<Repeated<R::To<E2, D2>, N>>;
    type Output<E2: Dtype, D2: Device<E2>> = Repeated<R::To<E2, D2>, N>;

    fn visit_fields<V: ModuleVisitor<M, E, D>>(
        self,
        visitor: &mut V,
    ) -> Result<Self::Options<V::E2, V::D2>, V::Err> {
        let mut modules = Vec::with_capacity(N);
        for round in 0..N {
            modules.extend(R::visit_numbered(
                visitor,
                self.name,
                round * self.per_round,
                |module| &(self.get)(module).modules[round],
                |module| &mut (self.get_mut)(module).modules[round],
            )?);
        }
        Ok((modules.len() == N).then_some(Repeated { modules }))
    }

    fn handle_options<E2: Dtype, D2: Device<E2>>(
        rounds: Self::Options<E2, D2>,
    ) -> Option<Self::Output<E2, D2>> {
        rounds
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
