//! A tensor of constants as a value.

use dfdx::{
    shapes::Shape,
    tensor::{PutTape, Tape, Tensor},
};

use super::check_shape;
use crate::{Backend, Element, Error, model::Pass};

impl<T> Pass<'_, T> {
    /// The constants as a tensor. It has no gradient.
    ///
    /// In a model, `buffer name: [axes] = |indices| number;` declares them. PyTorch: `register_buffer(name, tensor, persistent=False)`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the sizes do not fit the memory; [`Error::Device`] if dfdx fails.
    pub fn constants<S: Shape, E: Element, D: Backend<E>, const N: usize>(
        &mut self,
        constants: &slices::Constants<N>,
        shape: S,
        device: &D,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        check_shape("buffer", &shape)?;
        let numbers = constants.numbers().iter().map(|number| E::of(*number));
        let tensor = device.try_tensor_from_vec(numbers.collect(), shape)?;
        self.with_tape(|tape| Ok(tensor.put_tape(tape)))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use std::sync::OnceLock;

    use crate::{Element, fused::unflatten};

    /// A tensor of constants with `N` axes. It is computed when a model reads it first, and kept as long as the program runs.
    #[derive(Debug)]
    pub struct Constants<const N: usize> {
        sizes: [usize; N],
        at: fn([f64; N]) -> f64,
        numbers: OnceLock<Vec<f64>>,
    }

    impl<const N: usize> Constants<N> {
        /// The numbers `at` all places, each given by its indices.
        pub const fn new(sizes: [usize; N], at: fn([f64; N]) -> f64) -> Self {
            Self {
                sizes,
                at,
                numbers: OnceLock::new(),
            }
        }

        /// In the order of the memory: the last index runs first.
        pub fn numbers(&self) -> &[f64] {
            self.numbers.get_or_init(|| {
                let count = self.sizes.iter().product::<usize>() as i64;
                let index = |place| unflatten(place, self.sizes).map(|index| index as f64);
                (0..count).map(|place| (self.at)(index(place))).collect()
            })
        }

        /// Copies the numbers.
        pub fn forward<E: Element>(&self, to: &mut [E]) {
            for (to, number) in to.iter_mut().zip(self.numbers()) {
                *to = E::of(*number);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::Constants;

        #[test]
        fn the_last_index_runs_first() {
            let table = Constants::new([2, 3], |[row, column]| 10.0 * row + column);
            assert_eq!(table.numbers(), [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
        }

        #[test]
        fn a_number_has_no_index_and_an_empty_axis_no_place() {
            assert_eq!(Constants::new([], |[]| 0.5).numbers(), [0.5]);
            assert_eq!(Constants::new([3, 0], |_| 0.5).numbers(), [0.0; 0]);
        }
    }
}
