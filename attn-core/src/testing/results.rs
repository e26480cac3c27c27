//! What a compared module returns.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{NoneTape, OwnedTape, Tensor},
    tensor_ops::{SumTo, TryAdd, TryMul},
};

use super::inputs::part;
use crate::{
    Backend, Element,
    data::values,
    random::{Subject, Words},
};

/// The results of a module: a tensor with a tape, or a tuple of up to four of them.
///
/// The name of a lone tensor is `the result`; those of a tuple are `result 0`, `result 1`, ..
pub trait Results<E: Element, D: Backend<E>> {
    /// The sum of all elements, each times a fixed factor, and the elements. A plain sum would hide mistakes that cancel, as in the
    /// weights of a softmax, whose sum is always 1.
    #[doc(hidden)]
    fn loss(self, name: &str, found: &mut Vec<Found>) -> Result<Loss<E, D>, D::Err>;
}

/// A scalar with its tape.
type Loss<E, D> = Tensor<(), E, D, OwnedTape<E, D>>;

/// A result that was read.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Found {
    pub(super) name: String,
    pub(super) dims: Vec<usize>,
    pub(super) values: Vec<f64>,
}

/// The name of a result that is not part of a tuple.
pub(super) const ALONE: &str = "the result";

impl<S: Shape, E: Element, D: Backend<E>> Results<E, D> for Tensor<S, E, D, OwnedTape<E, D>> {
    fn loss(self, name: &str, found: &mut Vec<Found>) -> Result<Loss<E, D>, D::Err> {
        let shape = *self.shape();
        let mut words = Words::new(0, Subject::Factors, found.len() as u64);
        found.push(Found {
            name: name.into(),
            dims: shape.concrete().into_iter().collect(),
            values: values(&self.retaped::<NoneTape>())
                .into_iter()
                .map(Into::into)
                .collect(),
        });
        let factors = (0..shape.num_elements()).map(|_| E::of(words.number()));
        let factors = self
            .device()
            .try_tensor_from_vec(factors.collect(), shape)?;
        self.try_mul(factors)?.try_sum()
    }
}

macro_rules! tuples {
    ($($($part:ident $index:tt)+;)*) => {
        $(
            impl<E: Element, D: Backend<E>, First: Results<E, D>, $($part: Results<E, D>),+> Results<E, D> for (First, $($part),+) {
                fn loss(self, name: &str, found: &mut Vec<Found>) -> Result<Loss<E, D>, D::Err> {
                    let loss = self.0.loss(&part(name, ALONE, 0), found)?;
                    $(let loss = loss.try_add(self.$index.loss(&part(name, ALONE, $index), found)?)?;)+
                    Ok(loss)
                }
            }
        )*
    };
}

tuples! {
    P1 1;
    P1 1 P2 2;
    P1 1 P2 2 P3 3;
}
