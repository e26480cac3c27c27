//! Learned position embeddings.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::{Axis, Const, Dim, HasShape, Rank2},
    tensor::{AutoDevice, Storage, Tape, Tensor, TensorFromVec},
    tensor_ops::{BroadcastTo, Device, GatherTo, TryAdd},
};

use crate::{
    Backend, Element, Error,
    data::Ids,
    entry::check_sizes,
    fused::Operation,
    init,
    model::{Pass, check_length, weighted},
    ops::{
        self, Append, LastAxis,
        embedding::{self, slices::Table},
    },
};

/// The initial standard deviation of the position embedding of GPT-2.
const STD: f64 = 0.02;

/// Adds a learned vector to each token, one per position: `y[s] = x[s] + weight[s]`.
///
/// The position embedding of Vaswani et al., "Attention is all you need" (2017), section 3.5, learned as in GPT-2.
/// PyTorch: `x + torch.nn.Embedding(MAX, D_MODEL)(torch.arange(len))`.
///
/// | | shape |
/// | --- | --- |
/// | input, output | `[batch, len, D_MODEL]` or `[len, D_MODEL]`, `len` at most `MAX` |
/// | `weight` | `[MAX, D_MODEL]`, initially normal with standard deviation 0.02 |
///
/// It is its own builder, works in dfdx's tuples, and trains and saves as a dfdx layer does.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::LearnedPosition};
///
/// type Model = (LearnedPosition<128, 32>, Linear<32, 8>);
///
/// let dev = Cpu::default();
/// let model = dev.build_module::<Model, f32>();
/// let x: Tensor<(usize, usize, Const<32>), f32, _> = dev.sample_normal_like(&(4, 100, Const));
/// let y: Tensor<(usize, usize, Const<8>), f32, _> = model.forward(x);
///
/// // A sequence that is too long is an error that says so.
/// let x: Tensor<(usize, Const<32>), f32, _> = dev.zeros_like(&(129, Const));
/// let error = model.0.try_forward(x).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "LearnedPosition: the sequence has length 129, the longest it can take is 128"
/// );
/// ```
#[doc(alias("wpe", "PositionalEmbedding"))]
#[derive(Clone, Debug)]
pub struct LearnedPosition<
    const MAX: usize,
    const D_MODEL: usize,
    E: Dtype = f32,
    D: Storage<E> = AutoDevice,
> {
    /// A vector per position.
    pub weight: Tensor<Rank2<MAX, D_MODEL>, E, D>,
}

impl<const MAX: usize, const W: usize, E: Dtype, D: Storage<E>> LearnedPosition<MAX, W, E, D> {
    /// The number of parameters.
    pub const PARAMS: usize = MAX * W;
}

impl<const MAX: usize, const W: usize, E: Element, D: Device<E>> LearnedPosition<MAX, W, E, D> {
    /// `x[s] + weight[s]`; `x` is `[batch, len, D_MODEL]` or `[len, D_MODEL]`.
    ///
    /// # Panics
    /// If [`try_forward`](Self::try_forward) returns an error.
    #[track_caller]
    pub fn forward<X: Sequence<W, E, D>>(&self, x: X) -> X {
        match self.try_forward(x) {
            Ok(y) => y,
            Err(error) => panic!("{error}"),
        }
    }

    /// `x[s] + weight[s]`; `x` is `[batch, len, D_MODEL]` or `[len, D_MODEL]`.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the sequence is longer than `MAX`; [`Error::TooLarge`] if the sizes of `x` do not fit the memory;
    /// [`Error::Device`] if dfdx fails.
    pub fn try_forward<X: Sequence<W, E, D>>(&self, x: X) -> Result<X, Error<D::Err>> {
        const LAYER: &str = "LearnedPosition";
        let (batch, length) = x.sizes();
        if length > MAX {
            return Err(Error::TooLong {
                layer: LAYER,
                length,
                max: MAX,
            });
        }
        check_sizes(LAYER, &[("batch", batch), ("length", length), ("width", W)])?;
        Ok(x.add_rows(&self.weight)?)
    }
}

/// An input of [`LearnedPosition`]: `[batch, len, W]` or `[len, W]`.
#[diagnostic::on_unimplemented(
    message = "LearnedPosition does not take `{Self}`",
    label = "expected a sequence of vectors of width {W}",
    note = "it takes `Tensor<(B, S, Const<{W}>), E, D, T>`, or `Tensor<(S, Const<{W}>), E, D, T>` for unbatched input"
)]
pub trait Sequence<const W: usize, E: Dtype, D: Storage<E>>: Sized + sealed::Sealed {
    /// The number of sequences, and the number of positions of each.
    #[doc(hidden)]
    fn sizes(&self) -> (usize, usize);

    /// Adds row `s` of the table to position `s`.
    #[doc(hidden)]
    fn add_rows<const MAX: usize>(
        self,
        table: &Tensor<Rank2<MAX, W>, E, D>,
    ) -> Result<Self, D::Err>;
}

impl<B: Dim, S: Dim, const W: usize, E: Element, D: Device<E>, T: Tape<E, D>> Sequence<W, E, D>
    for Tensor<(B, S, Const<W>), E, D, T>
{
    fn sizes(&self) -> (usize, usize) {
        (self.shape().0.size(), self.shape().1.size())
    }

    fn add_rows<const MAX: usize>(
        self,
        table: &Tensor<Rank2<MAX, W>, E, D>,
    ) -> Result<Self, D::Err> {
        let shape = *self.shape();
        match first_rows::<MAX, W, _, _, _, T>(table, shape.1)? {
            Some(rows) => self.try_add(rows.try_broadcast_like::<_, Axis<0>>(&shape)?),
            None => Ok(self),
        }
    }
}

impl<S: Dim, const W: usize, E: Element, D: Device<E>, T: Tape<E, D>> Sequence<W, E, D>
    for Tensor<(S, Const<W>), E, D, T>
{
    fn sizes(&self) -> (usize, usize) {
        (1, self.shape().0.size())
    }

    fn add_rows<const MAX: usize>(
        self,
        table: &Tensor<Rank2<MAX, W>, E, D>,
    ) -> Result<Self, D::Err> {
        match first_rows::<MAX, W, _, _, _, T>(table, self.shape().0)? {
            Some(rows) => self.try_add(rows),
            None => Ok(self),
        }
    }
}

/// The first `len` rows of the table, on an empty tape; `None` if they have no elements.
fn first_rows<const MAX: usize, const W: usize, S: Dim, E: Element, D: Device<E>, T: Tape<E, D>>(
    table: &Tensor<Rank2<MAX, W>, E, D>,
    len: S,
) -> Result<Option<Tensor<(S, Const<W>), E, D, T>>, D::Err> {
    if len.size() * W == 0 {
        return Ok(None);
    }
    let positions = (0..len.size()).collect();
    let positions = TensorFromVec::<usize>::try_tensor_from_vec(table.device(), positions, (len,))?;
    table.retaped::<T>().try_gather(positions).map(Some)
}

impl<const MAX: usize, const W: usize, E: Dtype, D: Storage<E>> NonMutableModule
    for LearnedPosition<MAX, W, E, D>
{
}

/// For a tuple of layers, whose error is dfdx's: a sequence that is too long panics with the message of the error.
impl<const MAX: usize, const W: usize, E: Element, D: Device<E>, X: Sequence<W, E, D>> Module<X>
    for LearnedPosition<MAX, W, E, D>
{
    type Output = X;
    type Error = D::Err;

    fn try_forward(&self, x: X) -> Result<X, D::Err> {
        Self::try_forward(self, x).map_err(Error::into_device)
    }
}

impl<const MAX: usize, const W: usize, E: Element, D: Device<E>> TensorCollection<E, D>
    for LearnedPosition<MAX, W, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = LearnedPosition<MAX, W, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::weight(t, |t| init::normal(t, STD))),
            ),
            |weight| LearnedPosition { weight },
        )
    }
}

/// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
impl<const MAX: usize, const W: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>>
    BuildOnDevice<D, E> for LearnedPosition<MAX, W, E0, D0>
{
    type Built = LearnedPosition<MAX, W, E, D>;
}

mod sealed {
    use dfdx::{
        shapes::Shape,
        tensor::{Storage, Tensor},
    };

    pub trait Sealed {}
    impl<S: Shape, E, D: Storage<E>, T> Sealed for Tensor<S, E, D, T> {}
}

#[cfg(test)]
mod tests {
    use dfdx::{
        optim::{Adam, Optimizer},
        prelude::*,
    };

    use super::*;
    use crate::testing::*;

    type Layer = LearnedPosition<5, 3, f64, Cpu>;

    fn layer() -> Layer {
        LearnedPosition {
            weight: tensor(Default::default(), 1),
        }
    }

    #[test]
    fn the_rows_of_the_first_positions_are_added() {
        let layer = layer();
        let rows = values(&layer.weight);
        for (b, s) in [(2, 5), (2, 3), (1, 1), (0, 3), (2, 0)] {
            let x: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor((b, s, Const), 2);
            let numbers = values(&x);
            let expected = naive([1, b, s, 3], |_, b_, s_, w| {
                numbers[at([b, s, 3], [b_, s_, w])] + rows[s_ * 3 + w]
            });
            assert_eq!(values(&layer.forward(x)), expected);
        }
        for s in [5, 1, 0] {
            let x: Tensor<(usize, Const<3>), f64, Cpu> = tensor((s, Const), 2);
            let expected: Vec<f64> = std::iter::zip(values(&x), &rows)
                .map(|(x, r)| x + r)
                .collect();
            assert_eq!(values(&layer.forward(x)), expected);
        }
    }

    #[test]
    fn gradients_reach_input_and_weight() {
        let layer = layer();
        let with = |weight: &Tensor<Rank2<5, 3>, f64, Cpu>| Layer {
            weight: weight.clone(),
        };
        let x: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor((2, 4, Const), 2);
        check_gradient(&x, |x| layer.forward(x.leaky_trace()));
        check_gradient(&layer.weight, |w| with(w).forward(x.leaky_trace()));
        let x: Tensor<Rank2<4, 3>, f64, Cpu> = tensor(Default::default(), 2);
        check_gradient(&x, |x| layer.forward(x.leaky_trace()));
        check_gradient(&layer.weight, |w| with(w).forward(x.leaky_trace()));
    }

    #[test]
    fn a_sequence_that_is_too_long_is_an_error() {
        let x: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor((2, 6, Const), 2);
        let error = layer().try_forward(x).unwrap_err();
        assert!(matches!(
            error,
            Error::TooLong {
                length: 6,
                max: 5,
                ..
            }
        ));
    }

    #[test]
    #[should_panic(expected = "the sequence has length 6, the longest it can take is 5")]
    fn a_sequence_that_is_too_long_panics_in_a_tuple_of_layers() {
        let x: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor((2, 6, Const), 2);
        Module::forward(&(layer(), Tanh), x);
    }

    #[test]
    fn the_layer_is_built_trained_and_converted_as_any_layer() {
        type Model = (LearnedPosition<5, 3>, Linear<3, 2>);
        let dev = Cpu::seed_from_u64(3);
        let mut model = dev.build_module::<Model, f32>();
        assert_eq!(
            model.num_trainable_params(),
            LearnedPosition::<5, 3>::PARAMS + 8
        );
        assert!(
            model
                .0
                .weight
                .as_vec()
                .iter()
                .all(|&w| w != 0.0 && w.abs() < 0.2)
        );

        let before = model.0.weight.as_vec();
        let mut optimizer = Adam::new(&model, Default::default());
        let x: Tensor<Rank3<2, 5, 3>, f32, Cpu> = dev.sample_normal();
        let y = model.forward_mut(x.traced(model.alloc_grads()));
        let gradients = y.square().mean().backward();
        optimizer.update(&mut model, &gradients).unwrap();
        assert!(std::iter::zip(before, model.0.weight.as_vec()).all(|(a, b)| a != b));

        let converted = model.0.to_dtype::<f64>();
        assert_eq!(values(&converted.weight), values(&model.0.weight));
    }
}

weighted! {
    [const MAX: usize, const M: usize] LearnedPosition<MAX, M, E, D>:
        Table<E>, |layer, operation| Table(operation.parameter(&layer.weight)?);
}

impl<T> Pass<'_, T> {
    /// The learned vectors of the positions of a tensor `[.., seq]`: `[.., seq, W]`. This is the
    /// [`embedding`](crate::ops::embedding) of `0, 1, ..`.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the sequence is longer than `MAX`; [`Error::TooLarge`] if the sizes do not fit the memory;
    /// [`Error::Device`] if dfdx fails.
    pub fn learned_position<S, const MAX: usize, const W: usize, E: Element, D: Backend<E>>(
        &mut self,
        axes: S,
        layer: &LearnedPosition<MAX, W, E, D>,
    ) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, Error<D::Err>>
    where
        S: Append + LastAxis,
        T: Tape<E, D>,
    {
        self.learned_position_behind(0, axes, layer)
    }

    /// The same where so many rows of the table stand before that of position 0.
    ///
    /// # Errors
    /// The errors of [`learned_position`](Self::learned_position).
    pub fn learned_position_behind<S, const MAX: usize, const W: usize, E: Element, D: Backend<E>>(
        &mut self,
        offset: usize,
        axes: S,
        layer: &LearnedPosition<MAX, W, E, D>,
    ) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, Error<D::Err>>
    where
        S: Append + LastAxis,
        T: Tape<E, D>,
    {
        let length = axes.last().size();
        check_length(length, MAX.saturating_sub(offset))?;
        ops::check_shape("LearnedPosition", &axes.append(Const::<W>))?;
        let positions = (0..axes.num_elements()).map(|place| offset + place % length);
        let device = layer.weight.device();
        let positions =
            TensorFromVec::<usize>::try_tensor_from_vec(device, positions.collect(), axes)?;
        self.run(&positions, |fused, positions| {
            embedding::embedding_with_form(fused, positions, &layer.weight)
        })
    }

    /// The learned vectors of given positions, `[..]` to `[.., W]`. This is the [`embedding`](crate::ops::embedding) of these.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if a position is not less than `MAX`; [`Error::TooLarge`] if the sizes do not fit the memory;
    /// [`Error::Device`] if dfdx fails.
    pub fn learned_position_at<
        S: Append,
        const MAX: usize,
        const W: usize,
        E: Element,
        D: Backend<E>,
    >(
        &mut self,
        positions: &Tensor<S, usize, D>,
        layer: &LearnedPosition<MAX, W, E, D>,
    ) -> Result<Tensor<S::With<Const<W>>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        Ids::read(positions).check("learned_position", "position", MAX, None)?;
        self.run(positions, |fused, positions| {
            embedding::embedding_with_form(fused, positions, &layer.weight)
        })
    }
}
