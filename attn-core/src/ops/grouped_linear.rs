//! Affine maps by group: mixtures of experts.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::{HasShape, Rank2, Rank3, Shape},
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error,
    data::Ids,
    fused::{Operation, Output},
    init,
    model::{Pass, weighted},
    ops::{EndsIn, check_shape, linear::bound, shape::dims},
    unwrap,
};

/// `y = x W_gᵀ + b_g`, where `g` is an id: each row has the map of its group.
///
/// `x [.., I]`, `weight [G, O, I]`, `bias [G, O]`, and `ids [..]` below `G`. Of the axes of `x` before the last one and those of `ids`, the
/// longer list begins with the shorter one. It is that of the result, to which `O` is added, and `to` is its shape:
///
/// | `x` | `ids` | result | |
/// | --- | --- | --- | --- |
/// | `[B, S, I]` | `[B, S]` | `[B, S, O]` | a group for each token |
/// | `[B, S, I]` | `[B, S, K]` | `[B, S, K, O]` | `K` groups for each token, which is read `K` times |
/// | `[B, S, K, I]` | `[B, S, K]` | `[B, S, K, O]` | the layer behind that |
/// | `[B, S, I]` | `[B]` | `[B, S, O]` | a group for each sequence |
///
/// Rows are sorted by their group, and each group is one product of matrices: nothing is padded, and no map runs that no id asks for. The
/// results have the same bits for any number of threads. With `capacity_factor`, a group has at most so many times its even share of the
/// rows, `ceil(capacity_factor * rows / G)`. The rows beyond that, in their order, are 0, and so are their gradients.
///
/// PyTorch: `torch.nn.functional.grouped_mm` of sorted rows, and `torch.einsum("bsi,bskoi->bsko", x, weight[ids])`, which copies the weights.
/// JAX: `jax.lax.ragged_dot`. Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer" (2017).
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{GroupedAffine, grouped_linear, try_grouped_linear}};
///
/// let dev = Cpu::default();
/// let weight: Tensor<Rank3<3, 1, 2>, f32, _> = dev.tensor([[[1.0, 1.0]], [[1.0, -1.0]], [[10.0, 0.0]]]);
/// let maps = GroupedAffine { weight: &weight, bias: None };
/// let x: Tensor<Rank2<2, 2>, f32, _> = dev.tensor([[1.0, 2.0], [3.0, 4.0]]);
/// // Two of the maps for each row.
/// let ids: Tensor<Rank2<2, 2>, usize, _> = dev.tensor([[0, 1], [2, 0]]);
/// let y = grouped_linear(x.clone(), &ids, maps.clone(), None, (Const::<2>, Const::<2>, Const::<1>));
/// assert_eq!(y.array(), [[[3.0], [-1.0]], [[30.0], [7.0]]]);
///
/// let ids: Tensor<Rank1<2>, usize, _> = dev.tensor([0, 3]);
/// let error = try_grouped_linear(x, &ids, maps, None, (Const::<2>, Const::<1>)).unwrap_err();
/// assert_eq!(error.to_string(), "grouped_linear: the id at [1] is 3, but there are 3: 0 to 2");
/// ```
///
/// # Panics
/// If [`try_grouped_linear`] returns an error or panics.
#[doc(alias("grouped_mm", "ragged_dot", "moe", "mixture of experts", "gmm"))]
#[track_caller]
pub fn grouped_linear<
    S,
    N: Shape,
    S2: Shape,
    const G: usize,
    const I: usize,
    const O: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    x: Tensor<S, E, D, T>,
    ids: &Tensor<N, usize, D>,
    layer: GroupedAffine<'_, G, I, O, E, D>,
    capacity_factor: Option<f64>,
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: EndsIn<I>,
{
    unwrap(try_grouped_linear(x, ids, layer, capacity_factor, to))
}

/// The fallible version of [`grouped_linear`].
///
/// # Errors
/// [`Error::OutOfRange`] if an id is not below `G`; [`Error::NotPositive`] if the capacity factor is not positive and finite;
/// [`Error::TooLarge`] if the sizes of `x` or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the axes of neither `x` nor `ids` begin with those of the other, or `to` is another shape than that of the result.
#[track_caller]
pub fn try_grouped_linear<
    S,
    N: Shape,
    S2: Shape,
    const G: usize,
    const I: usize,
    const O: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    x: Tensor<S, E, D, T>,
    ids: &Tensor<N, usize, D>,
    layer: GroupedAffine<'_, G, I, O, E, D>,
    capacity_factor: Option<f64>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
{
    let groups = Groups {
        ids: Ids::read(ids),
        capacity_factor,
    };
    grouped_linear_with_form(D::FUSED, x, layer, groups, to)
}

/// The groups of rows, as a [`Pass`] takes them.
pub struct Groups {
    /// A group for each row, or for several that follow one another.
    pub ids: Ids,
    /// How many times its even share of the rows a group may have.
    pub capacity_factor: Option<f64>,
}

impl Groups {
    fn routing(&self) -> slices::Routing<'_> {
        slices::Routing {
            ids: &self.ids.values,
            capacity_factor: self.capacity_factor,
            by_group: slices::ByGroup::default(),
        }
    }
}

/// [`try_grouped_linear`] in the fused or the composed form.
#[track_caller]
pub(crate) fn grouped_linear_with_form<
    S,
    S2: Shape,
    const G: usize,
    const I: usize,
    const O: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    layer: GroupedAffine<'_, G, I, O, E, D>,
    groups: Groups,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
{
    const NAME: &str = "grouped_linear";
    check_shape(NAME, x.shape())?;
    check_shape(NAME, &to)?;
    let leading = dims(&x.shape().leading());
    let [shorter, longer] = match leading.len() < groups.ids.shape().len() {
        true => [&*leading, groups.ids.shape()],
        false => [groups.ids.shape(), &*leading],
    };
    assert!(
        longer.starts_with(shorter),
        "rows {leading:?} with ids {:?}: one begins with the other",
        groups.ids.shape()
    );
    assert_eq!(
        dims(&to),
        [longer, &[O]].concat(),
        "the shape of the result"
    );
    groups.ids.check(NAME, "id", G, None)?;
    match groups.capacity_factor {
        Some(found) if !(found > 0.0 && found.is_finite()) => {
            return Err(Error::NotPositive {
                operation: NAME,
                what: "capacity_factor",
                found,
            });
        }
        _ => {}
    }
    let rows = longer.iter().product();
    if !fused {
        return Ok(composed::grouped_linear(
            x,
            layer,
            groups.routing().of(rows, G),
            to,
        )?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let layer = slices::GroupedLinear::read(layer, &mut operation)?;
    let mut y = Output::zeros(rows, O);
    layer.forward(x.matrix(), groups.routing(), y.view_mut());
    Ok(
        operation.finish_matrix(&device, y, to, move |d_y, gradients| {
            layer.backward(
                x.matrix(),
                groups.routing(),
                d_y,
                &mut x.target(),
                gradients,
            )
        })?,
    )
}

/// `y = x W_gᵀ + b_g`, where `g` is the group of a row: an affine map from `I` to `O` numbers for each of `G` groups. One operation on the
/// tape, [`grouped_linear`].
///
/// PyTorch: `nn.ModuleList([nn.Linear(I, O) for _ in range(G)])`, with its initial values, and its parameters in one tensor each.
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | `weight` | `[G, O, I]` | uniform in `±1 / sqrt(I)` |
/// | `bias` | `[G, O]` | uniform in `±1 / sqrt(I)` |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::GroupedLinear, ops::grouped_linear};
///
/// let dev = Cpu::default();
/// let experts = dev.build_module::<GroupedLinear<4, 8, 16>, f32>();
/// let x: Tensor<(usize, Const<8>), f32, _> = dev.sample_normal_like(&(5, Const));
/// let ids: Tensor<Rank1<5>, usize, _> = dev.tensor([3, 0, 0, 1, 3]);
/// let y = grouped_linear(x, &ids, experts.affine(), None, (5, Const::<16>));
/// ```
#[doc(alias("experts", "GroupedMLP"))]
#[derive(Clone, Debug)]
pub struct GroupedLinear<
    const G: usize,
    const I: usize,
    const O: usize,
    E: Dtype = f32,
    D: Storage<E> = AutoDevice,
> {
    /// The matrices.
    pub weight: Tensor<Rank3<G, O, I>, E, D>,
    /// The biases.
    pub bias: Tensor<Rank2<G, O>, E, D>,
}

/// `y = x W_gᵀ`: [`GroupedLinear`] without biases.
///
/// PyTorch: `nn.ModuleList([nn.Linear(I, O, bias=False) for _ in range(G)])`, with its initial values, and its weights in one tensor.
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | `weight` | `[G, O, I]` | uniform in `±1 / sqrt(I)` |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::UnbiasedGroupedLinear};
///
/// let experts = Cpu::default().build_module::<UnbiasedGroupedLinear<4, 8, 16>, f32>();
/// assert_eq!(experts.weight.shape().concrete(), [4, 16, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct UnbiasedGroupedLinear<
    const G: usize,
    const I: usize,
    const O: usize,
    E: Dtype = f32,
    D: Storage<E> = AutoDevice,
> {
    /// The matrices.
    pub weight: Tensor<Rank3<G, O, I>, E, D>,
}

/// The parameters of an affine map from `I` to `O` numbers for each of `G` groups.
#[derive(Clone, Copy, Debug)]
pub struct GroupedAffine<
    'a,
    const G: usize,
    const I: usize,
    const O: usize,
    E: Dtype,
    D: Storage<E>,
> {
    /// `[G, O, I]`
    pub weight: &'a Tensor<Rank3<G, O, I>, E, D>,
    /// `[G, O]`
    pub bias: Option<&'a Tensor<Rank2<G, O>, E, D>>,
}

/// `Module: |module| bias, number of parameters;`
macro_rules! grouped {
    ($($Module:ident: |$module:ident| $bias:expr, $params:expr;)*) => {$(
        impl<const G: usize, const I: usize, const O: usize, E: Dtype, D: Storage<E>>
            $Module<G, I, O, E, D>
        {
            /// The number of parameters.
            pub const PARAMS: usize = $params;

            /// The parameters, for [`grouped_linear`].
            pub fn affine(&self) -> GroupedAffine<'_, G, I, O, E, D> {
                let $module = self;
                GroupedAffine {
                    weight: &self.weight,
                    bias: $bias,
                }
            }
        }

        impl<'a, const G: usize, const I: usize, const O: usize, E: Dtype, D: Storage<E>>
            From<&'a $Module<G, I, O, E, D>> for GroupedAffine<'a, G, I, O, E, D>
        {
            fn from(module: &'a $Module<G, I, O, E, D>) -> Self {
                module.affine()
            }
        }

        impl<const G: usize, const I: usize, const O: usize, E: Dtype, D: Storage<E>>
            NonMutableModule for $Module<G, I, O, E, D>
        {
        }

        /// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
        impl<
            const G: usize,
            const I: usize,
            const O: usize,
            E0: Dtype,
            D0: Storage<E0>,
            E: Element,
            D: Device<E>,
        > BuildOnDevice<D, E> for $Module<G, I, O, E0, D0>
        {
            type Built = $Module<G, I, O, E, D>;
        }

        weighted! {
            [const G: usize, const I: usize, const O: usize] $Module<G, I, O, E, D>:
                slices::GroupedLinear<E>,
                |layer, operation| slices::GroupedLinear::read(layer.affine(), operation)?;
        }
    )*};
}

grouped! {
    GroupedLinear: |layer| Some(&layer.bias), G * (O * I + O);
    UnbiasedGroupedLinear: |_layer| None, G * O * I;
}

impl<const G: usize, const I: usize, const O: usize, E: Element, D: Device<E>>
    TensorCollection<E, D> for GroupedLinear<G, I, O, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = GroupedLinear<G, I, O, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        let fields = (
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::matrices(t, |t| init::uniform(t, bound(I)))),
            ),
            Self::tensor(
                "bias",
                |s| &s.bias,
                |s| &mut s.bias,
                TensorOptions::reset_with(|t| init::uniform(t, bound(I))),
            ),
        );
        visitor.visit_fields(fields, |(weight, bias)| GroupedLinear { weight, bias })
    }
}

impl<const G: usize, const I: usize, const O: usize, E: Element, D: Device<E>>
    TensorCollection<E, D> for UnbiasedGroupedLinear<G, I, O, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = UnbiasedGroupedLinear<G, I, O, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::matrices(t, |t| init::uniform(t, bound(I)))),
            ),
            |weight| UnbiasedGroupedLinear { weight },
        )
    }
}

impl<T> Pass<'_, T> {
    /// The map of its group for each row: [`grouped_linear`] with the parameters of a [`GroupedLinear`](crate::nn::GroupedLinear) or an
    /// [`UnbiasedGroupedLinear`](crate::nn::UnbiasedGroupedLinear).
    ///
    /// # Errors
    /// The errors of [`try_grouped_linear`].
    ///
    /// # Panics
    /// The panics of [`try_grouped_linear`].
    #[track_caller]
    pub fn grouped_linear<
        'a,
        S,
        S2: Shape,
        const G: usize,
        const I: usize,
        const O: usize,
        E: Element,
        D: Backend<E>,
    >(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: impl Into<GroupedAffine<'a, G, I, O, E, D>>,
        groups: Groups,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: EndsIn<I>,
        T: Tape<E, D>,
    {
        let layer = layer.into();
        self.run(x, |fused, x| {
            grouped_linear_with_form(fused, x, layer, groups, to)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use dfdx::tensor::Tape;

    use super::GroupedAffine;
    use crate::{
        Backend, Element,
        fused::{
            GradTarget, Gradients, Operand, Operation, VisitSlot, VisitWeights, WantsGradient,
            WeightVisitor,
        },
        kernel::{
            Matrix, MatrixMut,
            grouped_linear::{self as kernel, RowGroups},
        },
    };

    pub use crate::kernel::grouped_linear::ByGroup;

    /// Where rows go.
    #[derive(Clone, Copy)]
    pub struct Routing<'a> {
        /// A group for each row of the result, or for several that follow one another.
        pub ids: &'a [usize],
        /// How many times its even share of the rows a group may have.
        pub capacity_factor: Option<f64>,
        /// The matrices whose rows stand in the order of their groups.
        pub by_group: ByGroup,
    }

    impl<'a> Routing<'a> {
        pub(super) fn of(self, rows: usize, groups: usize) -> RowGroups<'a> {
            RowGroups {
                ids: self.ids,
                rows,
                groups,
                capacity_factor: self.capacity_factor,
                by_group: self.by_group,
            }
        }
    }

    /// Affine maps by group.
    pub struct GroupedLinear<E: Element> {
        /// `[groups, out, in]`
        weight: Operand<E>,
        /// `[groups, out]`
        bias: Option<Operand<E>>,
        groups: usize,
    }

    impl<E: Element> WantsGradient for GroupedLinear<E> {
        fn slots(&self, visit: VisitSlot<'_>) {
            self.weight.slots(visit);
            self.bias.slots(visit);
        }
    }

    impl<E: Element> VisitWeights<E> for GroupedLinear<E> {
        fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
            self.weight.visit_matrix(visit);
            self.bias.visit_weights(visit);
        }
    }

    impl<E: Element> GroupedLinear<E> {
        /// Reads the parameters.
        pub(super) fn read<const G: usize, const I: usize, const O: usize, D, T>(
            layer: GroupedAffine<'_, G, I, O, E, D>,
            operation: &mut Operation<E, D, T>,
        ) -> Result<Self, D::Err>
        where
            D: Backend<E>,
            T: Tape<E, D>,
        {
            let bias = layer.bias.map(|bias| operation.parameter(bias));
            Ok(Self {
                weight: operation.parameter(layer.weight)?,
                bias: bias.transpose()?,
                groups: G,
            })
        }

        /// Maps each row by the weights of its group.
        ///
        /// # Panics
        /// If an id is no group. Callers check the ids before.
        pub fn forward(&self, x: Matrix<'_, E>, routing: Routing<'_>, y: MatrixMut<'_, E>) {
            let groups = routing.of(y.rows(), self.groups);
            let bias = self.bias.as_ref().map(Operand::values);
            match self.weight.quantized() {
                None => kernel::forward(x, self.weight.values(), bias, groups, y),
                Some(weight) => kernel::forward_quantized(x, weight, bias, groups, y),
            }
        }

        /// The derivative of [`forward`](Self::forward).
        pub fn backward(
            &self,
            x: Matrix<'_, E>,
            routing: Routing<'_>,
            d_y: Matrix<'_, E>,
            d_x: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            let groups = routing.of(d_y.rows(), self.groups);
            let bias = self.bias.as_ref().map(Operand::slot);
            let [d_weight, d_bias] = gradients.of_affine(self.weight.slot(), bias);
            kernel::add_gradients(d_y, x, groups, d_weight, d_bias);
            if let Some((numbers, into)) = d_x.numbers_mut(gradients) {
                let d_x = MatrixMut::new(numbers, x.rows(), x.cols());
                kernel::input_gradient(d_y, self.weight.values(), groups, into, d_x);
            }
        }
    }
}

/// The composed form, with dfdx's operations.
pub(crate) mod composed {
    use dfdx::{
        shapes::{Axis, Const, HasShape, Rank1, Rank2, Shape},
        tensor::{PutTape, SplitTape, Tape, Tensor, TensorFromVec, ZerosTensor},
        tensor_ops::{BroadcastTo, Device, GatherTo, PermuteTo, SelectTo, TryAdd, TryMatMul},
    };

    use super::GroupedAffine;
    use crate::{
        Element,
        composed::{depend, reshape, zeros_after_both},
        kernel::grouped_linear::RowGroups,
        ops::{EndsIn, concat, shape::rows},
    };

    /// [`grouped_linear`](fn@super::grouped_linear): the rows of each group, mapped, one group after the other, and then in their order.
    ///
    /// # Errors
    /// If dfdx fails.
    pub(in crate::ops) fn grouped_linear<
        S,
        S2: Shape,
        const G: usize,
        const I: usize,
        const O: usize,
        E,
        D,
        T,
    >(
        x: Tensor<S, E, D, T>,
        layer: GroupedAffine<'_, G, I, O, E, D>,
        groups: RowGroups<'_>,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: EndsIn<I>,
        E: Element,
        D: Device<E>,
        T: Tape<E, D>,
    {
        let device = x.device().clone();
        let (x, tape) = rows(x)?.split_tape();
        let mut tape = tape.merge(depend(x.retaped::<T>()));
        tape = tape.merge(depend(layer.weight.retaped::<T>()));
        if let Some(bias) = layer.bias {
            tape = tape.merge(depend(bias.retaped::<T>()));
        }
        let each = groups.rows / x.shape().0.max(1);
        // Row 0 is that of the rows that are dropped.
        let first: Tensor<_, E, D> = ZerosTensor::<E>::try_zeros_like(&device, &(1, Const))?;
        let mut y: Tensor<(usize, Const<O>), E, D, T> = first.put_tape(tape);
        let mut places = vec![0; groups.rows];
        for group in 0..G {
            let own = groups.rows_of(group);
            if own.is_empty() {
                continue;
            }
            let end = y.shape().0;
            for (place, row) in (end..).zip(&own) {
                places[*row] = place;
            }
            let count = (own.len(),);
            let own = own.into_iter().map(|row| row / each).collect();
            let own = TensorFromVec::<usize>::try_tensor_from_vec(&device, own, count)?;
            let mapped = map(x.retaped::<T>().try_gather(own)?, &layer, group)?;
            let shape = (end + count.0, Const);
            y = concat::composed::along(y, mapped, 1, shape)?;
        }
        let count = (groups.rows,);
        let places = TensorFromVec::<usize>::try_tensor_from_vec(&device, places, count)?;
        if groups.rows == 0 || O == 0 {
            return crate::composed::zeros_after(y, to);
        }
        reshape(y.try_gather(places)?, to)
    }

    /// Rows by the map of one group.
    fn map<const G: usize, const I: usize, const O: usize, E, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<(usize, Const<I>), E, D, T>,
        layer: &GroupedAffine<'_, G, I, O, E, D>,
        group: usize,
    ) -> Result<Tensor<(usize, Const<O>), E, D, T>, D::Err>
    where
        E: Element,
    {
        let shape = (x.shape().0, Const);
        let index = || TensorFromVec::<usize>::try_tensor_from_vec(x.device(), vec![group], ());
        let weight: Tensor<Rank2<O, I>, E, D, T> =
            layer.weight.retaped::<T>().try_select(index()?)?;
        let bias = match layer.bias {
            None => None,
            Some(bias) => {
                let bias: Tensor<Rank1<O>, E, D, T> = bias.retaped::<T>().try_select(index()?)?;
                Some(bias)
            }
        };
        let y = match I * O {
            0 => zeros_after_both(x, weight, shape)?,
            _ => x.try_matmul(weight.try_permute()?)?,
        };
        match bias {
            Some(bias) => y.try_add(bias.try_broadcast_like::<_, Axis<0>>(&shape)?),
            None => Ok(y),
        }
    }
}
